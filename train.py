"""Train a model, then test its best checkpoint: `python train.py --help`.

The sequence of its steps is workflows/train.py.
"""

from workflows.train import run

if __name__ == "__main__":
    run()
