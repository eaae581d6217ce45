import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.suppression import rerank, suppression_metrics, tied_candidates
from faithkit.pages.page_tables import render_text
from faithkit.records import Prediction, Span
from faithkit.reports.part_reports import report_suppression, suppression_table
from faithkit.settings.config_files import STRATEGIES
from tests.data_modules.examples import example

PAIR = ("Llama-2-7B-chat", "mistral-7B-instruct")


def said(id_="a", spans=(), score=None, label=None):
    marks = tuple(Span(start=start, end=end, label="hallucination") for start, end in spans)
    return Prediction(id=id_, label=label or ("hallucinated" if marks else "faithful"), score=score, spans=marks)


def answer(id_, source, model, wrong):
    label = "hallucinated" if wrong else "faithful"
    return example(id=id_, group=source, response="x" * 20, label=label, meta={"model": model})


def test_the_fewest_spans_win_then_the_probability_where_asked():
    two, one, none = said(spans=[(0, 2), (4, 6)]), said(spans=[(0, 9)]), said()
    assert tied_candidates([said(score=0.4), said(score=0.1)], "fewest") == [0, 1]
    assert tied_candidates([said(score=0.4), said(score=0.1), said(score=0.1)], "fewest_by_score") == [1, 2]
    assert rerank([two, one, none]) == 2 and rerank([two, one]) == 1
    assert rerank([said(score=0.4), said(score=0.1), said(score=0.1)]) == 1
    assert rerank([two, two]) == 0
    assert rerank([none, said(score=0.9)]) == 1  # a score that is known goes before one that is not


def test_no_response_is_chosen_where_all_have_spans_and_none_may_have():
    one = said(spans=[(0, 2)], score=0.3)
    assert rerank([one, said(spans=[(0, 2)])], "none") is None
    assert rerank([one, said(score=0.4), said(score=0.2)], "none_by_score") == 2
    assert tied_candidates([one, said(score=0.4), said(score=0.2)], "none") == [1, 2]


def test_overlapping_spans_count_as_one_and_a_label_without_spans_as_one():
    two, overlapping = said(spans=[(0, 5), (5, 8)]), said(spans=[(0, 5), (3, 8), (3, 8), (9, 9)])
    labels = [said(label=label) for label in ("hallucinated", "unparsed")]
    assert tied_candidates([two, overlapping, *labels], "fewest") == [1, 2, 3]
    assert tied_candidates([*labels, said(label="faithful")], "fewest") == [2]
    critic = [said(score=0.8, label="hallucinated"), said(score=0.6, label="hallucinated")]
    assert rerank(critic) == 1 and rerank(critic, "none") is None


def test_an_unknown_strategy_or_nothing_to_choose_from_is_explained():
    with pytest.raises(UserError, match="unknown strategy 'best'"):
        rerank([said()], "best")
    with pytest.raises(UserError, match="no response"):
        rerank([])


SOURCES = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.sampled_from([0.1, 0.5, 0.9])), min_size=2, max_size=3),
    min_size=1,
    max_size=8,
)


@given(sources=SOURCES)
def test_rates_are_expectations_of_choosing_by_hand_with_ties_drawn_at_random(sources):
    examples, predictions = [], {}
    chosen = {strategy: [] for strategy in STRATEGIES}
    random_rates, random_where_valid, floors = [], [], []
    for number, rows in enumerate(sources):
        for model, (wrong, count, score) in enumerate(rows):
            id_ = f"{number}:{model}"
            examples.append(answer(id_, f"{number}", f"m{model}", wrong))
            predictions[id_] = said(id_, [(5 * i, 5 * i + 3) for i in range(count)], score)
        rate = sum(row[0] for row in rows) / len(rows)
        random_rates.append(rate)
        floors.append(all(row[0] for row in rows))
        fewest = min(row[1] for row in rows)
        tied = [row for row in rows if row[1] == fewest]
        surest = [row for row in tied if row[2] == min(row[2] for row in tied)]
        for name, kept in (("fewest", tied), ("fewest_by_score", surest)):
            chosen[name].append(sum(row[0] for row in kept) / len(kept))
        if fewest == 0:
            chosen["none"].append(chosen["fewest"][-1])
            chosen["none_by_score"].append(chosen["fewest_by_score"][-1])
            random_where_valid.append(rate)
    metrics = suppression_metrics(examples, predictions, num_resamples=10).metrics
    before = sum(random_rates) / len(random_rates)
    assert metrics["random/hallucination_rate"].value == pytest.approx(before)
    assert metrics["perfect/hallucination_rate"].value == pytest.approx(sum(floors) / len(floors))
    for strategy, picks in chosen.items():
        if not picks:
            assert f"{strategy}/hallucination_rate" not in metrics
            continue
        rate = sum(picks) / len(picks)
        assert metrics[f"{strategy}/hallucination_rate"].value == pytest.approx(rate)
        assert metrics[f"{strategy}/hallucination_rate"].n == len(picks)
        if before:
            assert metrics[f"{strategy}/relative_reduction"].value == pytest.approx(1 - rate / before)
    assert metrics["marks_nothing/hallucination_rate"].value == pytest.approx(before)
    if sum(random_where_valid):
        same = sum(random_where_valid) / len(random_where_valid)
        expected = 1 - sum(chosen["none"]) / len(chosen["none"]) / same
        assert metrics["none/relative_reduction_same_sources"].value == pytest.approx(expected)
    assert metrics["perfect/hallucination_rate"].value <= metrics["fewest/hallucination_rate"].value + 1e-12
    for name, metric in metrics.items():
        assert metric.low <= metric.value <= metric.high
        assert not name.endswith("rate") or 0 <= metric.low <= metric.high <= 1


