"""Sets that are decided without the knowledge."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.domains.response_alone import (
    ALL,
    AUTHOR,
    KNOWLEDGE,
    LENGTH,
    WORDS,
    response_alone,
    telling_words,
)


def example(number: int, response: str, hallucinated: bool, **meta: str) -> Example:
    label = HALLUCINATED if hallucinated else FAITHFUL
    return Example(
        id=str(number),
        source="s",
        split="t",
        group=str(number // 2),
        knowledge="k",
        response=response,
        label=label,
        meta=meta,
    )


def made(num: int, response: dict[bool, str], seed: int = 0, **authors: dict[bool, str]) -> list[Example]:
    draw = random.Random(seed)
    found = []
    for i in range(num):
        wrong = draw.random() < 0.5
        words = " ".join(draw.choice("red blue green fox cat dog runs sits".split()) for _ in range(4))
        found.append(
            example(i, f"{words} {response[wrong]}".strip(), wrong, **{k: v[wrong] for k, v in authors.items()})
        )
    return found


def test_a_set_that_its_lengths_decide_is_found_out() -> None:
    found = response_alone(made(80, {True: "and so on and so forth", False: ""}), num_resamples=50)
    assert found[LENGTH].value > 0.95 and found[ALL].value > 0.95
    assert found[KNOWLEDGE].value == 0.5  # every knowledge is as long


def test_a_set_that_a_word_decides_is_found_out_and_the_word_is_named() -> None:
    rows = made(80, {True: "perhaps", False: "surely"})
    assert response_alone(rows, num_resamples=50)[WORDS].value > 0.95
    hallucinated, faithful = telling_words(rows, 1)
    assert "perhaps" in hallucinated[0] and "surely" in faithful[0]


def test_a_set_that_its_authors_decide_is_found_out() -> None:
    rows = made(80, {True: "", False: ""}, model={True: "small", False: "large"})
    assert response_alone(rows, num_resamples=50)[AUTHOR].value > 0.95


def test_a_set_that_only_the_knowledge_decides_is_about_chance() -> None:
    found = response_alone(made(200, {True: "", False: ""}), num_resamples=50)
    assert AUTHOR not in found and 0.35 < found[ALL].value < 0.65


@settings(max_examples=6)
@given(st.lists(st.tuples(st.text(max_size=30), st.booleans()), min_size=1, max_size=12))
def test_any_texts_are_measured_or_left_out(texts: list[tuple[str, bool]]) -> None:
    rows = [example(i, text, wrong) for i, (text, wrong) in enumerate(texts)]
    assert all(0 <= metric.value <= 1 for metric in response_alone(rows, num_resamples=2).values())
    hallucinated, faithful = telling_words(rows)
    assert (hallucinated == faithful == []) or len({wrong for _, wrong in texts}) == 2
