"""Answer dialogues with a trained generator: `python generate.py --help`.

The sequence of its steps is faithkit_workflows/generate.py.
"""

from faithkit_workflows.generate import run

if __name__ == "__main__":
    run()
