"""Answer dialogues with a trained generator: `python generate.py --help`.

The sequence of its steps is workflows/generate.py.
"""

from workflows.generate import run

if __name__ == "__main__":
    run()
