"""Pairs of knowledge and response: windows that read all of it, either order, and the targets."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.encoding.pair_encoder import KNOWLEDGE, RESPONSE, PairEncoder, target_of
from data_modules.encoding.sequence_layout import RESPONSE_FIRST
from faithkit.errors import UserError
from tests.data_modules.examples import example
from tests.tiny import tiny_tokenizer, words

KINDS = ("wordpiece", "bpe")


@pytest.mark.parametrize("kind", KINDS)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=4),
    order=st.sampled_from(["knowledge_response", RESPONSE_FIRST]),
)
@settings(max_examples=25)
def test_windows_read_all_knowledge_beside_the_response(kind: str, sizes: list[tuple[int, int]], order: str) -> None:
    made = PairEncoder(tokenizer=tiny_tokenizer(kind), max_length=32, order=order)
    columns: dict[str, Any] = dict(made.encode_texts([words(k, 3) for k, _ in sizes], [words(r) for _, r in sizes]))
    windows = made.windows(columns)
    batch = made.collate_windows(columns, windows)
    assert batch["attention_mask"].sum(1).tolist() == windows.lengths.tolist() and windows.lengths.max() <= 32
    for row in range(len(sizes)):
        knowledge, response = columns["knowledge"].row(row), columns["response"].row(row)
        of_row = np.flatnonzero(windows.row == row)
        starts, lengths = windows.start[of_row], windows.size[of_row]
        assert starts[0] == 0 and starts[-1] + lengths[-1] == len(knowledge), "from the beginning to the end"
        assert len(of_row) == 1 or (np.diff(starts) <= (lengths[:-1] + 1) // 2).all(), "neighbours overlap by half"
        assert set(np.diff(starts)[:-1]) <= {lengths[0] // 2}, "and by no more, but for the last"
        assert len(of_row) == 1 or starts[-2] + lengths[-2] < len(knowledge), "and no window is in vain"
        for number in of_row:
            shown = knowledge[windows.start[number] :][: windows.size[number]].tolist()
            texts = [shown, response[: min(len(response), (32 - made.template.num_special) // 2)].tolist()]
            first, second = texts[::-1] if order == RESPONSE_FIRST else texts
            wanted = [*made.template.prefix, *first, *made.template.middle, *second, *made.template.suffix]
            assert batch["input_ids"][number][: len(wanted)].tolist() == wanted


@pytest.mark.parametrize("order", ["knowledge_response", RESPONSE_FIRST])
def test_a_batch_says_which_text_each_place_belongs_to(order: str) -> None:
    made = PairEncoder(tokenizer=tiny_tokenizer("wordpiece"), max_length=32, order=order)
    rows = [example(knowledge=words(60), response=words(3, 1)), example(knowledge="river", response="it is long")]
    counts: Counter[str] = Counter()
    columns: dict[str, Any] = dict(made.encode(rows, counts))
    batch = made.collate(columns)
    assert columns["length"].tolist() == batch["attention_mask"].sum(1).tolist() == [32, 7]
    assert +counts == {"truncated: knowledge": 1}
    for row, sizes in enumerate([(26, 3), (1, 3)]):
        place = {name: batch["segment"][row] == value for name, value in (("k", KNOWLEDGE), ("r", RESPONSE))}
        for (name, mask), size in zip(place.items(), sizes, strict=True):
            text = columns["knowledge" if name == "k" else "response"].row(row)[:size]
            assert batch["input_ids"][row][mask].tolist() == text.tolist() and mask.sum() == size


def test_training_reads_the_parts_of_long_knowledge_that_predictions_read() -> None:
    made = PairEncoder(tokenizer=tiny_tokenizer("wordpiece"), max_length=32, max_windows=1)
    rows = [example(knowledge=words(60) + " music " + words(60), response="music"), example(knowledge="river")]
    columns: dict[str, Any] = dict(made.encode(rows, Counter()))
    trained, read = made.collate(columns), made.collate_windows(columns, made.windows(columns))
    assert trained["input_ids"].tolist() == read["input_ids"].tolist()
    every = PairEncoder(tokenizer=made.tokenizer, max_length=32).collate(columns)
    assert every["input_ids"][0].tolist() != trained["input_ids"][0].tolist(), "without max_windows the beginning"


def test_a_text_that_just_fits_is_not_counted_as_cut() -> None:
    made, counts = PairEncoder(tokenizer=tiny_tokenizer("wordpiece"), max_length=32), Counter[str]()
    made.encode([example(knowledge=words(15), response=words(14))], counts)
    assert not +counts
    made.encode([example(knowledge=words(16), response=words(14))], counts)
    assert +counts == {"truncated: knowledge": 1}
    made.encode([example(knowledge="river", response=words(15))], counts)
    assert +counts == {"truncated: knowledge": 1, "truncated: response": 1}


def test_targets_are_labels_or_the_probability_of_a_weak_one() -> None:
    rows = [
        *(example(label=label) for label in ("hallucinated", "faithful", None)),
        example(meta={"probability": 0.25}),
    ]
    wanted = pytest.approx([1.0, 0.0, float("nan"), 0.25], nan_ok=True)
    made = PairEncoder(tokenizer=tiny_tokenizer("wordpiece"), max_length=32)
    batch = made.collate(dict(made.encode(rows, Counter())))
    assert batch["label"].tolist() == [1, 0, -1, 0] and batch["target"].tolist() == wanted
    with pytest.raises(AssertionError, match=r"probability 1\.5"):
        target_of(example(meta={"probability": 1.5}))


def test_settings_that_cannot_be_are_explained_and_the_smallest_work() -> None:
    tokenizer = tiny_tokenizer("wordpiece")
    with pytest.raises(UserError, match=r"model\.order is 'middle'"):
        PairEncoder(tokenizer=tokenizer, max_length=32, order="middle")
    with pytest.raises(UserError, match=r"model\.max_length is 10"):
        PairEncoder(tokenizer=tokenizer, max_length=10)
    made = PairEncoder(tokenizer=tokenizer, max_length=11)
    (ids,) = made.collate(dict(made.encode([example(knowledge=words(9), response=words(9))], Counter())))["input_ids"]
    assert len(ids) == 11
