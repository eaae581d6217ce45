"""Compare runs, in the terminal and on one page: `python report.py --help`.

The sequence of its steps is faithkit_workflows/report.py.
"""

from faithkit_workflows.report import run

if __name__ == "__main__":
    run()
