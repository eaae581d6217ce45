"""Fixtures for engines that ask a server, and for caches of replies."""

from pathlib import Path

import pytest


@pytest.fixture
def quickly(no_account: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short; no key of the user's, and no proxy, comes into it."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for a cache of replies."""
    return tmp_path / "replies.sqlite"
