"""Runs `faithkit compare`."""

from faithkit_workflows.compare import run

if __name__ == "__main__":
    run()
