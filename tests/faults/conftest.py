"""Fixtures of the faults: a machine without accounts and GPUs, and places that command lines name."""

import pytest

from tests.faults.command_places import Places


@pytest.fixture(scope="session")
def made_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places.make(tmp_path_factory.mktemp("places"))


@pytest.fixture
def places(made_places: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Runs and files of a user without an account."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    return made_places
