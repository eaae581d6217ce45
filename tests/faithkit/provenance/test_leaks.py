"""Test rows that a model has seen are found."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faithkit.files.run_folder import RunFolder
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.seen_rows import CALIBRATED, CHOSEN, TRAINED, SeenRows, find_leaks
from faithkit.provenance.used_model import UsedModel
from faithkit.records import Example, Prediction
from faithkit.reports.perplexity_report import perplexity_report
from faithkit.reports.report import Provenance
from faithkit.reports.suppression_report import report_suppression


def row(number: int, group: str, knowledge: str, split: str = "test") -> Example:
    texts = {"knowledge": knowledge, "response": f"Response {number}."}
    return Example(id=f"{group}:{number}", source="wow", split=split, group=group, **texts)


TEST = [row(0, "a", "Stone."), row(1, "a", "Water."), row(2, "b", "Bread."), row(3, "c", "Bread."), row(4, "d", "Ink.")]


NOTHING = {"rows": 0, "knowledge": 0, "groups": 0}


@pytest.mark.parametrize(
    ("uses", "counts", "rows"),
    [
        ({TRAINED: row(0, "x", "Gold."), CHOSEN: row(1, "a", "Silver.", split="train")}, {}, []),
        # A row takes its group along, and knowledge the rows that have it; another turn leaks its dialogue.
        ({TRAINED: row(0, "x", "STONE", split="train")}, {TRAINED: {"rows": 1, "knowledge": 1, "groups": 1}}, [0, 1]),
        ({CHOSEN: row(9, "x", "bread")}, {CHOSEN: NOTHING | {"knowledge": 1}}, [2, 3]),
        ({CALIBRATED: row(9, "a", "Silver.")}, {CALIBRATED: NOTHING | {"groups": 1}}, [0, 1]),
    ],
)
def test_rows_leak_by_themselves_their_knowledge_and_their_group(
    uses: dict[str, Example], counts: dict[str, dict[str, int]], rows: list[int]
) -> None:
    leaks = find_leaks(TEST, SeenRows.of({use: [row_keys([seen])] for use, seen in uses.items()}))
    of_uses = dict.fromkeys((TRAINED, CHOSEN, CALIBRATED), NOTHING) | counts
    assert leaks.to_dict() == {"of": {"rows": 5, "knowledge": 4, "groups": 4}, **of_uses}
    assert leaks.rows.nonzero()[0].tolist() == rows


def origin_of(name: str, examples: list[Example], trained_on: list[Example]) -> Provenance:
    model = UsedModel(
        role="checkpoint", path="runs/x", find_seen=lambda: SeenRows.of({TRAINED: [row_keys(trained_on)]})
    )
    return Provenance.of(name, examples, [model])


def test_of_a_model_of_which_nothing_is_known_no_row_counts_as_seen() -> None:
    unknown = UsedModel(role="judge", path="a server", reason="it is not ours")
    origin = Provenance.of("wow", TEST, [unknown])
    assert not origin.leaked.any()
    assert origin.lines[1:] == ("leaks: unknown for judge a server: it is not ours",)


def test_suppression_chooses_among_the_rows_that_are_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The clean sources have no hallucination; the leaked one has nothing else."""
    labels = [("a", "hallucinated"), ("b", "faithful"), ("c", "faithful")]
    examples = [
        replace(row(number, group, f"Knowledge {group}."), label=label, meta={"model": f"model {number}"})
        for group, label in labels
        for number in range(2)
    ]
    said = [Prediction(id=example.id, label="faithful", score=0.1) for example in examples]
    origin, groups = origin_of("suppression", examples, examples[:1]), {"all": None}
    run = RunFolder(tmp_path)
    options: dict[str, Any] = {"groups": groups, "meta": {}, "num_resamples": 20}
    metrics = report_suppression(run, examples, said, origin=origin, **options)
    assert metrics["test/suppression/all/random/hallucination_rate"].value == pytest.approx(1 / 3)
    left = metrics["test/suppression/without_leaked/all/random/hallucination_rate"]
    assert left.value == 0 and left.n == 2
    assert "2 of 6 rows are not new to runs/x" in capsys.readouterr().out
    origin = origin_of("suppression", examples, examples)
    metrics = report_suppression(run, examples, said, origin=origin, **options)
    assert not any("without_leaked" in name for name in metrics)
    assert "no row is new" in capsys.readouterr().out


def test_a_generators_perplexity_is_given_for_the_rows_that_are_left() -> None:
    rows = np.array([[float(place), 1.0, 1.0] for place in range(len(TEST))])
    origin = origin_of("wow", TEST, TEST[:1])
    report = perplexity_report(TEST, rows, {}, title="test/wow", num_resamples=20, origin=origin)
    assert report.metrics["loss"].value == pytest.approx(2.0)
    assert report.metrics["without_leaked/loss"].value == pytest.approx(3.0)  # of rows 2 to 4
    assert report.facts["models"][0]["leaks"][TRAINED]["groups"] == 1
