"""With `fast=false`, and with a torch that lacks private operators, models give the outputs of the fast paths."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from torch import Tensor

from critic import Critic
from faithkit import fast
from faithkit.fast import hardware, packing
from faithkit.fast.model_layers import first_token_only, keep_answers, replace_layers
from tests.faithkit.fast.test_model_layers import batch as t5_batch
from tests.faithkit.fast.test_model_layers import build as build_t5
from tests.faithkit.fast.test_packing import SIZE
from tests.tiny import words, write_critic

KNOWLEDGE, RESPONSES = [words(40, 3), words(9)], [words(12, 5), words(20, 2)]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Looks for operators again, on a CPU whose MKL is slow, so that oneDNN is used wherever tests run."""
    monkeypatch.setattr(hardware, "has_slow_mkl", lambda: True)
    yield
    hardware.has_operator.cache_clear()
    packing.has_amx.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_critic(tmp_path_factory.mktemp("critic"))


def score(folder: Path, precision: str = "32-true") -> tuple[Any, Tensor]:
    critic = Critic.load(folder, device="cpu", precision=precision)
    return critic.model, torch.from_numpy(critic.odds(critic.encoder.encode_texts(KNOWLEDGE, RESPONSES)))


def train(is_t5: bool) -> tuple[Any, Tensor]:
    """Gives a model after a step, and its gradients."""
    torch.manual_seed(0)
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = t.BertForSequenceClassification(t.BertConfig(**SIZE, **no_dropout)).train()
    model: Any = build_t5(feed_forward_proj="gated-gelu") if is_t5 else encoder
    fast.accelerate_training(model, fast.EVERY_TOKEN if is_t5 else fast.FIRST_TOKEN)
    fast.accelerate(model)
    encoded = {name: t5_batch()[name].clamp(max=49) for name in ("input_ids", "attention_mask")}
    inputs = {**t5_batch(), "use_cache": False} if is_t5 else fast.pack_inputs(model, encoded)
    model(**inputs).logits.pow(3).mean().backward()
    return model, torch.cat([weights.grad.flatten() for weights in model.parameters() if weights.grad is not None])


@pytest.mark.parametrize(
    "compute", [score, lambda _: train(False), lambda _: train(True)], ids=["critic", "bert", "t5"]
)
def test_the_switch_runs_transformers_alone(compute: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, found = compute(folder)
    weights = {name: value.shape for name, value in model.state_dict().items()}
    monkeypatch.setenv(fast.SWITCH, "0")
    plain, expected = compute(folder)
    assert {name: value.shape for name, value in plain.state_dict().items()} == weights
    ours = [any(type(one).__module__.startswith("faithkit") for one in each.modules()) for each in (plain, model)]
    assert ours == [False, True]
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


class Without:
    """A namespace of torch without one of its names."""

    def __init__(self, namespace: Any, missing: str):
        self._namespace, self._missing = namespace, missing

    def __getattr__(self, name: str) -> Any:
        if name == self._missing:
            raise AttributeError(f"no {name}")
        return getattr(self._namespace, name)


NAMES = [*(name for name in hardware.OPERATORS if "flash" not in name), "ops.onednn.qlinear_prepack"]


@pytest.mark.parametrize("changed", [None, lambda *_: torch.zeros(())], ids=["missing", "changed"])
@pytest.mark.parametrize("name", NAMES)
def test_without_a_private_operator_outputs_are_the_same_and_one_line_names_it(
    name: str, changed: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compute() -> list[Tensor]:
        fast.best_precision("cpu")
        return [score(folder)[1], score(folder, "bf16")[1], train(False)[1], train(True)[1]]

    expected = compute()
    *parents, last = name.split(".")
    namespace: Any = torch
    for parent in parents:
        namespace = getattr(namespace, parent)
    if changed is not None:
        monkeypatch.setattr(namespace, last, changed)
    elif parents[0] == "ops":
        monkeypatch.setattr(torch.ops, parents[1], Without(namespace, last))
    else:
        monkeypatch.delattr(namespace, last)
    hardware.has_operator.cache_clear()
    with caplog.at_level(logging.WARNING, "faithkit"):
        found = compute()
        if "onednn" in name:
            found[1] = score(folder, "int8")[1]
    for one, other, tolerance in zip(found, expected, (1e-5, 0.1, 1e-4, 1e-4), strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=tolerance * float(other.abs().max()))
    [line] = [text for record in caplog.records if (text := record.getMessage()).startswith("torch.")]
    assert line.startswith((f"torch.{name} ", "torch.ops.onednn.qlinear_pointwise ")) and "in transformers" in line


@pytest.mark.gpu
def test_without_the_flash_kernel_packed_rows_are_computed_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    side = torch.randn(1, 2, 9, 8, device="cuda", dtype=torch.bfloat16)
    rows = fast.Packing.of((4, 5), "cuda")
    attend = lambda: packing.packed_attention(torch.nn.Module(), side, side, side, None, packing=rows)[0]  # noqa: E731
    expected = attend()
    monkeypatch.setattr(torch.ops, "aten", Without(torch.ops.aten, "_flash_attention_forward"))
    hardware.has_operator.cache_clear()
    assert torch.allclose(attend(), expected, atol=2e-2)


def test_an_emulated_precision_is_reported_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for computes, is_reported in ((False, True), (True, False)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda computes=computes: computes)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert ("emulated" in hardware.describe(torch.nn.Linear(2, 2), "cpu", "bf16-mixed")) is is_reported
        assert ("emulated" in hardware.describe(torch.nn.Linear(2, 2).to(torch.bfloat16), "cpu")) is is_reported
        assert "emulated" not in hardware.describe(torch.nn.Linear(2, 2), "cpu", "32-true")


def test_in_bf16_the_frequencies_of_rotary_positions_stay_exact() -> None:
    size = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 48}
    model = hardware.to_bf16(t.ModernBertModel(t.ModernBertConfig(vocab_size=50, pad_token_id=1, **size)))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.rotary_emb.full_attention_inv_freq.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "name", "task"),
    [
        (replace_layers, "Bart", "ConditionalGeneration"),
        *((first_token_only, name, "SequenceClassification") for name in ("ModernBert", "DebertaV2", "Electra")),
        *((keep_answers, name, "TokenClassification") for name in ("DebertaV2", "Electra")),
    ],
)
def test_models_with_other_layers_or_heads_stay_as_they_are(change: Any, name: str, task: str) -> None:
    model = getattr(t, f"{name}For{task}")(getattr(t, f"{name}Config")(**{**SIZE, "pad_token_id": 1}))
    before = [type(module) for module in model.modules()]
    change(model)
    assert [type(module) for module in model.modules()] == before
