"""Words that are counted: boosted trees on all counts, and the simple rules of overlap and length."""

import subprocess
import sys
import time
from dataclasses import replace
from random import Random
from string import ascii_lowercase
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.baselines.word_features import (
    FEATURES,
    count_features,
    fit_counted_features,
    fit_length,
    fit_overlap,
    length_predictions,
    overlap_predictions,
    unsupported_grams,
    unsupported_share,
)
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit.words import unicode_words
from tests.data_modules.examples import example as make_example

KNOWLEDGE = "The kiwi is a small bird of New Zealand that sleeps by day."
RESPONSES = ("The kiwi is a small bird.", "It lives on Mars with 12 cats!")


def example(id_: str, label: str | None, response: str, **values: str) -> Example:
    return make_example(id=id_, label=label, response=response, **{"group": id_, "knowledge": KNOWLEDGE, **values})


def examples(split: str, num: int) -> list[Example]:
    labels = (FAITHFUL, HALLUCINATED)
    return [
        example(f"{split}{i}", labels[i % 2], RESPONSES[i % 2] + " Yes." * (i % 3), group=f"{split}{i // 2}")
        for i in range(num)
    ]


def counted(knowledge: str, response: str) -> dict[str, float]:
    return dict(zip(FEATURES, count_features([knowledge], [response])[0].tolist(), strict=True))


