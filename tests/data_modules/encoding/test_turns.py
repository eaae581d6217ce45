"""Dialogue turns as generators read them: nothing of knowledge and response is lost, the newest history stays."""

from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.sequence_layout import (
    CAUSAL,
    CONTROL_TOKENS,
    KNOWLEDGE,
    MARKERS,
    SEEKER,
    SEQ2SEQ,
    WIZARD,
    TurnLayout,
    add_markers,
    bos_of,
)
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import LONGER, TurnEncoder
from faithkit.errors import UserError
from faithkit.records import Turn
from tests.data_modules.examples import HISTORY, example
from tests.tiny import write_tokenizer

KINDS = (SEQ2SEQ, CAUSAL)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    write_tokenizer(made[SEQ2SEQ], "unigram")
    write_tokenizer(made[CAUSAL], "bpe")
    return made


def build(folders: dict[str, Path], kind: str, *, packed: bool = True, **values: Any) -> TurnEncoder:
    layout = TurnLayout(**{"kind": kind, "max_length": 96, "max_response_length": 24, **values})
    return TurnEncoder(marked_tokenizer(folders[kind], layout), layout, packed=packed)


@cache
def marked_tokenizer(folder: Path, layout: TurnLayout) -> Any:
    tokenizer = load_tokenizer(str(folder))
    tokenizer.eos_token, tokenizer.unk_token = "</s>", "<unk>"
    add_markers(tokenizer, layout)
    return tokenizer


def plain_ids(encoder: TurnEncoder, text: str) -> list[int]:
    tokenizer = encoder.tokenizer
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    special, unknown = tokenizer.all_special_ids, tokenizer.unk_token_id
    return [unknown if i in special else i for i in ids]


def context_of(encoder: TurnEncoder, knowledge: list[int], turns: list[tuple[str, list[int]]]) -> list[int]:
    """A context with these turns of history, written out."""
    ids = encoder.ids
    row = [ids[bos_of(encoder.tokenizer)], ids[KNOWLEDGE], *knowledge]
    for speaker, tokens in turns:
        row += [ids[WIZARD if speaker == "wizard" else SEEKER], *tokens]
    return [*row, encoder.tokenizer.eos_token_id if encoder.layout.kind == SEQ2SEQ else ids[WIZARD]]


words = st.lists(st.sampled_from(["the", "river", "is", "long", "x9", "é", "</s>", "<|wizard|>", "🙂"]), max_size=12)
texts = words.map(" ".join) | st.text(max_size=20)
turns = st.lists(st.builds(Turn, speaker=st.sampled_from(["seeker", "wizard"]), text=texts), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(st.tuples(texts, turns, texts), min_size=1, max_size=4), limit=st.sampled_from([None, 0, 1, 3]))
def test_the_newest_turns_stay_and_nothing_else_is_cut(
    kind: str, folders: dict[str, Path], rows: list[tuple[str, list[Turn], str]], limit: int | None
) -> None:
    encoder = build(folders, kind, max_length=60, max_response_length=20, max_history=limit)
    eos = encoder.tokenizer.eos_token_id
    examples = [example(knowledge=k, history=tuple(h), response=r) for k, h, r in rows]
    knowledge = [plain_ids(encoder, one.knowledge) for one in examples]
    responses = [[*plain_ids(encoder, one.response), eos] for one in examples]
    sizes = [(len(k) + 3, len(r)) for k, r in zip(knowledge, responses, strict=True)]
    counts: Counter[str] = Counter()
    if max(sum(size) if kind == CAUSAL else max(size) for size in sizes) > 60:
        with pytest.raises(UserError, match=r"alone take \d+ tokens"):
            encoder.encode(examples, counts)
        return
    columns: dict[str, Any] = encoder.encode(examples, counts)
    cut_turns = []
    for place, one in enumerate(examples):
        room = 60 - sizes[place][0] - (max(sizes[place][1], 20) if kind == CAUSAL else 0)
        turns = [(turn.speaker, plain_ids(encoder, turn.text)) for turn in one.history]
        turns = turns if limit is None else turns[::-1][:limit][::-1]
        kept, whole = keep_newest(turns, room)
        cut_turns.append(len(turns) - whole)
        row = context_of(encoder, knowledge[place], kept)
        assert columns["context"].row(place).tolist() == row
        assert columns["response"].row(place).tolist() == responses[place]
        assert len(row) + len(responses[place]) == columns["length"][place]
    assert counts["history cut: turns"] == sum(cut_turns)
    assert counts["history cut: rows"] == sum(cut > 0 for cut in cut_turns)
    assert counts[LONGER] == sum(size > 20 for _, size in sizes)


