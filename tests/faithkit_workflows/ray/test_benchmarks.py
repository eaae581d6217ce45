"""`evaluate.py engine=ray`: a benchmark that a cluster predicts has the files and the figures of one machine."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.records import LABELS
from faithkit.signals import Interrupted
from faithkit_workflows.ray import chunks
from faithkit_workflows.ray.chunks import ChunkWorker
from tests.faithkit_workflows.ray.data import in_process, rows, write_jsonl
from tests.faithkit_workflows.ray.dying import COUNTS, TIMES, DyingWorker
from tests.faithkit_workflows.test_evaluate_responses import NO_MODELS, dialogues
from tests.running import ROOT, evaluate_here

NUM_ROWS = 40


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    made = [{**row, "label": LABELS[place % 2]} for place, row in enumerate(rows(NUM_ROWS, 3))]
    return write_jsonl(tmp_path / "labelled.jsonl", made)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker of this process in the place of a cluster's."""

    def run(*arguments: Any, max_deaths: int) -> Iterator[Any]:
        return in_process(*arguments)

    monkeypatch.setattr(chunks, "run_on_cluster", run)


def evaluate(data: Path, run: Path, checkpoint: Path | None, *overrides: str) -> dict[str, Any]:
    """Evaluates with chunks of seven rows; returns the folder's contents without its name and settings."""
    given = ["benchmark=pairs", f"benchmark.path={data}", "save_every_num_rows=7", "seed=1"]
    evaluate_here(*given, f"run_dir={run}", *([f"checkpoint={checkpoint}"] if checkpoint else []), *overrides)
    return made(run)


def made(run: Path) -> dict[str, Any]:
    report = json.loads((run / "metrics.json").read_text())
    report["meta"].pop("config")
    files = {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.glob("predictions/*"))}
    _, _, shown = (run / "report.md").read_text().partition("\n")  # without its title, which is the folder's name
    return {"report": report, "shown": shown.replace(str(run), "RUN"), **files}


@pytest.mark.usefixtures("here")
def test_predictions_and_figures_are_those_of_one_machine(labelled: Path, trained: Path, tmp_path: Path) -> None:
    found = {
        name: evaluate(labelled, tmp_path / name, trained, f"engine={name}", "benchmark.by=[model]")
        for name in ("none", "ray")
    }
    assert found["ray"] == found["none"]
    assert len(found["ray"]["predictions/pairs.jsonl"].splitlines()) == NUM_ROWS


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_tagger_and_the_rows_to_fit_on_are_judged_by_the_workers_too(
    labelled: Path, trained_tagger: Path, tmp_path: Path
) -> None:
    other = write_jsonl(
        tmp_path / "other.jsonl", [{**row, "label": LABELS[at % 2]} for at, row in enumerate(rows(20, 8))]
    )
    fit_on = f"benchmark.fit_on=[{{dataset: pairs, path: {other}}}]"
    found = {
        name: evaluate(labelled, tmp_path / name, trained_tagger, f"engine={name}", fit_on) for name in ("none", "ray")
    }
    assert found["ray"] == found["none"] and "predictions/pairs-fit_on.jsonl" in found["ray"]


@pytest.mark.usefixtures("here")
def test_a_generator_answers_on_workers_with_the_texts_of_one_machine(tiny_llama: Path, tmp_path: Path) -> None:
    data = f"benchmark.path={dialogues(tmp_path)}"
    given = ["benchmark=faithdial", data, f"checkpoint={tiny_llama}", "decoding.max_new_tokens=8"]
    found = {}
    for name in ("none", "ray"):
        run = tmp_path / name
        evaluate_here(*given, f"run_dir={run}", f"engine={name}", "save_every_num_rows=2", *NO_MODELS)
        found[name] = made(run)
    assert found["ray"] == found["none"]


@pytest.mark.slow
def test_an_interrupted_run_asks_for_the_missing_chunks(
    labelled: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def run(worker: type, argument: Any, rows: Sequence[Mapping[str, Any]], options: Any, *, max_deaths: int) -> Any:
        asked.append(len(rows))
        for place, result in enumerate(in_process(worker, argument, rows, options)):
            if len(asked) == 1 and place == 2:
                raise Interrupted
            yield result

    monkeypatch.setattr(chunks, "run_on_cluster", run)
    with pytest.raises(Interrupted):
        evaluate(labelled, tmp_path / "run", trained, "engine=ray")
    evaluate_here(f"resume={tmp_path / 'run'}")
    assert asked == [6, 4], "six chunks of seven rows, of which two were written"
    whole = evaluate(labelled, tmp_path / "whole", trained, "engine=none")
    assert made(tmp_path / "run")["predictions/pairs.jsonl"] == whole["predictions/pairs.jsonl"]


def test_a_worker_with_other_weights_judges_nothing(labelled: Path, trained: Path, tmp_path: Path) -> None:
    class Other(ChunkWorker):
        """A worker on a node with another model."""

        def __init__(self, settings: Any):
            super().__init__(settings)
            self.settings.identity["model"]["models"][0]["weights"] = "0" * 16

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "run_on_cluster", lambda _, *rest, **__: in_process(Other, *rest))
        with pytest.raises(UserError, match="a worker differs in its model"):
            evaluate(labelled, tmp_path / "run", trained, "engine=ray")
    assert not (tmp_path / "run/predictions/pairs.jsonl").read_bytes()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["benchmark=transfer"], "benchmark=transfer does not run with engine=ray"),
        (["benchmark=analysis"], "benchmark=analysis does not run with engine=ray"),
        (["predictions=p.jsonl"], "engine=ray and predictions exclude each other"),
        (["checkpoint=null"], "engine=ray needs a checkpoint"),
        (["engine.model=smollm2-135m"], "engine=ray and engine.model exclude each other"),
        (["selfcheck.measure=ngram"], "engine=ray and selfcheck.measure exclude each other"),
        (["ray.address=head"], "ray.address is 'head'"),
    ],
)
def test_what_a_cluster_does_not_do_is_refused(
    overrides: list[str], words: str, labelled: Path, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").touch()
    given = [f"{each.replace('p.jsonl', str(tmp_path / 'p.jsonl'))}" for each in overrides]
    begun = [] if given[0].startswith("benchmark=") else ["benchmark=pairs", f"benchmark.path={labelled}"]
    with pytest.raises(UserError) as caught:
        evaluate_here(*begun, f"checkpoint={trained}", "engine=ray", f"run_dir={tmp_path / 'run'}", *given)
    assert words in str(caught.value)


@pytest.fixture
def deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Workers die at a row, twice; the file has a letter for each death."""
    pytest.importorskip("ray", reason="needs the extra ray")
    counts = tmp_path / "deaths"
    for name, value in {COUNTS: counts, TIMES: 2, "PYTHONPATH": ROOT}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(chunks, "ChunkWorker", DyingWorker)
    return counts


@pytest.mark.slow
def test_a_real_cluster_whose_workers_die_writes_the_same_files(
    deaths: Path, labelled: Path, trained: Path, tmp_path: Path
) -> None:
    expected = evaluate(labelled, tmp_path / "none", trained, "engine=none")
    found = evaluate(labelled, tmp_path / "ray", trained, "engine=ray", "ray.workers=2")
    assert found == expected and len(deaths.read_text()) == 2


@pytest.mark.slow
def test_rows_of_which_every_worker_dies_stop_the_evaluation(
    deaths: Path, labelled: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMES, "99")
    with pytest.raises(UserError, match="3 workers have died of the same rows"):
        evaluate(labelled, tmp_path / "ray", trained, "engine=ray", "ray.workers=1")
    assert len(deaths.read_text()) == 3
