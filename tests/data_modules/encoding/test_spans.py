"""Windows that lose nothing, padded or packed, and the tags of each answer's tokens."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_modules.build import build_source
from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.encoding.batching import Batches
from data_modules.encoding.span_encoder import SpanEncoder
from data_modules.splits import MixPart, SplitPlan
from faithkit.records import SPAN_TYPES, Example, Span
from tests.data_modules.examples import example
from tests.tiny import tiny_tokenizer, words

KINDS = ("wordpiece", "bpe", "unigram")


def encoder(kind: str = "wordpiece", **options: Any) -> SpanEncoder:
    return SpanEncoder(tokenizer=tiny_tokenizer(kind), **{"max_length": 48, **options})


SIZES = st.sampled_from([0, 1, 5, 30, 47, 48, 49, 200])
TEXTS = st.tuples(SIZES, SIZES, st.sampled_from([1, 2, 20, 48, 130])).map(
    lambda sizes: (words(sizes[0], 3), words(sizes[1], 9) or "x", words(sizes[2]))
)


def places_of(batch: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    """Reads back each window: all its ids, those of context and answer, and the answer tokens' numbers."""
    ids, taken, found = batch["input_ids"].ravel(), 0, []
    for number, (context, context_end, answer, answer_end) in enumerate(batch["bounds"].tolist()):
        token = batch["token"][taken : taken + answer_end - answer]
        taken += answer_end - answer
        if "window_lengths" in batch:
            begin = int(batch["window_lengths"][:number].sum())
            whole = ids[begin : begin + int(batch["window_lengths"][number])]
        else:
            whole = batch["input_ids"][number][batch["attention_mask"][number] == 1]
        parts = {"context": ids[context:context_end], "answer": ids[answer:answer_end]}
        found.append({"whole": whole, "token": token, **parts})
    assert taken == len(batch["token"])
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), max_length=st.sampled_from([48, 64, 90]), packed=st.booleans())
def test_windows_cover_every_token(kind: str, texts: list[tuple[str, ...]], max_length: int, packed: bool) -> None:
    made = encoder(kind, max_length=max_length, packed=packed)
    columns = made.encode_texts(*map(list, zip(*texts, strict=True)))
    windows = made.windows(columns)
    found = places_of(made.collate_windows(columns, windows))
    answers = columns["answer"]
    for row, (question, _, _) in enumerate(texts):
        of_row = [window for owner, window in zip(windows.row, found, strict=True) if owner == row]
        first = int(answers.offsets[row])
        pairs, asked = set(), columns["question"].row(row)
        for number, window in zip(np.flatnonzero(windows.row == row), of_row, strict=True):
            assert len(window["whole"]) == windows.lengths[number] <= max_length
            assert window["answer"].tolist() == answers.values[window["token"]].tolist()
            at, size = int(windows.context_start[number]), int(windows.context_size[number])
            assert window["context"].tolist() == columns["context"].row(row)[at : at + size].tolist()
            pairs |= {(place, int(token) - first) for place in range(at, at + size) for token in window["token"]}
            if question:
                tail = asked[-min(len(asked), max_length // 4) :].tolist()
                assert window["whole"].tolist()[len(made.template.prefix) :][: len(tail)] == tail, "the newest words"
        everything = {(c, a) for c in range(columns["context"].lengths[row]) for a in range(answers.lengths[row])}
        assert pairs == everything, "every token of the answer is read with every token of the context"


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_padded_and_packed_batches_hold_the_same(kind: str, texts: list[tuple[str, str, str]]) -> None:
    columns = encoder(kind).encode_texts(*map(list, zip(*texts, strict=True)))
    padded, packed = (
        encoder(kind, packed=side).collate_windows(columns, encoder(kind).windows(columns)) for side in (False, True)
    )
    assert padded["token"].tolist() == packed["token"].tolist()
    for one, other in zip(places_of(padded), places_of(packed), strict=True):
        assert {name: part.tolist() for name, part in one.items()} == {n: part.tolist() for n, part in other.items()}
    assert packed["input_ids"].shape == (1, int(packed["window_lengths"].sum()))
    real = padded["attention_mask"] == 1
    assert packed["position_ids"][0].tolist() == np.nonzero(real)[1].tolist()
    if "token_type_ids" in padded:
        assert packed["token_type_ids"][0].tolist() == padded["token_type_ids"][real].tolist()


def test_a_pair_without_a_question_is_the_tokenizers_own_pair() -> None:
    for kind in KINDS:
        made, (context, answer) = encoder(kind, max_length=128), (words(20), words(9, 5))
        columns = made.encode_texts([""], [context], [answer])
        batch = made.collate_windows(columns, made.windows(columns))
        theirs = made.tokenizer(context, answer, return_token_type_ids=True)
        assert batch["input_ids"][0].tolist() == theirs["input_ids"]
        if "token_type_ids" in batch:
            assert batch["token_type_ids"][0].tolist() == theirs["token_type_ids"]


def test_what_just_fits_is_read_in_one_window() -> None:
    made = encoder()
    for question in ("", "river"):
        asked = len(made.encode_texts([question], ["x"], ["x"])["question"].values)
        room = 48 - made.template.num_special - (asked + len(made.template.middle) if asked else 0)
        for size, num_windows in ((room - 5, 1), (room - 4, 2)):
            columns = made.encode_texts([question], [words(size)], [words(5)])
            assert columns["context"].lengths[0] == size and len(made.windows(columns).row) == num_windows


def marked(response: str, *spans: tuple[int, int, str], **values: Any) -> Example:
    made = tuple(Span(start=start, end=end, label=label) for start, end, label in spans)
    return example(response=response, spans=made, label="hallucinated" if made else "faithful", **values)


def test_a_batch_tells_the_row_the_tag_and_the_characters_of_each_token() -> None:
    made = encoder()
    examples = [marked("the river is red", (4, 9, SPAN_TYPES[0]), (13, 16, SPAN_TYPES[3])), marked("it is  long.")]
    examples.append(example(response="the dog", label="faithful", spans=None))
    counts: Counter[str] = Counter()
    columns = made.encode(examples, counts)
    batch = made.collate(columns)
    assert batch["token_row"].tolist() == [0] * 4 + [1] * 4 + [2] * 2
    assert batch["tag"].tolist() == [0, 1, 0, 4, 0, 0, 0, 0, -1, -1]
    assert batch["characters"].tolist() == [3, 5, 2, 3, 2, 2, 4, 1, 3, 3]
    assert batch["label"].tolist() == [1, 0, 0]
    assert counts == {"without span marks": 1, "read through several windows": 0}


def test_max_windows_keeps_those_that_share_most_with_the_answer() -> None:
    context = " ".join([words(60, 20), "king plays music in the city", words(60, 30), "dog and cat like water"])
    whole, two = encoder(), encoder(max_windows=1)
    columns = whole.encode_texts([""], [context], ["the king plays music"])
    every, kept = whole.windows(columns), two.windows(columns)
    assert len(every.row) > 3 and len(kept.row) == 1
    assert kept.shown is not None and kept.context_size[0] == len(kept.shown.row(0)) <= every.context_size[0]
    assert np.isin(columns["answer"].row(0), kept.shown.row(0)).all()


def rows_of(batch: dict[str, Any]) -> dict[int, list[list[int]]]:
    """By example: its answer's ids, tags and characters."""
    ids = batch["input_ids"].numpy().ravel()
    places = np.concatenate([np.arange(low, high) for _, _, low, high in batch["bounds"].tolist()])
    of_token = np.zeros(len(batch["tag"]), np.int64)
    of_token[batch["token"].numpy()] = ids[places]
    columns = (of_token, batch["tag"].numpy(), batch["characters"].numpy())
    owner = batch["token_row"].numpy()
    return {
        int(index): [column[owner == row].tolist() for column in columns] for row, index in enumerate(batch["index"])
    }


def test_parts_of_a_mix_keep_their_rows_and_tags_together(tmp_path: Path) -> None:
    made = encoder(packed=True, max_length=64)
    rows = [
        {"context": words(70, i), "answer": words(20 + i, i), "spans": [{"start": i, "end": i + 4}]} for i in range(20)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sources = [
        MixPart(build_source("pairs", str(tmp_path))),
        MixPart(build_source("embedded", "embedded", num_train=20, num_validation=5, num_test=5, seed=1)),
    ]
    data = DataModule(sources, made, DataOptions(batch_size=8), SplitPlan({"validation": 0.2, "test": 0.1}))
    data.setup()
    every = [example for subset in data.subsets["train"] for example in subset.examples()]
    chosen = np.append(np.random.default_rng(0).permutation(len(every))[:9], -1)
    batch = Batches(data.subsets["train"], made)[chosen, len(chosen)]
    assert sorted(batch["index"].tolist()) == sorted(chosen.tolist())
    together = rows_of(batch)
    for index in chosen.tolist():
        alone = made.collate(made.encode([every[max(index, 0)]], Counter()))
        wanted = {name: torch.from_numpy(array) for name, array in alone.items()}
        assert together[index] == rows_of({**wanted, "index": torch.tensor([index])})[index]
