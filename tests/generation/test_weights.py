"""Any model that writes is loaded, with tokens of its own for a dialogue."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BartModel

from data_modules.encoding.sequence_layout import KNOWLEDGE, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.errors import UserError
from faithkit.fast import use_packed_attention
from faithkit.records import Example
from faithkit.training.language_model import row_statistics, run_model, token_losses
from generation.options import ARCHITECTURES
from generation.weights import load_generator
from tests.data_modules.examples import HISTORY, example

FAMILIES = {"t5": "seq2seq", "bart": "seq2seq", "gpt2": "causal", "llama": "causal"}


def load(folder: Path, architecture: str, **options: Any) -> tuple[Any, Any, dict[int, list[int]]]:
    sizes = {"max_length": 96, "max_response_length": 24, "control": ("voice", "overlap", "entailment")}
    layout = TurnLayout(kind=ARCHITECTURES[architecture].kind, **sizes)
    tokenizer = load_tokenizer(str(folder))
    new = add_markers(tokenizer, layout)
    return load_generator(str(folder), architecture, tokenizer=tokenizer, new_tokens=new, **options), tokenizer, new


@pytest.mark.parametrize("family", FAMILIES)
def test_new_tokens_begin_as_the_words_that_describe_them(family: str, language_models: dict[str, Path]) -> None:
    before = ARCHITECTURES[FAMILIES[family]].model_class.from_pretrained(language_models[family])
    model, tokenizer, new = load(language_models[family], FAMILIES[family])
    assert len(new) == 4 + 8 and model.dtype == torch.float32
    old = before.get_input_embeddings().weight
    rows = model.get_input_embeddings().weight
    assert len(rows) == model.get_output_embeddings().weight.shape[0] == max(len(tokenizer), len(old))
    known = min(new)
    assert torch.equal(rows[:known], old[:known])
    knowledge = tokenizer.convert_tokens_to_ids(KNOWLEDGE)
    assert torch.equal(rows[knowledge], rows[new[knowledge]].mean(0))
    again, _, _ = load(language_models[family], FAMILIES[family])
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("architecture", ["seq2seq", "doha"])
def test_bart_is_loaded_as_it_is_published(architecture: str, language_models: dict[str, Path], tmp_path: Path) -> None:
    # facebook/bart-base: its config.json names the class without a head, and its tensors have that one's names.
    whole, _, _ = load(language_models["bart"], "seq2seq")
    BartModel.from_pretrained(language_models["bart"]).save_pretrained(tmp_path)
    load_tokenizer(str(language_models["bart"])).save_pretrained(tmp_path)
    model, _, _ = load(tmp_path, architecture)
    loaded = model.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in whole.state_dict().items())


def test_weights_that_are_not_tied_stay_so(language_models: dict[str, Path], tmp_path: Path) -> None:
    model, tokenizer, _ = load(language_models["t5"], "seq2seq")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() * 0.5)
    model.config.tie_word_embeddings = model.config.scale_decoder_outputs = False
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tokenizer.add_tokens(["<one>", "<two>"], special_tokens=True)
    new = {len(tokenizer) - 2: [3], len(tokenizer) - 1: [4, 5]}
    grown = load_generator(str(tmp_path), "seq2seq", tokenizer=tokenizer, new_tokens=new)
    head, shared = grown.lm_head.weight, grown.shared.weight
    assert len(head) == len(shared) == len(tokenizer)
    assert torch.equal(head[: len(model.lm_head.weight)], model.lm_head.weight)
    assert torch.equal(head[-1], head[[4, 5]].mean(0)) and torch.equal(shared[-1], shared[[4, 5]].mean(0))


@pytest.mark.parametrize(
    ("family", "architecture", "hint"), [("gpt2", "seq2seq", "model=gpt2"), ("bart", "causal", "model=t5")]
)
def test_another_family_is_told(family: str, architecture: str, hint: str, language_models: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=f"is not a {architecture} model(.|\n)*{hint}"):
        load(language_models[family], architecture)


def row_of(n: int) -> Example:
    """A row with texts of lengths of its own."""
    return example(knowledge="the river is long " * n, history=HISTORY[: n % 3], response="it is long " * (n % 4 + 1))


ROWS = [row_of(n) for n in range(1, 6)]


def build(folder: Path, architecture: str, *, packed: bool) -> tuple[Any, TurnEncoder]:
    layout = TurnLayout(kind=ARCHITECTURES[architecture].kind, max_length=120, max_response_length=40)
    tokenizer = load_tokenizer(str(folder))
    new = add_markers(tokenizer, layout)
    model = load_generator(str(folder), architecture, tokenizer=tokenizer, new_tokens=new)
    encoder = TurnEncoder(tokenizer, layout, packed=packed)
    assert not encoder.is_packed or use_packed_attention(model)
    return model, encoder


def batch_of(encoder: TurnEncoder, rows: Any = ROWS) -> dict[str, Tensor]:
    batch = encoder.collate(encoder.encode(rows, Counter()))
    return {name: torch.from_numpy(column) for name, column in batch.items()}


def by_transformers(model: Any, encoder: TurnEncoder) -> Tensor:
    """The mean loss of all responses, each row by itself and with the labels that transformers wants."""
    columns: dict[str, Any] = encoder.encode(ROWS, Counter())
    losses, tokens = [], 0
    for place in range(len(ROWS)):
        context, response = (torch.tensor(columns[name].row(place).tolist()) for name in ("context", "response"))
        tokens += len(response)
        if encoder.decoder_prefix:
            decoded = torch.tensor([*encoder.decoder_prefix, *response[:-1].tolist()])
            output = model(input_ids=context[None], decoder_input_ids=decoded[None], labels=response[None])
        else:
            ids = torch.cat([context, response])
            labels = torch.cat([torch.full_like(context, -100), response])
            output = model(input_ids=ids[None], labels=labels[None], use_cache=False)
        losses.append(output.loss * len(response))
    return torch.stack(losses).sum() / tokens


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_are_transformers_own(family: str, packed: bool, language_models: dict[str, Path]) -> None:
    plain, encoder = build(language_models[family], FAMILIES[family], packed=False)
    model, encoder = build(language_models[family], FAMILIES[family], packed=packed)
    batch = batch_of(encoder)
    wanted = by_transformers(plain, encoder)
    loss = token_losses(run_model(model, batch).logits, batch["target"]).mean()
    torch.testing.assert_close(loss, wanted, rtol=0, atol=1e-5)
    for made in (wanted, loss):
        made.backward()
    for (name, one), other in zip(plain.named_parameters(), model.named_parameters(), strict=True):
        assert one.grad is not None and other[1].grad is not None, name
        torch.testing.assert_close(other[1].grad, one.grad, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_statistics_of_a_row_do_not_depend_on_its_batch(family: str, language_models: dict[str, Path]) -> None:
    model, encoder = build(language_models[family], FAMILIES[family], packed=True)
    model.eval()
    together = batch_of(encoder)
    rows = row_statistics(model, {**together, "index": torch.arange(len(ROWS))})
    assert rows[:, 1].tolist() == encoder.encode(ROWS, Counter())["response"].lengths.tolist()  # type: ignore[union-attr]
    for place, one in enumerate(ROWS):
        (alone,) = row_statistics(model, {**batch_of(encoder, [one]), "index": torch.zeros(1)})
        assert alone.tolist() == pytest.approx(rows[place].tolist(), abs=1e-4)
