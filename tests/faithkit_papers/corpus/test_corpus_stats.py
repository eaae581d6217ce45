import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.packages import install_hint
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from faithkit_papers.corpus.corpus_rows import CorpusRows, begin_class, speech_acts
from faithkit_papers.corpus.corpus_stats import compute_corpus_stats, make_buckets


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        (("Hallucination",), "hallucination"),
        (("Hallucination", "Entailment"), "partial hallucination"),
        (("partial hallucination",), "partial hallucination"),
        (("entailment", "uncooperative"), "uncooperative"),
        (("uncooperative",), "uncooperative"),
        (("Entailment",), "entailment"),
        (("Generic",), "generic"),
        (("generic", "hallucination"), "hallucination"),
        (("Evident Conflict",), None),
        ((), None),
    ],
)
def test_a_response_has_one_class(tags: tuple[str, ...], name: str | None) -> None:
    assert begin_class(tags) == name


@pytest.mark.parametrize(
    ("spelt", "acts"),
    [
        (["edificaiton", "ack."], ["edification", "acknowledgment"]),
        (["disclsoure", "dislcosure"], ["disclosure"]),
        (["acknowledgment. disclosure"], ["acknowledgment", "disclosure"]),
        (["advice"], ["advisement"]),
        (["e", "d", "i", "f"], []),  # a word that a file has letter by letter
        (None, []),
        ("Question", ["question"]),
    ],
)
def test_speech_acts_are_read_through_misspellings(spelt: object, acts: list[str]) -> None:
    assert speech_acts(spelt) == acts


def example(id_, response="one two three four", spans=(), task="QA", model="m", knowledge="a b c", group=None, **meta):
    marked = None if spans is None else tuple(Span(start=s, end=e, label=label) for s, e, label in spans)
    meta = {name: value for name, value in {"task": task, "model": model, **meta}.items() if value is not None}
    label = None if spans is None else HALLUCINATED if spans else FAITHFUL
    values = {"id": id_, "source": "corpus", "split": "test", "group": group or id_, "knowledge": knowledge}
    return Example(**values, response=response, label=label, spans=marked, meta=meta)


CONFLICT, BASELESS = (0, 3, "evident_conflict"), (4, 7, "subtle_baseless")
CORPUS = [
    example("a", spans=(CONFLICT, BASELESS), group="x"),
    example("b", group="x", model="n"),
    example("c", response="one", spans=(CONFLICT,), knowledge="a b c d e", model="n"),
    example("d", response="one two", task="Summary", corpus="CNN/DM"),
    example("e", response="one two", spans=(BASELESS,), task="Summary", corpus="Recent News"),
]


def test_a_corpus_is_counted_as_by_hand():
    stats = compute_corpus_stats(CorpusRows(CORPUS))
    assert list(stats.basic) == ["QA", "Summary (CNN/DM)", "Summary (Recent News)", "all"]
    qa = stats.basic["QA"]
    assert (qa.num_sources, qa.counts.num_responses, qa.counts.num_hallucinated, qa.counts.num_spans) == (2, 3, 2, 3)
    assert (qa.context.mean, qa.context.max) == (4, 5)  # a source counts once, however many answer
    assert (qa.response.mean, qa.response.max) == (3, 4)
    assert stats.basic["all"].counts.num_spans == 4
    assert stats.types == {
        "QA": {"evident_conflict": 2, "subtle_baseless": 1},
        "Summary (CNN/DM)": {},
        "Summary (Recent News)": {"subtle_baseless": 1},
    }


def test_density_is_spans_per_hundred_words_by_generator_and_task():
    stats = compute_corpus_stats(CorpusRows(CORPUS))
    assert stats.models["n"]["QA"].density == pytest.approx(100 * 1 / 5)
    assert stats.models["m"]["all"].density == pytest.approx(100 * 3 / 8)
    assert set(stats.models["n"]) == {"QA"}  # one task is all there is


def places(*rows):
    return compute_corpus_stats(CorpusRows(rows)).positions["QA"]


def test_where_spans_lie_sums_to_one_and_long_spans_spread():
    half = places(example("a", "12345678", [(0, 4, "x")]))
    assert half[:25] == pytest.approx([1 / 25] * 25) and not any(half[25:])
    both = places(example("a", "12345678", [(6, 8, "x")]), example("b", "1234", [(0, 4, "x")]))
    assert sum(both) == pytest.approx(1)
    assert both[0] == pytest.approx(0.5 / 50) and both[49] == pytest.approx(0.5 / 50 + 0.5 / 12.5)
    assert places(example("a")) == [0.0] * 50


def in_buckets(rows):
    return make_buckets(CorpusRows(rows).to_frame(), "response_words")


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_buckets_of_length_take_every_response_once(lengths):
    found = in_buckets([example(str(place), "w " * length) for place, length in enumerate(lengths)])
    assert sum(bucket.counts.num_responses for bucket in found) == len(lengths)
    for place, bucket in enumerate(found):
        inside = [n for n in lengths if bucket.low < n <= bucket.high or (place == 0 and n == bucket.low)]
        assert len(inside) == bucket.counts.num_responses
        assert sum(inside) == bucket.counts.num_words


def test_equally_many_responses_lie_in_each_bucket():
    found = in_buckets([example(str(n), "w " * n) for n in range(1, 101)])
    assert [(bucket.low, bucket.high) for bucket in found] == [(1, 20), (20, 40), (40, 60), (60, 80), (80, 100)]
    assert {bucket.counts.num_responses for bucket in found} == {20}


def test_any_corpus_of_spans_will_do():
    plain = [example("a", spans=(CONFLICT,), task=None, model=None), example("b", spans=None, task=None, model=None)]
    stats = compute_corpus_stats(CorpusRows(plain))
    assert list(stats.basic) == ["corpus"]
    assert stats.models == {}
    assert stats.num_unmarked == 1
    assert json.loads(json.dumps(stats.to_dict()))["basic"]["corpus"]["counts"]["share"] == 1
    assert not compute_corpus_stats(CorpusRows(plain[1:])).has_spans
    with pytest.raises(UserError, match="there is no example to describe"):
        compute_corpus_stats(CorpusRows([]))


def test_a_table_without_pandas_says_what_to_install(monkeypatch):
    for name in ["pandas", *(name for name in sys.modules if name.startswith("pandas."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError) as raised:
        CorpusRows().to_frame()
    assert raised.value.hint == install_hint("pandas")
