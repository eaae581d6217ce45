"""Takes every figure that needs no GPU, one after the other, each in a process of its own.

Needs: the `bench` extra. `tagger_speed` skips itself where LettuceDetect is not there (peers/README.md).
"""

import subprocess
import sys

from speed.measure import require

NAMES = (
    "help_speed",
    "prepare_speed",
    "stream_memory",
    "table_memory",
    "score_speed",
    "onnx_speed",
    "train_speed",
    "tagger_speed",
    "metric_speed",
    "infonce_speed",
    "lm_speed",
    "generate_speed",
    "describe_speed",
    "report_speed",
)


def main() -> int:
    """Runs them all; the exit code is the number that failed."""
    require("accelerate", "bert_score", "rouge_score")
    failed = [name for name in NAMES if subprocess.run([sys.executable, "-m", f"speed.{name}"]).returncode]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
