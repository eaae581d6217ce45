"""Text depends on prompt, settings and seed, and on nothing else; shared beginnings are read once."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from faithkit.errors import UserError
from faithkit.inference.prefill import MIN_PREFIX, PrefixGroup, group_by_prefix
from faithkit.inference.text import Completion, Decoding, Prompt
from faithkit.inference.transformers_engine import TransformersEngine
from tests.faithkit.inference.models import (
    EOS,
    FAMILIES,
    VOCABULARY,
    beams_by_huggingface,
    by_huggingface,
    engine_of,
    logprob_by_hand,
    make_model,
    model_of,
    prompts,
)

Texts = dict[tuple[str, int], tuple[tuple[int, ...], bool]]
TIMES = 12


def texts(completions: Sequence[Completion]) -> Texts:
    found = {(c.id, c.sample): (c.ids, c.finished) for c in completions}
    assert len(found) == len(completions), "no completion twice"
    return found


def run(family: str, decoding: Decoding, batch_size: int = 16, asked: list[Prompt] | None = None) -> Texts:
    return texts(list(engine_of(family, batch_size).generate(asked or prompts(), decoding)))


@pytest.mark.parametrize("family", [*FAMILIES, "mt5"])
def test_greedy_decoding_is_that_of_each_prompt_alone(family: str) -> None:
    expected = {(p.id, 0): by_huggingface(family, p, max_new_tokens=TIMES) for p in prompts()}
    shuffled = prompts()
    random.Random(1).shuffle(shuffled)
    decoding = Decoding(max_new_tokens=TIMES)
    for batch_size, asked in ((1, prompts()), (3, shuffled), (16, prompts())):
        assert run(family, decoding, batch_size, asked) == expected, batch_size


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_do_not_depend_on_what_else_is_in_the_batch(family: str) -> None:
    decoding = Decoding(strategy="nucleus", top_p=0.9, num_samples=2, max_new_tokens=TIMES, seed=4)
    alone = run(family, decoding, 1)
    assert run(family, decoding, 16, prompts()[::-1]) == alone
    few = prompts()[3:7]
    assert run(family, decoding, 64, few) == {key: alone[key] for p in few for key in [(p.id, s) for s in range(2)]}


@pytest.mark.parametrize("family", [*FAMILIES, "mt5"])
@pytest.mark.parametrize("decoding", [Decoding(), Decoding(strategy="nucleus", top_p=0.9, num_samples=2)], ids=str)
def test_the_switch_decodes_with_the_cache_and_the_attention_of_transformers(
    family: str, decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = replace(decoding, max_new_tokens=TIMES, repetition_penalty=1.2)
    expected, shares = run(family, decoding), dict(engine_of(family).next_probabilities(prompts(), [3, 4]))
    monkeypatch.setenv("FAITHKIT_FAST", "0")
    plain = engine_of(family, 5, model=make_model(family).eval())
    assert texts(list(plain.generate(prompts(), decoding))) == expected
    used = {part.config._attn_implementation for part in plain.model.modules() if hasattr(part, "config")}
    assert not any("faithkit" in name for name in used)
    for id_, found in plain.next_probabilities(prompts(), [3, 4]):
        assert found == pytest.approx(shares[id_], abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("strategy", ["greedy", "nucleus", "beam"])
def test_the_logprob_is_the_models_own_of_what_was_written(family: str, strategy: str) -> None:
    options = {"num_samples": 1 if strategy == "greedy" else 2, "num_beams": 3, "max_new_tokens": 8}
    decoding = Decoding(strategy=strategy, temperature=1.5, repetition_penalty=1.3, **options)  # type: ignore[arg-type]
    by_id = {prompt.id: prompt for prompt in prompts(8)}
    for done in engine_of(family).generate(list(by_id.values()), decoding):
        expected = logprob_by_hand(family, by_id[done.id], done.ids, done.finished)
        assert done.logprob == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, {}) for family in (*FAMILIES, "t5gemma")),
        *product(("llama", "t5"), ({"repetition_penalty": 1.4}, {"min_new_tokens": 4})),
    ],
    ids=str,
)
def test_all_beams_are_those_of_each_prompt_alone_with_every_setting(family: str, options: dict[str, float]) -> None:
    options = {"max_new_tokens": TIMES, "num_beams": 4, **options}
    beams = {p.id: beams_by_huggingface(family, p, num_return_sequences=4, **options) for p in prompts(10)}
    expected = {(id_, number): beam for id_, found in beams.items() for number, beam in enumerate(found)}
    decoding = Decoding(strategy="beam", num_samples=4, **options)  # type: ignore[arg-type]
    assert run(family, decoding, 12, prompts(10)) == expected


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_beams_ignore_the_generation_settings_of_the_model_which_stay(family: str) -> None:
    decoding = Decoding(strategy="beam", num_beams=3, num_samples=2, max_new_tokens=TIMES)
    expected, model = run(family, decoding), model_of(family)
    before = model.generation_config
    model.generation_config = own = GenerationConfig(
        no_repeat_ngram_size=1, length_penalty=-3.0, early_stopping=True, forced_eos_token_id=7, min_length=30
    )
    try:
        assert run(family, decoding) == expected and model.generation_config is own
    finally:
        model.generation_config = before


@pytest.mark.parametrize("family", ["llama", "t5", "bart"])
def test_as_many_tokens_as_asked_for_stand_before_the_end(family: str) -> None:
    for strategy in ("greedy", "nucleus", "beam"):
        decoding = Decoding(strategy=strategy, num_beams=2, min_new_tokens=7, max_new_tokens=9)
        assert all(7 <= len(ids) <= 9 and EOS not in ids for ids, _ in run(family, decoding).values())
    assert min(len(ids) for ids, _ in run("llama", Decoding(max_new_tokens=9)).values()) < 7


def test_a_cold_temperature_and_a_tiny_nucleus_are_greedy_and_a_hot_one_is_not() -> None:
    greedy = run("llama", Decoding())
    assert run("llama", Decoding(strategy="nucleus", top_p=1.0, temperature=1e-3)) == greedy
    assert run("llama", Decoding(strategy="nucleus", top_p=1e-6)) == greedy
    assert run("llama", Decoding(strategy="nucleus", top_p=1.0, temperature=3.0)) != greedy


def test_nothing_asked_is_nothing_written_and_bad_prompts_are_refused() -> None:
    engine = engine_of("llama")
    assert list(engine.generate([], Decoding())) == []
    with pytest.raises(UserError, match="two prompts have the id 'p0'"):
        list(engine.generate([*prompts(2), prompts(1)[0]], Decoding()))
    with pytest.raises(UserError, match="'e' has no tokens"):
        list(engine.generate([Prompt("e", prompts(1)[0].ids[:0])], Decoding()))


TOKENS = [7, 8, 9]


def made(*parts: tuple[int, ...]) -> list[Prompt]:
    """Prompts of pieces: a number stands for a piece of 20 tokens of its own, so equal numbers are shared."""
    rng = np.random.default_rng(1)
    pieces = rng.integers(3, VOCABULARY, (20, 20)).astype(np.int32)
    rows = [np.concatenate([pieces[one] for one in numbers]) for numbers in parts]
    return [Prompt(f"p{place}", row) for place, row in enumerate(rows)]


CONVERSATIONS = made((0, 1, 2), (0, 1, 3), (0, 4, 5), (0, 1, 6, 7), (8,), (9, 10), (0, 4, 5), (0, 4))


def groups_of(shared: PrefixGroup) -> Iterator[PrefixGroup]:
    yield shared
    for group in shared.groups:
        yield from groups_of(group)


def prompts_of(group: PrefixGroup) -> list[Prompt]:
    return [prompt for inner in groups_of(group) for prompt in inner.members]


ids = st.lists(st.integers(0, 2), min_size=1, max_size=60)


@given(st.lists(ids, max_size=12), ids, st.integers(0, 50))
def test_each_prompt_stands_in_one_place_and_groups_share_what_they_say(
    rows: list[list[int]], beginning: list[int], worth: int
) -> None:
    prompts = [
        Prompt(str(place), np.array((beginning if place % 2 else []) + row, np.int32)) for place, row in enumerate(rows)
    ]
    whole = group_by_prefix(prompts, worth)
    assert sorted(prompt.id for prompt in prompts_of(whole)) == sorted(prompt.id for prompt in prompts)
    for group in groups_of(whole):
        beginnings = {prompt.ids[: group.length].tobytes() for prompt in prompts_of(group)}
        assert len(beginnings) <= 1 and all(len(prompt.ids) > group.length for prompt in prompts_of(group))
        for inner in group.groups:
            assert inner.length >= group.length + MIN_PREFIX
            assert (inner.length - group.length) * (len(prompts_of(inner)) - 1) >= worth


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_and_texts_are_those_of_each_prompt_alone(family: str) -> None:
    engine = engine_of(family, 3)
    if engine.reader.min_saved is not None:
        engine.reader.min_saved = 20
    together = dict(engine.next_probabilities(CONVERSATIONS, TOKENS))
    assert together.keys() == {prompt.id for prompt in CONVERSATIONS}
    for prompt in CONVERSATIONS:
        [(_, alone)] = engine.next_probabilities([prompt], TOKENS)
        assert together[prompt.id] == pytest.approx(alone, abs=1e-5), prompt.id
    assert len({tuple(shares.round(4)) for shares in together.values()}) > 4, "they depend on the prompt"
    written = texts(list(engine.generate(CONVERSATIONS, Decoding(max_new_tokens=9))))
    assert written == {(prompt.id, 0): by_huggingface(family, prompt, max_new_tokens=9) for prompt in CONVERSATIONS}


def assert_models_own(family: str, prompts: list[Prompt], engine: TransformersEngine) -> None:
    """Compares the probabilities of the next token with those of the model itself."""
    together = dict(engine.next_probabilities(prompts, TOKENS))
    assert together.keys() == {prompt.id for prompt in prompts}
    for prompt in prompts:
        logits = model_of(family)(torch.from_numpy(prompt.ids[None].astype(np.int64))).logits[0, -1, TOKENS]
        assert together[prompt.id] == pytest.approx(logits.softmax(-1).detach().numpy(), abs=1e-5), prompt.id


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("pass_tokens", [1, 90, 10_000])
def test_packed_prompts_have_the_probabilities_of_the_model_itself(family: str, pass_tokens: int) -> None:
    engine = engine_of(family)
    assert engine.reader.can_pack
    engine.reader.pass_tokens = pass_tokens
    assert_models_own(family, CONVERSATIONS, engine)
    assert engine.reader.can_pack


def test_a_beginning_of_several_blocks_is_read_in_one_long_pass() -> None:
    rng = np.random.default_rng(2)
    shared = rng.integers(3, VOCABULARY, 40)
    rows = [np.append(shared, rng.integers(3, VOCABULARY, length)).astype(np.int32) for length in (2, 700, 3)]
    assert_models_own("llama", [Prompt(str(place), row) for place, row in enumerate(rows)], engine_of("llama"))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_an_instruction_and_a_conversation_are_read_once(family: str) -> None:
    engine, read = engine_of(family), []
    hook = engine.model.get_input_embeddings().register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
    try:
        dict(engine.next_probabilities(CONVERSATIONS, TOKENS))
    finally:
        hook.remove()
    alone = sum(len(prompt.ids) for prompt in CONVERSATIONS)
    different = 11 * 20  # the pieces that there are
    assert sum(read) < 0.7 * alone
    assert sum(read) <= different + 3 * len(CONVERSATIONS)  # and the last token of equal prompts each
