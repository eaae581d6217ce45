"""Build a benchmark of hallucinations: `python construct.py --help`.

The sequence of its steps is workflows/construct.py.
"""

from workflows.construct import run

if __name__ == "__main__":
    run()