def test_every_feature_by_hand() -> None:
    found = counted("Ada built 3 boats, not 4.", "In 1990 Bruno built 3 boats, boats.")
    wanted = {
        "response words": 7, "knowledge words": 6, "unknown words": 3, "unknown numbers": 1, "known numbers": 1,
        "unknown names": 1, "unknown pairs": 4, "longest copied run": 3, "copied runs": 2, "longest unknown run": 3,
        "unknown runs": 1, "first unknown place": 0, "repeated words": 1, "negations": 0,
        "negations, response - knowledge": -1, "marks ,": 1, "marks .": 1,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    shares = {
        "words, response / knowledge": 7 / 6, "response characters": 35, "characters a word": 5, "unknown share": 3 / 7,
        # Content words: all but "in", of which boats, built and 3 are known.
        "unknown content words": 2, "unknown content share": 2 / 5, "unknown stop words": 1,
        "knowledge words used, share": 3 / 6, "knowledge content words left out": 2,  # ada and 4; "not" is a stop word
        "unknown pairs, share": 4 / 6, "unknown triples, share": 4 / 5, "common subsequence, share": 3 / 7,
        "last unknown place": 2 / 7, "mean unknown place": 1 / 7, "known names": 0, "first person": 0,
    }  # fmt: skip
    assert {name: found[name] for name in shares} == pytest.approx(shares)
    later = counted("Ada sails.", "Ada, my Ada, sails far away.")
    wanted = {"first unknown place": 1 / 6, "last unknown place": 5 / 6, "mean unknown place": (1 + 4 + 5) / 3 / 6,
              "first person": 1, "known names": 1, "repeated words": 1, "longest unknown run": 2, "unknown runs": 2,
              "marks ,": 2}  # fmt: skip
    assert {name: later[name] for name in wanted} == pytest.approx(wanted)
    same = counted("Ada sails.", "Ada sails.")
    places = [same[f"{which} unknown place"] for which in ("first", "last", "mean")]
    assert places == [1.0, 0.0, 0.5] and same["words, response / knowledge"] == 1


UNKNOWN = [name for name in FEATURES if name.startswith("unknown")]


def test_a_long_knowledge_is_known_to_its_last_word() -> None:
    filler = " ".join(f"filler{i}" for i in range(2_500))
    response = "In May, Ada Byron never built 31 boats."
    before, behind = counted(f"{response} {filler}", response), counted(f"{filler} {response}", response)
    assert not any(behind[name] for name in UNKNOWN), {name: behind[name] for name in UNKNOWN}
    by_place = {"common subsequence, share", "longest copied run", "copied runs"}  # read the first words alone
    assert {name for name in FEATURES if before[name] != behind[name]} == by_place
    assert behind["knowledge words"] == 2_508 and behind["negations, response - knowledge"] == 0


@pytest.mark.parametrize("text", ["In Zürich Émile Ångström aß 3 Äpfel.", "Bu, İstanbul İçin Iğdır.", "Ο ΟΔΟΣ Άρης."])
def test_composed_and_decomposed_text_know_each_other(text: str) -> None:
    for knowledge, response in ((normalize("NFD", text), text), (text, normalize("NFD", text))):
        found = counted(knowledge, response)
        assert not any(found[name] for name in UNKNOWN), {name: found[name] for name in UNKNOWN}
        assert found["known names"] == counted(text, text)["known names"] > 0
        assert unsupported_share(knowledge, response) == 0.0


@pytest.mark.parametrize("response", ["", "...", "日本語 🙂", "a" * 10_000])
def test_any_text_has_finite_features(response: str) -> None:
    assert np.isfinite(count_features([KNOWLEDGE, ""], [response, response])).all()


def test_the_trees_find_what_counting_finds_and_repeat_it() -> None:
    train, test = examples("train", 80), examples("test", 20)
    first, again = (fit_counted_features(train, examples("validation", 20)) for _ in range(2))
    assert first is not None and again is not None
    found = first.predictions(test)
    assert all(found[e.id].label == e.label for e in test) and found == again.predictions(test)


def test_a_class_of_few_rows_is_not_fitted() -> None:
    train = [e for e in examples("train", 200) if e.label == FAITHFUL] + examples("few", 20)
    assert fit_counted_features(train) is None


def test_the_threshold_is_chosen_on_validation() -> None:
    train, validation = examples("train", 80), examples("validation", 20)
    plain = fit_counted_features(train)
    assert plain is not None and plain.threshold == 0.5
    flipped = [validation[0], *(replace(e, label=HALLUCINATED) for e in validation[1:])]  # the threshold has to fall
    fitted = fit_counted_features(train, flipped, aim="f1")
    assert fitted is not None and fitted.threshold <= min(p.score or 0 for p in plain.predictions(validation).values())


def test_the_start_of_a_script_does_not_pay_for_scikit_learn() -> None:
    code = "import sys, faithkit.reports.label_tables; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


EXAMPLES = [
    example("a", "faithful", "The kiwi is a small bird."),
    example("b", "hallucinated", "Penguins love eating fresh kiwi."),
    example("c", "faithful", "New Zealand, a bird!"),
    example("d", "faithful", "A small bird of Zealand I think"),
    example("e", "hallucinated", "I ate one yesterday"),
]


def test_the_share_of_unknown_words_is_counted_word_by_word():
    assert unsupported_share("Kiwis are birds.", "kiwis ARE fish") == pytest.approx(1 / 3)
    assert unsupported_share("", "anything") == 1.0
    assert unsupported_share("Kiwis", " ... ") == 0.0


def test_other_forms_of_a_word_are_known_in_part_by_their_characters():
    known = "The kiwi runs at night."
    assert unsupported_grams(known, "the KIWI, at night!") == pytest.approx(2 / 16)  # "wi a" and "i at" alone
    assert 0 < unsupported_grams(known, "running kiwis") < unsupported_share(known, "running kiwis") == 1
    assert unsupported_grams(known, "at") == 0 and unsupported_grams(known, "a") == 1
    assert unsupported_grams("", "anything") == 1 and unsupported_grams(known, " ... ") == 0


@given(st.text(alphabet="ab ç"), st.text(alphabet="ab ç") | st.text())
def test_unknown_runs_are_those_that_stand_nowhere_in_the_knowledge(knowledge, response):
    known, said = (f" {' '.join(unicode_words(text))} " for text in (knowledge, response))
    runs = [said[place : place + 4] for place in range(max(1, len(said) - 3))]
    plain = 0 if said.isspace() else sum(run not in known for run in runs) / len(runs)
    assert unsupported_grams(knowledge, response) == plain


def test_long_knowledge_is_not_searched_anew_for_each_run():
    letters = "".join(Random(0).choices(ascii_lowercase, k=400_000))
    start = time.process_time()
    assert 0.3 < unsupported_grams(letters[:250_000], letters[250_000:]) < 0.9
    assert time.process_time() - start < 2  # linear, it takes a tenth of that


def test_a_fitted_threshold_parts_what_words_can_part():
    found = overlap_predictions(EXAMPLES, fit_overlap(EXAMPLES))
    assert [p.label == e.label for p, e in zip(found.values(), EXAMPLES, strict=True)] == [True] * 5


@given(responses=st.lists(st.text(), max_size=12))
def test_without_training_examples_at_most_half_are_called_hallucinated(responses):
    examples = [example(str(row), None, response) for row, response in enumerate(responses)]
    found = overlap_predictions(examples)
    assert len(found) == len(examples)
    assert 2 * sum(p.label == "hallucinated" for p in found.values()) <= len(examples)
    assert all(0 <= p.score <= 1 for p in found.values())


def by_length(sizes, wrong):
    return [example(str(n), "hallucinated" if n in wrong else "faithful", "x" * n) for n in sizes]


def test_the_longer_half_is_called_hallucinated_where_no_label_is_known():
    examples = by_length([4, 9, 30, 900], wrong=())
    found = length_predictions(examples)
    assert [p.label for p in found.values()] == ["faithful", "faithful", "hallucinated", "hallucinated"]
    scores = [p.score for p in found.values()]
    assert scores == sorted(scores) and all(0 <= score < 1 for score in scores)
    # Of equal lengths none is longer than the median.
    equal = length_predictions([*by_length([7], ()), example("b", None, "y" * 7)])
    assert {p.label for p in equal.values()} == {"faithful"}


@pytest.mark.parametrize("wrong", [(30, 900), (4, 9)])
def test_a_fitted_length_finds_the_threshold_and_whether_long_or_short_is_wrong(wrong):
    rule = fit_length(by_length([4, 9, 30, 900], wrong))
    assert rule.longer == (900 in wrong)
    tested = by_length([5, 8, 40, 700], wrong=(40, 700) if rule.longer else (5, 8))
    assert [p.label for p in length_predictions(tested, rule).values()] == [e.label for e in tested]
    assert fit_length([]) is None
