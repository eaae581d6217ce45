"""Benchmarks of speed and memory, one file each: `python -m speed.NAME`; `python -m speed` runs all that need no GPU.

Each file states what it compares and needs; `pip install -e '.[bench]'` (or `make bench`) installs the libraries.
Everything runs on one thread: the limits are set here, before anything that starts threads is imported.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
