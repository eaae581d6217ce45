"""Language models judge shards as a critic does: by their folder, behind a server, in a file that describes them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faithkit.errors import UserError
from faithkit.files.run_folder import write_config
from faithkit.settings.check import check_settings
from faithkit_workflows.ray.out_folder import identify_model
from faithkit_workflows.settings.prediction import ScoreSettings
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.faithkit_workflows.ray.data import score, scored, write_shards
from tests.running import ROOT, plain_config

pytestmark = pytest.mark.usefixtures("no_account")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(tells={"Yes": 0.4, "No": 0.6}) as found:
        yield found


def served(file: Path, server: ChatServer, **others: object) -> Path:
    engine = {"name": "openai", "model": MODEL, "base_url": server.url, "cache": None, "max_retries": 0}
    write_config(file, {"engine": engine, **others})
    return file


def test_a_judge_behind_a_server_judges_shards(server: ChatServer, tmp_path: Path) -> None:
    score(write_shards(tmp_path / "data", num_rows=4), tmp_path / "out", served(tmp_path / "judge.yaml", server))
    table = pq.read_table(tmp_path / "out")
    assert table["label"].to_pylist() == ["faithful"] * 12
    assert table["probability"].to_pylist() == pytest.approx([0.4] * 12)
    assert len(server.asked) == 12


def test_a_server_that_is_down_leaves_every_shard_to_the_next_launch(tmp_path: Path) -> None:
    data = write_shards(tmp_path / "data", num_rows=4)
    with ChatServer(tells={"Yes": 0.4, "No": 0.6}) as server:
        file = served(tmp_path / "judge.yaml", server)
    with pytest.raises(UserError, match=r"3 of 3 shards are not scored; the first: (.|\n)*run the same command again"):
        score(data, tmp_path / "out", file)
    assert scored(tmp_path / "out") == {}


def test_a_prompt_that_has_changed_is_another_model(server: ChatServer, tmp_path: Path) -> None:
    prompts = shutil.copytree(ROOT / "judge" / "prompts", tmp_path / "prompts")
    file = served(tmp_path / "judge.yaml", server, judge={"prompts": str(prompts)})
    before = identify_model(str(file))
    assert json.dumps(before)
    (prompts / "verdict.txt").write_text((prompts / "verdict.txt").read_text() + "\nBe brief.\n")
    assert identify_model(str(file)) != before


def test_a_path_that_workers_would_not_find_is_refused(server, trained, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(trained.parent)
    file = served(tmp_path / "cascade.yaml", server, checkpoint=trained.name, cascade={"band": [0.2, 0.8]})
    config = plain_config("score", f"path={tmp_path}", f"checkpoint={file}", "engine=ray", f"out={tmp_path}-out")
    with pytest.raises(UserError) as caught:
        check_settings(config, ScoreSettings)
    assert f"names {trained.name}, and workers run in another folder" in str(caught.value)
    assert f"write checkpoint: {trained}" in str(caught.value)
