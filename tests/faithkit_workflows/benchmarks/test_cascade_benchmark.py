"""A cascade by the command line: a critic of ours and a model behind a server, and the file that a run leaves of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.files.saved_config import write_config
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.detectors.cascade import Cascade
from faithkit_workflows.detectors.loading import describe_detector, kind_of, load_detector
from tests.data_modules.examples import example
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import evaluate_here

FIT_ON = "benchmark.fit_on=[{dataset: embedded, path: embedded, split: validation, num_rows: 60}]"
BENCHMARK = ("benchmark=embedded", "benchmark.options.num_test=60", "num_examples=0")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ChatServer(tells={"Yes": 0.7, "No": 0.3}) as running:
        yield running


def asking(server: ChatServer, folder: Path) -> list[str]:
    return ["engine=openai", f"engine.model={MODEL}", f"engine.base_url={server.url}", f"engine.cache={folder}/replies"]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def metrics(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "metrics.json").read_text())["metrics"]
    return {name.removeprefix("test/embedded/"): metric for name, metric in found.items()}


def test_a_cascade_asks_once_for_its_widest_budget_and_shows_what_each_buys(
    trained: Path, server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*BENCHMARK, FIT_ON, f"checkpoint={trained}", *asking(server, tmp_path), "cascade.budget=0.3"]
    evaluate_here(*options, "cascade.max_budget=0.5", f"run_dir={tmp_path / 'run'}")
    shown, found = " ".join(capsys.readouterr().out.split()), metrics(tmp_path / "run")
    asked = {key: round(found[f"cascade/{key}/asked"]["value"] * 60) for key in ("0", "5", "10", "20", "50", "chosen")}
    assert asked["0"] == 0 <= asked["5"] <= asked["10"] <= asked["20"] <= asked["chosen"] <= asked["50"]
    assert 0 < asked["chosen"] < 60 and len(server.asked) == len(set(server.contents)) <= asked["50"]
    assert "cascade/100/asked" not in found, "nothing is asked beyond what is allowed"
    assert found["cascade/chosen/macro_f1"]["value"] == found["macro_f1"]["value"]
    assert found["cascade/chosen/difference/checkpoint_macro_f1"]["low"] <= (
        found["macro_f1"]["value"] - found["cascade/0/macro_f1"]["value"]
    )
    assert "rows sent to the judge" in shown and "chosen on benchmark.fit_on, of which no row is tested" in shown
    before = len(server.asked)
    evaluate_here(*options, "cascade.max_budget=0.5", f"run_dir={tmp_path / 'again'}")
    assert len(server.asked) == before, "the cache has every reply"
    assert (tmp_path / "again/predictions/embedded.jsonl").read_text() == (
        tmp_path / "run/predictions/embedded.jsonl"
    ).read_text()


def test_the_file_that_a_run_leaves_is_a_detector_for_others(trained: Path, server: ChatServer, tmp_path: Path) -> None:
    options = [*BENCHMARK, FIT_ON, f"checkpoint={trained}", *asking(server, tmp_path), "cascade.precision=0.95"]
    evaluate_here(*options, f"run_dir={tmp_path / 'run'}")
    file = str(tmp_path / "run/detector.yaml")
    detector = load_detector(file, precision="32-true", batch_tokens=None)
    assert isinstance(detector, Cascade) and kind_of(file).name == "critic"
    assert [(one.role, Path(one.path).name) for one in describe_detector(file)] == [
        ("checkpoint", trained.name),
        ("judge", MODEL),
    ]
    folder = tmp_path / "run/predictions"
    asked = {row["id"] for row in lines(folder / "embedded-judge.jsonl")}
    assert asked and {row["label"] for row in lines(folder / "embedded.jsonl") if row["id"] in asked} == {HALLUCINATED}
    judged = list(detector.predict_examples([example(response="It is long."), example(response="No.")]))
    assert {one.label for one in judged} <= {HALLUCINATED, FAITHFUL}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["checkpoint={run}", "cascade.budget=0.2", FIT_ON], "a cascade needs a checkpoint and a language model"),
        (["engine=transformers", "engine.model={llama}", "cascade.budget=0.2", FIT_ON], "a checkpoint and a language"),
        (
            ["checkpoint={run}", "engine=transformers", "engine.model={llama}", "cascade.budget=0.2"],
            "rows .* not tested",
        ),
        (
            ["checkpoint={run}", "engine=transformers", "engine.model={llama}"],
            r"make them a cascade: cascade.budget=0.2",
        ),
        (["cascade.budget=0.2", "cascade.band=[0,1]"], r"cascade.budget and cascade.band are given"),
        (["cascade.band=[0.8,0.2]"], r"the lower score first: \[0.2, 0.8\]"),
        (["cascade.max_budget=0.2"], "cascade.max_budget without a cascade"),
        (["cascade.budget=0"], "cascade.budget is 0"),
    ],
)
def test_a_cascade_that_cannot_be_is_refused(
    options: list[str], message: str, trained: Path, language_models: dict[str, Path], tmp_path: Path
) -> None:
    given = [
        option.replace("{run}", str(trained)).replace("{llama}", str(language_models["llama"])) for option in options
    ]
    with pytest.raises(UserError, match=message):
        evaluate_here(*BENCHMARK, *given, f"run_dir={tmp_path / 'run'}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "names no detector"),
        ({"checkpoint": "{run}", "cascade": {"budget": 0.2}}, "gives its band"),
        ({"checkpoint": "{run}", "cascade": {"band": [0.2, 0.4]}}, "a checkpoint and a language model"),
        ({"checkpoint": "{run}", "engine": {"name": "openai", "model": "m"}}, "both named"),
        ({"engine": {"name": "openai", "modell": "m"}}, r"engine.modell: there is no such key"),
        ({"engine": {"name": "openay", "model": "m"}}, r"did you mean openai"),
        ({"checkpoint": "other.yaml"}, "another such file"),
        ({"model": "m"}, "no such key"),
    ],
)
def test_a_file_that_describes_no_detector_is_refused(
    content: dict[str, Any], message: str, trained: Path, tmp_path: Path
) -> None:
    file = tmp_path / "judge.yaml"
    filled = {key: str(trained) if value == "{run}" else value for key, value in content.items()}
    write_config(file, filled)
    with pytest.raises(UserError, match=message) as error:
        load_detector(str(file), precision="32-true", batch_tokens=None)
    assert error.value.hint and "config.yaml" not in error.value.hint
