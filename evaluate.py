"""Score a benchmark, with a model or from a predictions file: `python evaluate.py --help`.

The sequence of its steps is faithkit_workflows/evaluate.py.
"""

from faithkit_workflows.evaluate import run

if __name__ == "__main__":
    run()
