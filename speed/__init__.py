"""Figures about speed and memory, a file each: `python -m speed.NAME`; `python -m speed` runs the CPU's.

Everything runs on one thread, set here before anything that starts threads is imported.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
