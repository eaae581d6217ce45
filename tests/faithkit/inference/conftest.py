"""Fixtures for engines that ask a server, and for caches of replies."""

from pathlib import Path

import pytest


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short; no key of the user's, and no proxy, comes into it."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for a cache of replies."""
    return tmp_path / "replies.sqlite"