def keep_newest(turns: list[tuple[str, list[int]]], room: int) -> tuple[list[tuple[str, list[int]]], int]:
    """The turns that fit, one by one from the newest; and how many of them are whole."""
    kept: list[tuple[str, list[int]]] = []
    for speaker, tokens in reversed(turns):
        if len(tokens) + 1 > room:
            if not kept and room >= 2:
                return [(speaker, tokens[len(tokens) - room + 1 :])], 0
            break
        kept.insert(0, (speaker, tokens))
        room -= len(tokens) + 1
    return kept, len(kept)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_before_answering_is_what_was_read_in_training(kind: str, folders: dict[str, Path]) -> None:
    encoder = build(folders, kind)
    history = tuple(Turn(speaker="seeker", text="river " * n) for n in range(1, 12))
    rows = [example(history=history[:n], response="it is " * (n % 3 + 1)) for n in range(12)]
    counts: Counter[str] = Counter()
    trained, asked = encoder.encode(rows, counts)["context"], encoder.contexts(rows, Counter())
    assert counts["history cut: rows"] >= 2
    assert all(np.array_equal(trained.row(i), asked.row(i)) for i in range(len(rows)))
    rows = [example(), example(id="too:long", knowledge="river " * 200)]
    with pytest.raises(UserError, match=r"too:long.*\d+ tokens[^$]*max_length=\d+.*96"):
        encoder.encode(rows, Counter())
    with pytest.raises(UserError, match="too:long"):
        encoder.contexts(rows, Counter())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_what_the_rows_written_out_are(kind: str, packed: bool, folders: dict[str, Path]) -> None:
    encoder = build(folders, kind, packed=packed)
    rows = [example(history=HISTORY[:n], response="it is long " * (n + 1)) for n in range(3)]
    columns = encoder.encode(rows, Counter())
    batch = encoder.collate(columns)
    contexts = [columns["context"].row(i).tolist() for i in range(3)]
    responses = [columns["response"].row(i).tolist() for i in range(3)]
    pad = encoder.tokenizer.pad_token_id
    read = contexts if kind == SEQ2SEQ else [c + r[:-1] for c, r in zip(contexts, responses, strict=True)]
    if kind == CAUSAL and packed:
        assert batch["input_ids"].tolist() == [list(chain(*read))]
        assert batch["position_ids"].tolist() == [list(chain(*(range(len(row)) for row in read)))]
        assert batch["sequence_lengths"].tolist() == [len(row) for row in read]
    else:
        width = max(map(len, read))
        assert batch["input_ids"].tolist() == [row + [pad] * (width - len(row)) for row in read]
        assert batch["attention_mask"].sum(1).tolist() == [len(row) for row in read]
    answered = batch["decoder_input_ids" if kind == SEQ2SEQ else "input_ids"].reshape(-1)
    before = [[encoder.ids[WIZARD], *row[:-1]] for row in responses]
    assert answered[batch["target_at"]].tolist() == list(chain(*before))
    assert batch["target"].tolist() == list(chain(*responses))
    assert batch["target_row"].tolist() == [i for i, row in enumerate(responses) for _ in row]


@pytest.mark.parametrize("kind", KINDS)
def test_control_tokens_stand_in_front_and_their_room_is_kept(kind: str, folders: dict[str, Path]) -> None:
    encoder = build(folders, kind, control=("voice", "overlap"))
    wanted = [(CONTROL_TOKENS["voice"][1], CONTROL_TOKENS["overlap"][2])]
    rows = [example(history=tuple(Turn(speaker="seeker", text="river") for _ in range(60)), response="it is")]
    asked = encoder.contexts(rows, Counter(), control=wanted)
    batch = encoder.collate({**encoder.encode(rows, Counter()), "control": encoder.control_ids(wanted)})
    length = int(asked.lengths[0])
    assert batch["input_ids"][0, :length].tolist() == asked.row(0).tolist()
    assert encoder.tokenizer.convert_ids_to_tokens(asked.row(0)[:2].tolist()) == list(wanted[0])
    assert length <= 96 - (24 if kind == CAUSAL else 0)
    for wrong in ((), wanted[0][::-1], ("<|loud|>", wanted[0][1]), wanted[0][:1]):
        with pytest.raises(UserError, match="control tokens"):
            encoder.contexts(rows, Counter(), control=[wrong])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"kind": "diffusion"}, "diffusion"),
        ({"max_length": 30, "kind": CAUSAL}, "max_length is 30"),
        ({"max_response_length": 1}, "max_response_length"),
        ({"max_history": -1}, "max_history"),
        ({"max_history": 1.5}, "max_history"),
        ({"control": ("overlap", "voice")}, "in this order"),
        ({"control": ("loudness",)}, "loudness"),
    ],
)
def test_a_layout_that_cannot_be_is_explained(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        TurnLayout(**{"kind": SEQ2SEQ, "max_length": 96, "max_response_length": 24, **values})


def test_markers_are_added_once_and_saved_with_the_tokenizer(folders: dict[str, Path], tmp_path: Path) -> None:
    layout = TurnLayout(kind=CAUSAL, max_length=96, max_response_length=24, control=("voice",))
    tokenizer = load_tokenizer(str(folders[CAUSAL]))
    tokenizer.eos_token, tokenizer.unk_token = "</s>", "<unk>"
    size = len(tokenizer)
    new = add_markers(tokenizer, layout)
    assert sorted(new) == list(range(size, size + len(MARKERS) + 2)) and all(new.values())
    assert not set(chain(*new.values())) & set(tokenizer.all_special_ids), "words alone describe a marker"
    tokenizer.save_pretrained(tmp_path)
    again = load_tokenizer(str(tmp_path))
    assert add_markers(again, layout) == {} and len(again) == len(tokenizer)
    assert TurnEncoder(tokenizer, layout).fingerprint() == TurnEncoder(again, layout).fingerprint()
