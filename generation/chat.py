"""Keeps the older command `python -m generation.chat` working: it runs `faithkit chat`."""

import runpy

if __name__ == "__main__":
    runpy.run_module(
        "faithkit_workflows.chat", run_name="__main__", alter_sys=True
    )  # by name: no task imports a workflow
