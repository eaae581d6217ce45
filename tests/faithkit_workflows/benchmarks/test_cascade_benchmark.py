"""A cascade by the command line: a critic of ours and a model behind a server, and the file that a run leaves of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.files.run_folder import write_config
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.detectors.cascade import Cascade
from faithkit_workflows.detectors.loading import describe_detector, kind_of, load_detector
from tests.data_modules.examples import example
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import asking, evaluate_here, metrics_of

FIT_ON = "benchmark.fit_on=[{dataset: embedded, path: embedded, split: validation, num_rows: 60}]"
LLAMA = ("engine=transformers", "engine.model={llama}")
BENCHMARK = ("benchmark=embedded", "benchmark.options.num_test=60", "num_examples=0")


@pytest.fixture
def server(no_account: None) -> Iterator[ChatServer]:
    with ChatServer(tells={"Yes": 0.7, "No": 0.3}) as running:
        yield running


def test_a_cascade_asks_once_for_its_widest_budget_and_shows_what_each_buys(trained, server, tmp_path, capsys) -> None:
    asked_here = asking(server.url, "cascade.budget=0.3", cache=tmp_path / "replies")
    options = [*BENCHMARK, FIT_ON, f"checkpoint={trained}", *asked_here]
    evaluate_here(*options, "cascade.max_budget=0.5", f"run_dir={tmp_path / 'run'}")
    shown, found = " ".join(capsys.readouterr().out.split()), metrics_of(tmp_path / "run", "test/embedded/")
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
    first, again = ((tmp_path / name / "predictions/embedded.jsonl").read_text() for name in ("run", "again"))
    assert first == again


def test_the_file_that_a_run_leaves_is_a_detector_for_others(trained: Path, server: ChatServer, tmp_path: Path) -> None:
    options = [*BENCHMARK, FIT_ON, f"checkpoint={trained}", *asking(server.url, "cascade.precision=0.95")]
    evaluate_here(*options, f"run_dir={tmp_path / 'run'}")
    file = str(tmp_path / "run/detector.yaml")
    detector = load_detector(file, precision="32-true", batch_tokens=None)
    assert isinstance(detector, Cascade) and kind_of(file).name == "critic"
    roles = {one.role: Path(one.path).name for one in describe_detector(file)}
    assert roles == {"checkpoint": trained.name, "judge": MODEL}
    rows, judged_rows = (read_jsonl(tmp_path / f"run/predictions/embedded{end}.jsonl") for end in ("", "-judge"))
    asked = {row["id"] for row in judged_rows}
    assert asked and {row["label"] for row in rows if row["id"] in asked} == {HALLUCINATED}
    judged = list(detector.predict_examples([example(response="It is long."), example(response="No.")]))
    assert {one.label for one in judged} <= {HALLUCINATED, FAITHFUL}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["checkpoint={run}", "cascade.budget=0.2", FIT_ON], "a cascade needs a checkpoint and a language model"),
        ([*LLAMA, "cascade.budget=0.2", FIT_ON], "a checkpoint and a language"),
        (["checkpoint={run}", *LLAMA, "cascade.budget=0.2"], "rows .* not tested"),
        (["checkpoint={run}", *LLAMA], r"make them a cascade: cascade.budget=0.2"),
        (["cascade.budget=0.2", "cascade.band=[0,1]"], r"cascade.budget and cascade.band are given"),
        (["cascade.band=[0.8,0.2]"], r"the lower score first: \[0.2, 0.8\]"),
        (["cascade.max_budget=0.2"], "cascade.max_budget without a cascade"),
        (["cascade.budget=0"], "cascade.budget is 0"),
    ],
)
def test_a_cascade_that_cannot_be_is_refused(options, message, trained, language_models, tmp_path) -> None:
    places = {"{run}": str(trained), "{llama}": str(language_models["llama"])}
    given = [re.sub("{run}|{llama}", lambda found: places[found[0]], option) for option in options]
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
def test_a_file_that_describes_no_detector_is_refused(content, message, trained, tmp_path) -> None:
    file = tmp_path / "judge.yaml"
    filled = {key: str(trained) if value == "{run}" else value for key, value in content.items()}
    write_config(file, filled)
    with pytest.raises(UserError, match=message) as error:
        load_detector(str(file), precision="32-true", batch_tokens=None)
    assert error.value.hint and "config.yaml" not in error.value.hint
