"""Score a benchmark, with a model or from a predictions file: `python evaluate.py --help`.

The sequence of its steps is workflows/evaluate.py.
"""

from workflows.evaluate import run

if __name__ == "__main__":
    run()
