"""Shards that were scored once, for the tests of this folder."""

import shutil
from pathlib import Path

import pytest

from tests.faithkit_workflows.ray.data import score, write_shards


@pytest.fixture(scope="module")
def finished(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards in `data`, scored into `out`."""
    folder = tmp_path_factory.mktemp("finished")
    score(write_shards(folder / "data"), folder / "out", trained)
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The shards of `finished`, of the same dates, and a copy of what was scored."""
    shutil.copytree(finished / "out", tmp_path / "out")
    return tmp_path / "out"
