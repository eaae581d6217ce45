"""A judge's reasons are scored in the report of its verdicts, where the data has judgements."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules.build import read_benchmark
from data_modules.embedded.layouts import written_layout
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction, Span
from faithkit.statistics.spread import Values
from faithkit_workflows.benchmarks.rationale_scores import Rationale, measure_rationales, read_rationales
from tests.data_modules.examples import example as any_example
from tests.data_modules.official_rows import write
from tests.faithkit.inference.server import ChatServer
from tests.running import asking, evaluate_here, values_of

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
    scored = measure_rationales(rows, **options).evaluation().score(num_resamples=10)  # type: ignore[arg-type]
    return {name: metric.value for name, metric in scored.metrics.items()}


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


BLOCK = {"name": "halludial", "split": "test", "num_rows": None, "on_bad_row": "stop", "options": {}}


@pytest.fixture(scope="module")
def halludial() -> str:
    return written_layout("halludial", {"train": 8, "test": 30})


def example(**changes: Any) -> Example:
    target = 'Yes. "twelve" is wrong.'
    texts = {"knowledge": "Ten.", "response": "It says twelve.", "target": target}
    return any_example(**{"id": "1", "label": HALLUCINATED, **texts, **changes})


def test_the_datasets_own_judgements_score_best(halludial, tiny_bert, tmp_path, capsys) -> None:
    examples = read_benchmark({**BLOCK, "path": halludial}).examples
    rows = [{"id": one.id, "label": one.label, "text": one.target} for one in examples]
    rows[0] |= {"label": UNPARSED, "text": "I cannot tell what this is."}
    file, run = write(tmp_path / "said.jsonl", rows), tmp_path / "run"
    score = [f"benchmark.bert_score.encoder={tiny_bert}", "benchmark.bert_score.baseline=0.5", "verbose=true"]
    where = ["benchmark=halludial", f"benchmark.path={halludial}", f"run_dir={run}"]
    evaluate_here(*where, f"predictions={file}", *score)
    found, shown = values_of(run, "test/halludial/"), capsys.readouterr().out
    size = len(examples)
    assert found["rationale/rouge_l"] == pytest.approx((size - 1) / size)
    assert found["rationale/bertscore_f1"] == pytest.approx((size - 1) / size, abs=1e-3)
    assert found["rationale/bertscore_rescaled"] < found["rationale/bertscore_f1"]
    assert found["rationale/located_rate"] == found["rationale/char_precision"] == 1
    assert "macro_f1" in found and "1 of 30 rows got no readable verdict" in shown
    assert shown.index("explanations against the dataset") < shown.index("predictions to judge")


def test_verdicts_alone_have_no_rationale_and_load_no_encoder(halludial: str, tmp_path: Path) -> None:
    with ChatServer(tells={"Yes": 0.7, "No": 0.3}) as server:
        engine = asking(server.url)
        where = [f"benchmark.path={halludial}", f"run_dir={tmp_path / 'run'}", "benchmark.bert_score.encoder=no/such"]
        evaluate_here("benchmark=halludial", *where, *engine)
    assert not any("/rationale/" in name for name in values_of(tmp_path / "run"))


def test_rows_that_lack_a_side_are_counted() -> None:
    examples = [example(id=str(number)) for number in range(3)] + [example(id="3", target=None)]
    said = {
        "0": Prediction(id="0", label=HALLUCINATED, text='Yes. "twelve" and "a fox" are wrong.'),
        "1": Prediction(id="1", label=FAITHFUL),
        "2": Prediction(id="2", label=UNPARSED, text="the server said nothing"),
        "3": Prediction(id="3", label=FAITHFUL, text="No, it says so."),
    }
    rows, notes = read_rationales(examples, said)
    assert len(notes) == 3 and all(note.startswith("1 of 4 rows ") for note in notes)
    assert [(row.reply, row.num_quoted, row.num_located) for row in rows] == [(said["0"].text, 2, 1), ("", 0, 0)]


@pytest.mark.parametrize(
    ("changes", "gold"),
    [
        ({"spans": (Span(start=0, end=2, label="x"),)}, [(0, 2)]),
        ({}, [(8, 14)]),
        ({"label": FAITHFUL, "target": "No."}, []),
        ({"target": 'Yes. "a red fox" is wrong.'}, None),
        ({"target": "Yes, all of it."}, None),
    ],
)
def test_gold_spans_are_the_datasets_or_those_that_its_judgement_quotes(changes, gold) -> None:
    (found,), _ = read_rationales([example(**changes)], {"1": Prediction(id="1", label=FAITHFUL, text="No, it is so.")})
    assert (None if found.gold is None else [(span.start, span.end) for span in found.gold]) == gold
