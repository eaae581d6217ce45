"""The beginnings that prompts share are read once, and change no probability."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.inference.decoding import Decoding, Prompt
from faithkit.inference.prefill import MIN_PREFIX, PrefixGroup, group_by_prefix
from tests.faithkit.inference.models import FAMILIES, VOCABULARY, by_huggingface, engine_of

TOKENS = [7, 8, 9]


def made(*parts: tuple[int, ...]) -> list[Prompt]:
    """Prompts of pieces: a number stands for a piece of 20 tokens of its own, so equal numbers are shared."""
    rng = np.random.default_rng(1)
    pieces = rng.integers(3, VOCABULARY, (20, 20)).astype(np.int32)
    return [
        Prompt(f"p{place}", np.concatenate([pieces[one] for one in numbers])) for place, numbers in enumerate(parts)
    ]


CONVERSATIONS = made((0, 1, 2), (0, 1, 3), (0, 4, 5), (0, 1, 6, 7), (8,), (9, 10), (0, 4, 5), (0, 4))


def groups_of(shared: PrefixGroup) -> Iterator[PrefixGroup]:
    yield shared
    for group in shared.groups:
        yield from groups_of(group)


ids = st.lists(st.integers(0, 2), min_size=1, max_size=60)


@given(st.lists(ids, max_size=12), ids, st.integers(0, 50))
def test_each_prompt_stands_in_one_place_and_groups_share_what_they_say(
    rows: list[list[int]], beginning: list[int], worth: int
) -> None:
    prompts = [
        Prompt(str(place), np.array((beginning if place % 2 else []) + row, np.int32)) for place, row in enumerate(rows)
    ]
    whole = group_by_prefix(prompts, worth)
    assert sorted(prompt.id for prompt in whole.prompts()) == sorted(prompt.id for prompt in prompts)
    for group in groups_of(whole):
        beginnings = {prompt.ids[: group.length].tobytes() for prompt in group.prompts()}
        assert len(beginnings) <= 1 and all(len(prompt.ids) > group.length for prompt in group.prompts())
        for inner in group.groups:
            assert inner.length >= group.length + MIN_PREFIX
            assert (inner.length - group.length) * (len(inner.prompts()) - 1) >= worth


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_those_of_each_prompt_alone(family: str) -> None:
    engine = engine_of(family)
    if engine.reader.min_saved is not None:
        engine.reader.min_saved = 20
    together = dict(engine.next_probabilities(CONVERSATIONS, TOKENS))
    assert together.keys() == {prompt.id for prompt in CONVERSATIONS}
    for prompt in CONVERSATIONS:
        [(_, alone)] = engine.next_probabilities([prompt], TOKENS)
        assert together[prompt.id] == pytest.approx(alone, abs=1e-5), prompt.id
    assert len({tuple(shares.round(4)) for shares in together.values()}) > 4, "they depend on the prompt"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_is_that_of_each_prompt_alone(family: str) -> None:
    engine = engine_of(family, 3)
    if engine.reader.min_saved is not None:
        engine.reader.min_saved = 20
    written = {
        done.id: (done.ids, done.finished) for done in engine.generate(CONVERSATIONS, Decoding(max_new_tokens=9))
    }
    assert written == {prompt.id: by_huggingface(family, prompt, max_new_tokens=9) for prompt in CONVERSATIONS}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_an_instruction_and_a_conversation_are_read_once(family: str) -> None:
    engine, read = engine_of(family), []
    hook = engine.model.get_input_embeddings().register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
    engine.reader.min_saved = 20
    try:
        dict(engine.next_probabilities(CONVERSATIONS, TOKENS))
    finally:
        hook.remove()
    alone = sum(len(prompt.ids) for prompt in CONVERSATIONS)
    different = 11 * 20  # the pieces that there are
    assert different <= sum(read) < 0.7 * alone  # with the padding between rows of different lengths
