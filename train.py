"""Train a model, then test its best checkpoint: `python train.py --help`.

The sequence of its steps is faithkit_workflows/train.py.
"""

from faithkit_workflows.train import run

if __name__ == "__main__":
    run()