def corpus():
    examples, predictions = [], {}
    for source in range(12):
        for place, model in enumerate((*PAIR, "third")):
            id_ = f"{source}:{place}"
            wrong = (source + place) % 3 == 0
            examples.append(answer(id_, f"s{source}", model, wrong))
            predictions[id_] = said(id_, [(0, 4)] if wrong else [], 0.5)
    examples.append(answer("lone", "s99", PAIR[0], True))
    predictions["lone"] = said("lone", [(0, 4)])
    return examples, predictions


def test_only_the_named_models_are_chosen_from_and_lone_responses_are_said():
    examples, predictions = corpus()
    scored = suppression_metrics(examples, predictions, models=[m.upper() for m in PAIR], num_resamples=10)
    assert scored.metrics["random/hallucination_rate"].n == 12
    assert scored.metrics[f"from/{PAIR[0]}/hallucination_rate"].value == pytest.approx(4 / 12)
    assert scored.metrics["fewest/hallucination_rate"].value == 0.0
    assert scored.metrics["fewest/relative_reduction"].value == 1.0
    assert not any("third" in name for name in scored.metrics)
    assert "1 of 13 sources have a single response: left out" in scored.notes
    with pytest.raises(UserError, match=r"(?s)no response is by 'gpt-5'.*responses by .*third"):
        suppression_metrics(examples, predictions, models=["gpt-5", "third"])
    with pytest.raises(UserError, match="no source has two responses"):
        suppression_metrics(examples, predictions, models=["third"])


def test_the_table_has_the_papers_figures_under_ours_and_the_numbers_are_kept(tmp_path, capsys):
    examples, predictions = corpus()
    groups = {"pair": list(PAIR), "gone": ["gpt-4-0613", "gpt-3.5-turbo-0613"], "all": None}
    options = {"groups": groups, "strategies": ["random", "fewest", "none"], "meta": {}, "num_resamples": 10}
    report_suppression(RunFolder(tmp_path), examples, list(predictions.values()), **options)
    found = json.loads((tmp_path / "metrics.json").read_text())["metrics"]
    assert found["test/suppression/pair/fewest/relative_reduction"]["value"] == 1.0
    assert found["test/suppression/all/none/hallucination_rate"]["n"] == 12
    shown = capsys.readouterr().out
    for part in ("gone is left out", "51.8", "55.1", "326", "no detected span"):
        assert part in shown, part
    assert re.search(r"paper +\| +450 \| +43\.1 \| +21\.8", shown)
    assert shown.count("    paper ") == 5
    assert all(len(line) <= 80 for line in shown.splitlines() if line[:1] in "+|")
    with pytest.raises(UserError, match="no group of models"):
        report_suppression(RunFolder(tmp_path), examples, [], groups={"gone": ["x"]}, meta={})


def test_a_figure_of_the_paper_that_contradicts_its_own_rates_is_said():
    examples, predictions = corpus()
    spelt = {PAIR[0]: "gpt-4-0613", PAIR[1]: "gpt-3.5-turbo-0613", "third": "third"}
    renamed = [answer(e.id, e.group, spelt[e.meta["model"]], e.label == "hallucinated") for e in examples]
    metrics = suppression_metrics(renamed, predictions, models=list(spelt.values())[:2], num_resamples=5).metrics
    shown = render_text(suppression_table({"p": metrics}, title="t"), width=120)
    assert "prints a reduction of 41.0 where its rates give 49.0" in shown


def test_names_of_models_cannot_steer_the_terminal():
    examples, predictions = corpus()
    odd = [answer(e.id, e.group, "\x1b[31m[bold]" + e.meta["model"], False) for e in examples]
    metrics = suppression_metrics(odd, predictions, num_resamples=5).metrics
    text = render_text(suppression_table({"[red]\x1b": metrics}, title="t"))
    assert "\x1b" not in text and "[red]\\x1b" in text


def test_no_reduction_is_above_all_of_it_and_one_of_few_sources_is_as_unsure_as_its_rate():
    examples, predictions = [], {}
    for source in range(40):
        for place, model in enumerate(PAIR):
            id_ = f"{source}:{place}"
            examples.append(answer(id_, f"s{source}", model, wrong=source < 12 and place == source % 2))
            predictions[id_] = said(id_, [] if (source, place) in ((3, 0), (4, 1)) else [(0, 4 + 6 * (place != 0))])
    scored = suppression_metrics(examples, predictions, num_resamples=50)
    for name, metric in scored.metrics.items():
        if "reduction" in name and not name.startswith("marks_nothing"):
            assert metric.low < metric.value and metric.value <= metric.high <= 1, (name, metric)
    none, rate = (scored.metrics[f"none/{name}"] for name in ("relative_reduction", "hallucination_rate"))
    assert (none.value, none.n, rate.value) == (1, 2, 0)
    before = scored.metrics["random/hallucination_rate"].value
    assert none.low < -2 and none.low == pytest.approx(1 - rate.high / before)
    assert "none: 2 of 40 sources have such a response: its intervals are rough" in scored.notes
    assert not any(note.startswith("fewest:") for note in scored.notes)
