"""Serve detectors over HTTP, with a web page to try them.

faithkit serve                                             the default detector on http://127.0.0.1:8000
faithkit serve checkpoint=runs/... port=9000               whatever `faithkit score` takes
faithkit serve models='{fast: default, mine: runs/...}'    several, which a request chooses by name
faithkit serve host=0.0.0.0 keys_path=keys.txt             for other machines, with API keys
python -m faithkit_workflows.serve.keys keys.txt NAME      write a new key

Routes: POST /v1/check, those of LettuceDetect, vLLM and OpenAI clients, /v1/jobs, /metrics, /health/ready;
/openapi.json describes them. SIGTERM answers what is accepted, then ends; SIGHUP loads the checkpoints again. See
docs/guides/serving.md.
"""

import sys
from typing import Any

from faithkit.cli import run_script

GROUPS = ()
SETTINGS = "faithkit_workflows.settings.reporting:ServeSettings"


def main(cfg: Any) -> None:
    """Starts the server, and returns when it has been told to end."""
    from omegaconf import OmegaConf

    from faithkit.settings.check import check_settings
    from faithkit_workflows.settings.reporting import ServeSettings

    config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    settings: Any = check_settings(config, ServeSettings)
    print(
        f"starting on {settings.host}:{settings.port}: {', '.join(settings.checkpoints())}", file=sys.stderr, flush=True
    )
    from faithkit_workflows.serve.server import serve

    serve(settings)


def run() -> None:
    """Runs the command line."""
    run_script(main, "serve", __doc__ or "", GROUPS, SETTINGS)
