"""A judge's reasons, measured against the dataset's judgements by hand-made rows."""

from collections.abc import Sequence

import numpy as np
import pytest

from faithkit.metrics.rationales import Rationale, measure_rationales
from faithkit.pages.page_tables import render_text
from faithkit.records import Span
from faithkit.statistics.spread import Values
from faithkit_workflows.benchmarks.rationale_scores import LeftOut, rationale_report

TARGET = 'Yes. "twelve" is wrong: the knowledge says ten.'


class SetScorer:
    """A BERTScore of 0.9 for equal texts and of 0.5 for all others."""

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> dict[str, Values]:
        f1 = np.array([0.9 if one == other else 0.5 for one, other in zip(responses, knowledge, strict=True)])
        return {"bertscore_precision": f1, "bertscore_recall": f1, "bertscore_f1": f1}


def row(number: int, said: str, *, spans: tuple[tuple[int, int], ...] = (), **changes: object) -> Rationale:
    found = tuple(Span(start=start, end=end, label="x") for start, end in spans)
    values = {"group": str(number), "reply": said, "target": TARGET, "hallucinated": True, "spans": found}
    return Rationale(**{**values, **changes})  # type: ignore[arg-type]


def values(rows: Sequence[Rationale], **options: object) -> dict[str, float]:
    scored = measure_rationales(rows, **options).scored(num_resamples=10)  # type: ignore[arg-type]
    return {name: metric.value for name, metric in scored.metrics.items()}


def test_an_equal_reply_has_the_best_value_and_an_empty_one_none() -> None:
    found = values([row(1, TARGET), row(2, "")])
    assert found["rouge_l"] == pytest.approx(0.5)
    assert 0 < found["bleu_4"] < 1, "the corpus is half as long as it should be"
    assert values([row(1, TARGET)])["bleu_4"] == pytest.approx(1)


def test_rescaling_puts_the_f1_of_unrelated_sentences_at_zero() -> None:
    found = values([row(1, TARGET), row(2, "No.")], scorer=SetScorer(), baseline=0.8)
    assert found["bertscore_f1"] == pytest.approx(0.7)
    assert found["bertscore_rescaled"] == pytest.approx(((0.9 - 0.8) + (0.5 - 0.8)) / 2 / 0.2)
    assert "bertscore_rescaled" not in values([row(1, TARGET)], scorer=SetScorer())


def test_quotes_count_by_the_part_and_spans_by_the_character() -> None:
    gold = (Span(start=0, end=10, label="x"),)
    rows = [
        row(1, TARGET, num_quoted=3, num_located=1, spans=((5, 15),), gold=gold),
        row(2, TARGET, num_quoted=1, num_located=1, spans=((0, 99),)),  # its gold spans are not known
    ]
    found = values(rows)
    assert found["located_rate"] == pytest.approx(2 / 4)
    assert values(rows[1:])["located_rate"] == 1 and "located_rate" not in values([row(1, TARGET)])
    assert [found[f"char_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx([0.5, 0.5, 0.5])


def test_the_report_has_the_hallucinated_rows_by_themselves_and_the_papers_figures() -> None:
    rows = [row(number, TARGET) for number in range(3)] + [row(9, "Yes", target="No.", hallucinated=False)]
    left = LeftOut(rows=9, without_target=2, without_reply=3, unparsed=1)
    report = rationale_report(rows, left, dataset="halludial", num_resamples=10)
    assert report.metrics["rationale/rouge_l"].value == pytest.approx(0.75)
    assert report.metrics["rationale/hallucinated_rouge_l"].value == pytest.approx(1)
    assert report.metrics["rationale/rouge_l"].high <= 1  # type: ignore[operator]
    shown = render_text(*report.tables)
    assert "77.4" in shown and "HalluJudge *" in shown and "75.0 [" in shown
    assert "\n ROUGE-L" in shown and "\n BERTScore" not in shown, "nothing was compared so"
    faithful = rationale_report(rows[3:], left, dataset="halludial", num_resamples=10)
    assert not any("hallucinated" in name for name in faithful.metrics)
    assert [note.split(" ")[0] for note in report.notes[:3]] == ["2", "3", "1"]
    assert not any("groups" in note for note in report.notes), "it is said of the labels already"
