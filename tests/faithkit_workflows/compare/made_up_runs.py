"""Made-up runs of detectors on the same rows, with random errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.provenance.predicted_rows import to_line
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction, Span, Turn
from tests.faithkit.runs.folders import EVALUATED, make_run

SENTENCE = "The Danube flows through twelve old countries."
TASKS = ("qa", "summary")


def examples(count: int = 60, *, marked: bool = True, name: str = "begin") -> list[Example]:
    """Rows in groups of three, every second hallucinated."""
    found = []
    for place in range(count):
        wrong = place % 2 == 0
        spans = (Span(start=25, end=31, label="evident_conflict"),) if wrong else ()
        history = tuple(Turn(speaker="user", text=f"Question {n}?") for n in range(place % 4))
        known = f"The Danube flows through ten countries, says book {place // 6}." + " It does." * (place % 9)
        names: dict[str, Any] = {"id": f"{name}:{place}", "source": name, "split": "test", "group": f"g{place // 3}"}
        names |= {"label": HALLUCINATED if wrong else FAITHFUL, "spans": spans if marked else None}
        meta = {"task": TASKS[place % 3 == 0], "model": f"writer-{place % 5}"}
        found.append(Example(**names, knowledge=known, history=history, response=SENTENCE, meta=meta))
    return found


def judged(rows: Sequence[Example], right: float, seed: int, *, spans: bool = False) -> list[Prediction]:
    """Predictions that are right about this share of the rows."""
    drawn = np.random.default_rng(seed).random((len(rows), 2))
    found = []
    for example, (luck, sure) in zip(rows, drawn, strict=True):
        is_wrong = (example.label == HALLUCINATED) == bool(luck < right)
        marks = (Span(start=20, end=31, label="evident_conflict", score=0.8),) if spans and is_wrong else ()
        score = float(round(0.5 + sure / 2 if is_wrong else sure / 2, 4))
        label = HALLUCINATED if is_wrong else FAITHFUL
        found.append(Prediction(id=example.id, label=label, score=score, spans=marks))
    return found


def write_run(
    folder: Path, rows: Sequence[Example], predictions: Sequence[Prediction], *, name: str = "begin", **config: Any
) -> Path:
    """Writes the folder of an evaluation with metrics and predictions; `config` replaces usual settings."""
    scored = classification_metrics(join_outcomes(rows, {one.id: one for one in predictions}), num_resamples=20).metrics
    metrics = {f"test/{name}/{short}": metric.to_dict() for short, metric in scored.items()}
    lines = [to_line(one, example) for one, example in zip(predictions, rows, strict=True)]
    return make_run(folder, {**EVALUATED, **config}, metrics, {name: lines})
