"""The report on responses: a detector's verdicts, systems side by side, differences, and the examples to read."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from faithkit.metrics.judge_error import JudgeError
from faithkit.metrics.responses.measure_responses import (
    MetricColumns,
    MetricModels,
    PairedResponses,
    ResponseJudge,
    critic_rate,
    is_fallback,
    measure_responses,
)
from faithkit.metrics.responses.official import OfficialMetrics
from faithkit.pages.page_tables import render_text
from faithkit.records import Example, Prediction, Span, Turn
from faithkit.reports.response_report import choose_responses, judge_report, response_report, systems_table
from faithkit.scores.measures import RESPONSES, kinds_of
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.metric import Metric
from tests.data_modules.examples import example


@pytest.mark.parametrize("name", ["critic_rate", "fallback", "fallback_unanswerable"])
def test_the_interval_of_counted_responses_lies_between_0_and_1(name: str) -> None:
    groups = Groups.of(f"{row // 2}" for row in range(16))
    rare = np.array([1.0, 1.0] + [0.0] * 14)
    columns = MetricColumns(groups=groups, columns={name: rare, "rouge_l": rare}, kinds=kinds_of(RESPONSES))
    metric = columns.evaluation().score(num_resamples=50).metrics
    assert 0 < metric[name].low < metric[name].value < metric[name].high < 1
    assert metric["rouge_l"].low == 0, "the interval of a mean is cut to its range"


def test_a_column_needs_a_declaration() -> None:
    with pytest.raises(ValueError, match="no kind is declared for asks_back"):
        MetricColumns(groups=Groups.of("ab"), columns={"asks_back": np.ones(2)}, kinds=kinds_of(RESPONSES))


FALLBACKS = (
    "I don't know, but it was founded in 1990.",
    "I’m not sure when it opened.",
    "I am just a bot, so I have never eaten it.",
    "Hmm. Not sure, but they have sold millions.",
    "I really do not have any information about that.",
    "I can't say what is best.",
    "I have no idea how old it is!",
    "Sorry, I am unaware of his age.",
    "I've never heard of them. The band began in 1993.",
)
ANSWERED = (
    *("", "I didn't know that! It is an old city.", "Many don't know that it means luck."),
    *("You can't grow them without enough water.", "I'm not sure if you know this, but she won."),
    *("It does not know borders.", "I do know that it is old.", "I'm sure."),
)


def test_texts_that_say_that_they_do_not_know():
    assert [text for text in FALLBACKS if not is_fallback(text)] == []
    assert [text for text in ANSWERED if is_fallback(text)] == []


class Copying:
    """Calls faithful what stands in the knowledge; cannot be read where the response is empty."""

    def __init__(self) -> None:
        self.shown = False

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        self.shown = progress
        for one in examples:
            assert one.spans is None, "marks of the gold response fit no other"
            faithful = one.response in one.knowledge
            label = "unparsed" if not one.response else "faithful" if faithful else "hallucinated"
            yield Prediction(id=one.id, label=label, score=None if faithful else 0.75)


EXAMPLES = [
    example(
        knowledge=f"The {colour} river is long and old.",
        response="It is old.",
        label="hallucinated",
        spans=(Span(start=0, end=2, label="invented"),),
        history=(Turn(speaker="seeker", text="Tell me."), Turn(speaker="wizard", text=f"Of the {colour} one?")),
    )
    for colour in ("red", "blue", "green", "white")
]
ANSWERS = ["The red river is long", "I love music", "", "river is long and old."]


def test_a_detectors_verdicts_become_a_rate_and_scores() -> None:
    found = critic_rate(Copying(), EXAMPLES, ANSWERS)
    np.testing.assert_array_equal(found["critic_rate"], [0.0, 1.0, np.nan, 0.0])
    np.testing.assert_array_equal(found["critic_score"], [np.nan, 0.75, np.nan, np.nan])


class Strict(Copying):
    """Calls a response hallucinated only from 0.8 on; the scores are 0.25 and 0.75."""

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        for one, score in zip(examples, (0.25, 0.75), strict=True):
            yield Prediction(id=one.id, label="faithful", score=score)


def test_the_official_rate_takes_the_likelier_class_whatever_the_threshold() -> None:
    models = MetricModels(detector=Strict(), official=OfficialMetrics())
    columns = measure_responses(EXAMPLES[:2], ANSWERS[:2], models).columns
    assert columns["critic_rate"].tolist() == [0, 0] and columns["official_critic_rate"].tolist() == [0, 1]
    assert "official_critic_rate" not in measure_responses(EXAMPLES[:2], ANSWERS[:2], MetricModels()).columns


def test_judges_stand_beside_the_critic_and_what_they_cannot_read_is_said() -> None:
    models = MetricModels(
        detector=Copying(), others=(ResponseJudge(key="second", name="a second", detector=Copying()),)
    )
    columns = measure_responses(EXAMPLES, ANSWERS, models)
    np.testing.assert_array_equal(columns.columns["second_rate"], columns.columns["critic_rate"])
    assert columns.notes[0] == "critic_rate: 1 of 4 verdicts could not be parsed, and do not count"
    assert "1 of 4 responses are empty" in columns.notes
    assert not measure_responses(EXAMPLES[:2], ANSWERS[:2], models).notes
    assert columns.columns["num_words"].tolist() == [5, 3, 0, 5]


def test_a_judges_own_error_stands_beside_the_rate_that_it_corrects() -> None:
    labelled = [*([(1, 1)] * 45), *([(1, 0)] * 5), *([(0, 1)] * 8), *([(0, 0)] * 32)]
    gold, called = zip(*labelled, strict=True)
    error = JudgeError.of_rows(gold, called, [str(row) for row in range(90)], "90 rows")
    judge = ResponseJudge(key="critic", name="a critic", detector=Copying(), error=error)
    columns = measure_responses(EXAMPLES[:2], ANSWERS[:2], MetricModels(detector=Copying()))
    systems = {"ours": (columns.columns, columns.evaluation().score(num_resamples=20).metrics)}
    report = judge_report([judge], EXAMPLES[:2], systems, title="here", num_resamples=20)
    assert report.metrics["critic_rate_corrected"].value == pytest.approx((0.5 - 0.2) / (0.9 - 0.2))
    shown = render_text(*report.tables)
    assert "55.6 |  58.9" in " ".join(shown.split("people |")[1].split(" ")), "people call 50 of 90 so, the judge 53"


def test_baselines_and_another_system_stand_under_their_names(tmp_path: Path) -> None:
    predictions = {one.id: Prediction(id=one.id, text=text) for one, text in zip(EXAMPLES, ANSWERS, strict=True)}
    copies = {one.id: Prediction(id=one.id, text=one.knowledge) for one in EXAMPLES}
    paired = PairedResponses.of(EXAMPLES, predictions, copies)
    models = MetricModels(detector=Copying())
    scores_path = tmp_path / "run" / "scores" / "a.jsonl"
    report = response_report(paired, models, title="here", scores_path=scores_path, num_resamples=20)
    value = {name: metric.value for name, metric in report.metrics.items()}
    assert value["critic_rate"] == pytest.approx(1 / 3) and value["copy/critic_rate"] == 0
    assert value["gold/critic_rate"] == 1, "'It is old.' stands in no knowledge as it is"
    assert value["against/knowledge_f1"] == value["copy/knowledge_f1"] == 1
    assert value["difference/knowledge_f1"] == pytest.approx(value["knowledge_f1"] - 1)
    assert 0 < value["p_value/knowledge_f1"] <= 1
    rows = [json.loads(line) for line in scores_path.read_text().splitlines()]
    assert [row["id"] for row in rows] == [one.id for one in EXAMPLES] and [row["response"] for row in rows] == ANSWERS
    shown = render_text(*report.tables)
    assert "responses to judge" in shown and "wizard: Of the blue one?" in shown and "seeker" not in shown
    beside = {"scores_path": scores_path.with_name("b.jsonl"), "num_resamples": 20}
    without = response_report(paired, models, title="here", num_examples=0, baselines=[], **beside)
    assert "responses to judge" not in render_text(*without.tables)
    assert not any(name.startswith(("gold/", "copy/")) for name in without.metrics)


def test_unanswerable_turns_are_those_whose_gold_response_falls_back() -> None:
    gold = ["I'm not sure.", "I have no idea.", "It is green.", "Blue."]
    examples = [replace(one, reference=text) for one, text in zip(EXAMPLES, gold, strict=True)]
    said = ["I don't know.", "It is red.", "I am not sure.", "Blue."]
    found = measure_responses(examples, said, MetricModels()).columns
    assert found["fallback"].tolist() == [1, 0, 1, 0]
    np.testing.assert_equal(found["fallback_unanswerable"], [1, 0, np.nan, np.nan])
    np.testing.assert_equal(found["fallback_answerable"], [np.nan, np.nan, 1, 0])


def test_the_reference_is_the_gold_response_where_there_is_one() -> None:
    examples = [replace(one, reference="I love music") for one in EXAMPLES]
    found = measure_responses(examples, ["I love music"] * 4, MetricModels()).columns
    assert found["rouge_1"].tolist() == [1.0] * 4 and found["knowledge_f1"].tolist() == [0.0] * 4


def columns_of(**values: list[float]) -> MetricColumns:
    size = len(next(iter(values.values())))
    columns = {name: np.array(column) for name, column in values.items()}
    groups = Groups.of(str(row) for row in range(size))
    return MetricColumns(groups=groups, columns=columns, kinds=kinds_of(RESPONSES))


def test_half_of_the_examples_to_read_are_the_least_supported_the_rest_spread() -> None:
    support = [0.9, 0.1, 0.8, 0.7, 0.2, 0.6, 0.5, 0.4]
    assert choose_responses(columns_of(knowledge_f1=support), 4) == [1, 4, 0, 5]
    assert choose_responses(columns_of(knowledge_f1=support, critic_score=support), 4) == [0, 2, 1, 5]
    assert choose_responses(columns_of(knowledge_f1=[0.5] * 3, critic_score=[np.nan, 0.3, np.nan]), 2) == [1, 0]
    for limit in (0, 1, 3, 8, 20):
        found = choose_responses(columns_of(knowledge_f1=support), limit)
        assert len(found) == len(set(found)) == min(limit, 8)


def test_a_metric_that_never_varies_is_shown_without_its_interval() -> None:
    metrics = {
        "knowledge_f1": Metric(value=1.0, low=1.0, high=1.0, n=3),
        "coverage": Metric(value=0.5, low=0.25, high=0.75, n=3),
    }
    shown = render_text(systems_table({"gold": metrics, "copy": {}}, title="here"))
    assert "100.0 [" not in shown and "50.0 [25.0, 75.0]" in shown and "n = 3" in shown
