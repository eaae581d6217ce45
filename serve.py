"""Serve a detector over HTTP: `python serve.py --help`.

The service is faithkit_workflows/serve/.
"""

from faithkit_workflows.serve import run

if __name__ == "__main__":
    run()
