"""Write a run's best model as a Hugging Face folder: `python export.py --help`.

The sequence of its steps is faithkit_workflows/export.py.
"""

from faithkit_workflows.export import run

if __name__ == "__main__":
    run()
