"""Predictions files: damaged ones are scored as they read, or refused with their line."""

import contextlib
import io
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from data_modules.datasets.ragtruth import RagTruth
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.responses.response_columns import PairedResponses
from faithkit.pages.page import AnswerSet, write_page
from faithkit.records import Example, Prediction
from faithkit.reports.write_reports import detection_reports, write_run_results
from faithkit_workflows.answering.write_answers import write_answers
from tests.data_modules.official_rows import write_case
from tests.faults.campaign import Campaign, Wrong
from tests.faults.corpora import damage


@cache
def labelled() -> list[Example]:
    """Answers with marked spans."""
    with TemporaryDirectory() as folder:
        write_case(Path(folder), "ragtruth")
        return list(read_examples(RagTruth(path=folder), "test", ReadReport()))


def lines(examples: Sequence[Example]) -> bytes:
    """Predictions as a run writes them: each field in use."""
    rows = [
        Prediction(
            id=example.id,
            label=example.label,
            score=0.25 if example.label == "faithful" else 0.75,
            spans=example.spans or (),
            text="a lake is deep",
        ).to_dict()
        for example in examples
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _damaged(rng: random.Random, folder: Path) -> Path:
    file = folder / "predictions.jsonl"
    file.write_bytes(damage(lines(labelled()), ".jsonl", rng))
    return file


def attempt_detection(rng: random.Random, folder: Path) -> None:
    """Labels, scores and spans, with their page."""
    predictions = read_predictions(_damaged(rng, folder))
    run = RunFolder(folder)
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):  # as strict as a terminal
        found = detection_reports({"set": (labelled(), list(predictions.values()))}, meta={}, num_resamples=10)
        write_run_results(run, found, meta={})
    write_page(
        folder / "page.html", [AnswerSet(name="set", examples=labelled(), predictions=predictions)], title="answers"
    )
    for name, metric in json.loads(run.metrics.read_text())["metrics"].items():
        if metric["value"] is not None and not metric["value"] == metric["value"]:
            raise Wrong(f"{name} is {metric}")


def attempt_responses(rng: random.Random, folder: Path) -> None:
    """Responses by a generator, against another one's."""
    (folder / "other.jsonl").write_bytes(lines(labelled()))
    against = read_predictions(folder / "other.jsonl")
    PairedResponses.of(labelled(), read_predictions(_damaged(rng, folder)), against, incomplete=False)


class Echo:
    """Answers every example with its knowledge."""

    def answer(self, examples: Sequence[Example], advance: Callable[[int], object]) -> list[Prediction]:
        advance(len(examples))
        return [Prediction(id=example.id, text=example.knowledge) for example in examples]


def attempt_resume(rng: random.Random, folder: Path) -> None:
    """The file of an interrupted run, cut or damaged, and answered to its end."""
    whole = lines(labelled()[: rng.randint(1, len(labelled()))])
    file = folder / "predictions.jsonl"
    file.write_bytes(whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else damage(whole, ".jsonl", rng))
    with contextlib.redirect_stderr(io.StringIO()):
        answers = write_answers(file, labelled(), Echo(), chunk_size=rng.choice((1, 2, 3)))  # type: ignore[arg-type]
    wanted = [example.id for example in labelled()]
    if [answer.id for answer in answers] != wanted or list(read_predictions(file)) != wanted:
        raise Wrong("a row is missing, or stands twice")


CAMPAIGNS = [
    Campaign("predictions, scored", attempt_detection, share=0.5),
    Campaign("predictions of responses", attempt_responses, share=0.5),
    Campaign("predictions of an interrupted run", attempt_resume, share=0.5),
]
