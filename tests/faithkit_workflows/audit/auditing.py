"""Audits in this process: with the configuration of the command, small and without its folder."""

from pathlib import Path
from typing import Any

from faithkit_workflows.audit.protocol import Audit, run_audit
from faithkit_workflows.audit.target import open_target
from tests.faithkit_workflows.audit import faulty
from tests.running import plain_config

MODULE = "tests.faithkit_workflows.audit.faulty"
SMALL = ("num_cases=3", "num_variants=6", "long_words=100")


def configure(target: str, *overrides: str) -> dict[str, Any]:
    return plain_config("audit", f"target='{target}'", *overrides)


def audit(name: str, folder: Path, *overrides: str) -> Audit:
    """Audits a function of faulty.py, or another target."""
    config = configure(f"{MODULE}:{name}" if hasattr(faulty, name) else name, *overrides)
    return run_audit(open_target(config), folder, config)
