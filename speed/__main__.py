"""Runs every benchmark that needs no GPU, one after the other, each in another process that gets the same arguments.

python -m speed [--quick]    --quick: small sizes, one round, research/speed.md is not changed

Needs: the `bench` and `onnx` extras. `tagger_speed`, `serve_peer_speed` and `known_speed` are skipped without originals
(peers/README.md).
"""

import subprocess
import sys

from speed.measure import require

NAMES = (
    "start_speed",
    "data_speed",
    "score_speed",
    "long_speed",
    "train_speed",
    "tagger_speed",
    "known_speed",
    "metric_speed",
    "generate_speed",
    "serve_speed",
    "serve_peer_speed",
    "attack_speed",
    "verdict_speed",
    "growth_speed",
)


def main() -> int:
    """Returns the number of benchmarks that failed."""
    require("accelerate", "bert_score", "rouge_score")
    require("onnx", "onnxscript", "onnxruntime", hint="pip install -e '.[onnx]'")
    command = [sys.executable, "-m"]
    failed = [name for name in NAMES if subprocess.run([*command, f"speed.{name}", *sys.argv[1:]]).returncode]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
