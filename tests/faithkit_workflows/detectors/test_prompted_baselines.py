"""SelfCheckGPT and an examiner by the command line: with a server, with local models, and without any model."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from tests.faithkit.inference.server import ChatServer
from tests.running import asking, evaluate_here
from tests.tiny import write_nli

QUIET = ("num_examples=0", "benchmark.num_rows=6")


def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
    """Asks, answers or says yes, as the prompt wants it."""
    said = messages[-1]["content"]
    if "Write nothing but questions" in said:
        return "Is it so?"
    return "Yes" if "one word" in said else f"It is sample {sample} of that. It is long."


@pytest.fixture
def server(no_account: None) -> Iterator[ChatServer]:
    with ChatServer(answer=answer, tells={"Yes": 0.6, "No": 0.4}) as running:
        yield running


def asking_with_cache(server: ChatServer, folder: Path) -> list[str]:
    return asking(server.url, cache=folder / "replies")


def predictions(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(read_jsonl(folder / f"predictions/{name}.jsonl"))


@pytest.mark.parametrize(
    "options",
    [["selfcheck.measure=prompt", "selfcheck.num_samples=2"], ["selfcheck.measure=ngram"], ["examiner.turns=2"]],
    ids=["prompt", "ngram", "examiner"],
)
def test_a_server_is_asked_and_a_second_run_asks_nothing(options, server, tmp_path, capsys) -> None:
    path = written_layout("halueval", {"test": 12})
    given = ["benchmark=halueval", f"benchmark.path={path}", *QUIET, *asking_with_cache(server, tmp_path), *options]
    evaluate_here(*given, f"run_dir={tmp_path / 'run'}")
    said = predictions(tmp_path / "run", "halueval")
    assert len(said) == 6 and all(row["score"] is not None for row in said)
    assert all(row["label"] in ("faithful", "hallucinated") for row in said) and server.asked
    if options[0] == "selfcheck.measure=prompt":
        assert {row["score"] for row in said} == {0.0}, "every sample supports every sentence"
    before = len(server.asked)
    evaluate_here(*given, f"run_dir={tmp_path / 'again'}")
    assert len(server.asked) == before and predictions(tmp_path / "again", "halueval") == said
    assert "macro-F1" in capsys.readouterr().out


def test_a_dialogue_without_history_is_rephrased_at_each_temperature(server: ChatServer, tmp_path: Path) -> None:
    path = written_layout("diahalu", {"test": 12})
    asked = [*asking_with_cache(server, tmp_path), "selfcheck.measure=ngram"]
    given = ["benchmark=diahalu", f"benchmark.path={path}", *QUIET, *asked]
    with pytest.raises(UserError, match=r"no row has a knowledge or a history(.|\n)*selfcheck.samples=rephrased"):
        evaluate_here(*given, f"run_dir={tmp_path / 'drawn'}")
    assert not server.asked
    drawn = ["selfcheck.samples=rephrased", "selfcheck.temperature=[0.5,1.0]", "selfcheck.num_samples=2"]
    evaluate_here(*given, *drawn, f"run_dir={tmp_path / 'run'}")
    said = predictions(tmp_path / "run", "diahalu")
    assert len(said) == 6 and all(row["label"] in ("faithful", "hallucinated") for row in said)
    assert {body["temperature"] for body in server.asked} == {0.5, 1.0}


@pytest.mark.parametrize("measure", ["ngram", "nli", "bert_score"])
def test_the_other_models_responses_need_no_language_model(measure: str, tiny_bert: Path, tmp_path: Path) -> None:
    path = written_layout("ragtruth", {"train": 6, "validation": 6, "test": 12})
    models = [f"selfcheck.nli={write_nli(tmp_path / 'nli', 128)}", f"selfcheck.encoder={tiny_bert}"]
    options = ["benchmark=ragtruth", f"benchmark.path={path}", "num_examples=0", "selfcheck.samples=others"]
    evaluate_here(*options, f"selfcheck.measure={measure}", *models, f"run_dir={tmp_path / 'run'}")
    said = predictions(tmp_path / "run", "ragtruth")
    assert said and all(0 <= row["score"] <= 1 for row in said)
    assert len({row["score"] for row in said}) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("measure=nli samples=others", r"selfcheck.measure=nli needs selfcheck.nli\n.*data=snli"),
        ("measure=ngram", r"asks a language model, and none is named\n.*selfcheck.samples=others"),
        ("examiner.turns=2", r"examiner.turns needs engine"),
        ("measure=ngram samples=others checkpoint={run}", "measure and checkpoint exclude"),
        ("measure=ngram examiner.turns=1 engine=transformers engine.model={llama}", "exclude each other"),
        ("measure=ngram temperature=[]", "use a number above 0, or a list of them"),
        ("measure=ngram engine=transformers engine.model={llama} engine.num_gpus=2", r"num_gpus is 2(.|\n)*=vllm"),
        ("measure=ngrams", r"selfcheck.measure is 'ngrams'\n.*did you mean ngram"),
        ("measure=ngram samples=others", "do not name the models that wrote them"),
    ],
)
def test_a_baseline_that_lacks_something_is_refused(options, message, trained, language_models, tmp_path) -> None:
    line = re.sub(r"\b(measure|samples|temperature)=", r"selfcheck.\1=", options)
    given = line.format(run=trained, llama=language_models["llama"]).split()
    with pytest.raises(UserError, match=message):
        evaluate_here("benchmark=embedded", "benchmark.options.num_test=8", *given, f"run_dir={tmp_path / 'run'}")
