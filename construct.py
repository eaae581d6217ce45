"""Build a benchmark of hallucinations: `python construct.py --help`.

The sequence of its steps is faithkit_workflows/construct.py.
"""

from faithkit_workflows.construct import run

if __name__ == "__main__":
    run()
