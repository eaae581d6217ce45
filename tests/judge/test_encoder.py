"""A judge reads the prompt of later use and learns the reply alone, each row apart from the others."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from faithkit.errors import UserError
from faithkit.fast import use_packed_attention
from faithkit.inference.messages import MessageTokens
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Turn
from faithkit.training.language_model import row_statistics, run_model, token_losses
from faithkit.weights.adapters import add_adapters
from judge.prompt import PromptTemplate
from judge.task import JudgementEncoder
from tests.data_modules.examples import example

TEMPLATE = PromptTemplate("is it wrong?\n\n{knowledge}\n\n{history}\n\n{response}")


def examples(count: int = 5, turns: int = 2) -> list[Example]:
    said = ("the river is long", "the king is old", "a dog and a cat")
    return [
        example(
            knowledge="the king " * (i + 1),
            response=said[i % 3],
            history=tuple(Turn(speaker="seeker", text=said[t % 3]) for t in range(turns)),
            label=(FAITHFUL, HALLUCINATED)[i % 2],
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def tokens(language_models: dict[str, Path]) -> MessageTokens:
    return MessageTokens(AutoTokenizer.from_pretrained(language_models["llama"]))


def encoder(tokens: MessageTokens, **options: Any) -> JudgementEncoder:
    return JudgementEncoder(tokens=tokens, **{"template": TEMPLATE, "ask": "verdict", "max_length": 200, **options})


def test_the_context_is_the_prompt_of_later_use_and_the_target_the_reply_alone(tokens: MessageTokens) -> None:
    rows = examples()
    columns = encoder(tokens).encode(rows, Counter())
    batch = encoder(tokens).collate(columns)
    for place, row in enumerate(rows):
        [prompt] = tokens.prompts([TEMPLATE.messages(row)])
        assert columns["context"].row(place).tolist() == prompt.tolist()  # type: ignore[union-attr]
        targets = batch["target"][batch["target_row"] == place]
        assert tokens.decode(targets.tolist()) == ("Yes" if row.label == HALLUCINATED else "No")
        assert targets[-1] == tokens.tokenizer.eos_token_id
    assert batch["label"].tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("has_adapters", [False, True])
def test_packed_rows_are_read_apart(has_adapters: bool, tokens: MessageTokens, language_models: Any) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(language_models["llama"], dtype=torch.float32).eval()
    if has_adapters:
        model = add_adapters(model, rank=4, alpha=32, target_modules="all-linear").eval()
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    rows, own = examples(), encoder(tokens)

    def statistics(chosen: list[Example], packed: bool) -> np.ndarray:
        made = encoder(tokens, packed=packed)
        batch = {n: torch.as_tensor(v) for n, v in made.collate(made.encode(chosen, Counter())).items()}
        return row_statistics(model, {**batch, "index": torch.arange(len(chosen))})

    alone = np.concatenate([statistics([row], packed=False) for row in rows])
    assert use_packed_attention(model) and own.packed
    assert statistics(rows, packed=True) == pytest.approx(alone, abs=1e-5)


def test_a_shared_beginning_is_read_once_and_rows_are_learnt_apart(tokens: MessageTokens, language_models: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(language_models["llama"], dtype=torch.float32).eval()
    assert use_packed_attention(model)
    [turn, other] = examples(2)
    said = ("the river is long", "the river", "a dog and a cat", "the king is old", "the river is long")
    rows = [replace((turn, other)[i % 2], response=text, label=turn.label) for i, text in enumerate(said)]
    results = {}
    for shared in (False, True):
        made = encoder(tokens, share_beginnings=shared)
        batch = {n: torch.as_tensor(v) for n, v in made.collate(made.encode(rows, Counter())).items()}
        model.zero_grad()
        losses = token_losses(run_model(model, batch).logits, batch["target"])
        losses.mean().backward()
        results[shared] = batch["input_ids"].shape[1], losses.detach(), model.get_input_embeddings().weight.grad.clone()
    (plain, losses, gradients), (read, found, own) = results[False], results[True]
    assert read < 0.7 * plain
    torch.testing.assert_close(found, losses, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(own, gradients, atol=1e-6, rtol=1e-4)


def test_the_oldest_turns_give_way_and_are_counted(tokens: MessageTokens) -> None:
    [row], counts = examples(1, turns=6), Counter[str]()
    whole = len(tokens.prompts([TEMPLATE.messages(row)])[0])
    short = encoder(tokens, max_length=whole - 5)
    columns = short.encode([row], counts)
    assert int(columns["length"][0]) <= whole - 5  # type: ignore[arg-type]
    assert counts["history cut: rows"] == 1 and counts["history cut: turns"] >= 1
    text = tokens.decode(columns["context"].row(0).tolist())  # type: ignore[union-attr]
    assert "the king" in text and "the river is long" in text
    with pytest.raises(UserError, match=r"without any history\n.*\n  hint: set model.max_length="):
        encoder(tokens, max_length=10).encode([row], Counter())


def test_another_prompt_or_way_of_asking_is_encoded_anew(tokens: MessageTokens) -> None:
    others = ({}, {"ask": "judgement"}, {"max_length": 100}, {"template": PromptTemplate(f"{TEMPLATE.text} now")})
    made = [encoder(tokens, **options) for options in others]
    assert len({one.fingerprint() for one in made}) == len(made)
