"""A server for the tests of a file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faithkit_workflows.serve.running_server import RunningServer, run_server


@pytest.fixture(scope="session")
def jobs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="session")
def server(default_file: Path, trained: Path, jobs_dir: Path, session_home: Path) -> Iterator[RunningServer]:
    """Serves the default detector and a critic; bodies are small, and times short."""
    os.environ["FAITHKIT_HOME"] = str(session_home)
    models = f"models={{tiny: 'default:{default_file}', critic: '{trained}'}}"
    limits = ("max_body_bytes=200000", "max_rows=40", "body_seconds=2", "request_seconds=60")
    with run_server(models, f"jobs_dir={jobs_dir}", *limits) as found:
        yield found
