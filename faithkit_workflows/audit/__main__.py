"""Runs `faithkit audit`."""

from faithkit_workflows.audit import run

if __name__ == "__main__":
    run()
