"""The contrastive objective on models is the same as passing each candidate through the model by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch

from faithkit.errors import UserError
from tests.generation.contrast import ROWS, batch_of, loss_of, objective_of, prepared, the_long_way
from tests.generation.test_forward import FAMILIES, build

QUERIES = [
    ("t5", "encoder_first"),
    ("t5", "encoder_mean"),
    ("t5", "decoder_first"),
    ("bart", "encoder_mean"),
    ("bart", "decoder_first"),
    ("gpt2", None),
    ("llama", None),
]


@pytest.mark.slow
@pytest.mark.parametrize("in_batch", [False, True, "all"])
@pytest.mark.parametrize(("family", "query"), QUERIES)
def test_loss_and_gradients_are_those_of_every_candidate_alone(
    family: str, query: str | None, in_batch: bool | str, language_models: dict[str, Path]
) -> None:
    folder = language_models[family]
    model, objective, encoder = prepared(folder, family, query=query, in_batch=in_batch)
    plain, _ = build(folder, FAMILIES[family], packed=False)
    twin = objective_of(query=objective.query, in_batch=in_batch)
    twin.set_up(plain, 0)
    wanted = the_long_way(plain, twin, encoder)
    loss, _ = loss_of(model, objective, batch_of(encoder))
    torch.testing.assert_close(loss, wanted, rtol=0, atol=1e-5)
    for made in (wanted, loss):
        made.backward()
    ours = [*model.named_parameters(), *objective.named_parameters()]
    theirs = [*plain.parameters(), *twin.parameters()]
    for (name, one), other in zip(ours, theirs, strict=True):
        assert one.grad is not None and other.grad is not None, name
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-5)
    assert objective.projection.weight.grad.abs().max() > 1e-5, "the projection is trained"


@pytest.mark.parametrize("in_batch", [False, "all"])
@pytest.mark.parametrize("family", ["t5", "bart", "llama"])
def test_a_row_of_padding_changes_no_gradient(
    family: str, in_batch: bool | str, language_models: dict[str, Path]
) -> None:
    gradients = []
    for rows, padding in ((ROWS, ()), ([*ROWS, ROWS[0]], (4,))):
        model, objective, encoder = prepared(language_models[family], family, in_batch=in_batch)
        loss, logged = loss_of(model, objective, batch_of(encoder, rows, padding))
        loss.backward()
        gradients.append(
            [loss, *logged.values(), *(p.grad for p in model.parameters()), objective.projection.weight.grad]
        )
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["t5", "bart", "gpt2", "llama"])
def test_bf16_is_finite_and_near_fp32(family: str, language_models: dict[str, Path]) -> None:
    model, objective, encoder = prepared(language_models[family], family)
    batch = batch_of(encoder)
    wanted, _ = loss_of(model, objective, batch)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, _ = loss_of(model, objective, batch)
    check_training(mixed, wanted, model, objective)
    whole, _ = loss_of(model.bfloat16(), objective.bfloat16(), batch)
    check_training(whole, wanted, model, objective)


def check_training(loss: torch.Tensor, wanted: torch.Tensor, *modules: torch.nn.Module) -> None:
    loss.backward()
    assert loss.item() == pytest.approx(wanted.item(), abs=0.05)
    grads = [parameter.grad for module in modules for parameter in module.parameters()]
    assert all(bool(grad.isfinite().all()) for grad in grads if grad is not None)
    for module in modules:
        module.zero_grad()


@pytest.mark.parametrize(
    ("family", "values", "words"),
    [
        ("llama", {"query": "encoder_mean"}, "encoder_mean does not go with a causal model"),
        ("t5", {"query": "context_last"}, "context_last does not go with an encoder-decoder"),
        ("t5", {"query": "middle"}, "objective.query is 'middle'"),
        ("t5", {"weight": 0.0}, "objective.weight is 0.0"),
        ("t5", {"temperature": -1.0}, "objective.temperature"),
        ("t5", {"in_batch": "gold"}, "objective.in_batch is 'gold'"),
        ("t5", {"num_negatives": 0}, "num_negatives is 0"),
    ],
)
def test_a_setting_that_cannot_be_is_told(
    family: str, values: dict[str, Any], words: str, language_models: dict[str, Path]
) -> None:
    with pytest.raises(UserError, match=words):
        prepared(language_models[family], family, **values)
