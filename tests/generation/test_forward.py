"""A batch through the model: transformers' own loss, whatever the layout of the batch, and only where a response is."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from data_modules.encoding.sequence_layout import TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.fast import use_packed_attention
from faithkit.training.language_model import row_statistics, run_model, token_losses
from generation.weights import ARCHITECTURES, load_generator
from tests.data_modules.examples import HISTORY, example

FAMILIES = {"t5": "seq2seq", "bart": "seq2seq", "gpt2": "causal", "llama": "causal"}
ROWS = [
    example(knowledge="the river is long " * n, history=HISTORY[: n % 3], response="it is long " * (n % 4 + 1))
    for n in range(1, 6)
]


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
