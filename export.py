"""Write a run's best model as a Hugging Face folder: `python export.py --help`.

The sequence of its steps is workflows/export.py.
"""

from workflows.export import run

if __name__ == "__main__":
    run()
