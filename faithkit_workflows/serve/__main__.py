"""Runs `faithkit serve`."""

from faithkit_workflows.serve import run

if __name__ == "__main__":
    run()
