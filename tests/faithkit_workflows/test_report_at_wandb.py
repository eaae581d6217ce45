"""`report.py wandb=...` is refused before anything is read, with what to do."""

import sys
from pathlib import Path

import pytest

from faithkit.settings.check import find_missing
from faithkit_workflows.settings import preflight
from faithkit_workflows.settings.reporting import ReportSettings
from tests.running import plain_config

PACKAGE = "pip install '.[wandb-report]'"
ACCOUNT = "wandb login"


def problems(*overrides: str) -> str:
    settings = ReportSettings.model_validate(plain_config("report", "html=null", *overrides))
    return "\n".join(str(problem) for problem in find_missing(settings))


@pytest.fixture(autouse=True)
def plain_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No account, the network allowed, and no package."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delitem(sys.modules, "wandb_workspaces", raising=False)  # of a test before
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == "wandb_workspaces" else object())


def test_package_account_and_runs_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    found = problems("runs=runs", "wandb=me/project")
    assert PACKAGE in found and ACCOUNT in found
    assert not problems("runs=runs"), "a report here needs neither"
    monkeypatch.setattr(preflight, "find_spec", lambda name: object())
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    assert not problems("runs=runs", "wandb=me/project")
    assert "add runs='runs/*'" in problems("wandb=me/project")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert "unset WANDB_MODE" in problems("runs=runs", "wandb=me/project")
