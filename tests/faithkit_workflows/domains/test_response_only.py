"""Labels that can be predicted without the knowledge."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.domains.response_only import (
    ALL,
    AUTHOR,
    KNOWLEDGE,
    LENGTH,
    WORDS,
    measure_response_only,
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


def draw_examples(num: int, response: dict[bool, str], seed: int = 0, **authors: dict[bool, str]) -> list[Example]:
    draw = random.Random(seed)
    found = []
    for i in range(num):
        wrong = draw.random() < 0.5
        words = " ".join(draw.choice("red blue green fox cat dog runs sits".split()) for _ in range(4))
        found.append(
            example(i, f"{words} {response[wrong]}".strip(), wrong, **{k: v[wrong] for k, v in authors.items()})
        )
    return found


@pytest.mark.parametrize(
    ("kind", "response", "meta"),
    [
        (LENGTH, {True: "and so on and so forth", False: ""}, {}),
        (WORDS, {True: "perhaps", False: "surely"}, {}),
        (AUTHOR, {True: "", False: ""}, {"model": {True: "small", False: "large"}}),
    ],
)
def test_features_that_predict_labels_are_found(kind: str, response: dict[bool, str], meta: Any) -> None:
    found = measure_response_only(draw_examples(80, response, **meta), num_resamples=50)
    assert found[kind].value > 0.95 and (found[ALL].value > 0.95 or kind == AUTHOR)
    assert found[KNOWLEDGE].value == 0.5  # all of the same length


def test_labels_that_depend_on_the_knowledge_are_not_predicted() -> None:
    found = measure_response_only(draw_examples(200, {True: "", False: ""}), num_resamples=50)
    assert AUTHOR not in found and 0.35 < found[ALL].value < 0.65


@settings(max_examples=6)
@given(st.lists(st.tuples(st.text(max_size=30), st.booleans()), min_size=1, max_size=12))
def test_any_texts_are_measured_or_left_out(texts: list[tuple[str, bool]]) -> None:
    rows = [example(i, text, wrong) for i, (text, wrong) in enumerate(texts)]
    assert all(0 <= metric.value <= 1 for metric in measure_response_only(rows, num_resamples=2).values())
