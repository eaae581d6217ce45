"""Models in shards: filled by the first process, run by all in step, with less memory than a whole model."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForTokenClassification,
    LlamaConfig,
    RobertaConfig,
    T5Config,
)

from faithkit.fast import Packing, use_packed_attention
from faithkit.training.sharded_strategy import in_step, shard
from faithkit.weights.load import build_empty
from tests.process_groups import in_processes

SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 4}
LLAMA = (AutoModelForCausalLM, LlamaConfig(vocab_size=64, tie_word_embeddings=True, **SIZES))
T5 = (AutoModelForSeq2SeqLM, T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4))
ENCODER = (AutoModelForTokenClassification, RobertaConfig(vocab_size=64, **SIZES))
IDS = torch.arange(12).view(2, 6)


def whole_model(kind: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return kind.from_config(config).eval()


def sharded_model(whole: Any, kind: Any, config: Any, precision: str = "32-true") -> Any:
    """A model that the first process has, and the others know by its configuration alone."""
    model = whole if dist.get_rank() == 0 else build_empty(kind, config).eval()
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("data_parallel", "tensor_parallel"))
    shard(model, SimpleNamespace(root_device=torch.device("cpu"), device_mesh=mesh), precision=precision)
    return model


def run_unevenly() -> None:
    model, expected = sharded_model(whole_model(*LLAMA), *LLAMA), whole_model(*LLAMA)
    parameters = dict(model.named_parameters())
    assert all(isinstance(value, DTensor) and not value.is_meta for value in parameters.values())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight, "still tied"
    local, total = (sum(size(value) for value in parameters.values()) for size in (local_size, torch.numel))
    assert local == total // 2
    with torch.inference_mode():
        wanted = expected(IDS).logits
        for _ in range(2):  # the first process leaves the context three passes before the other, then they meet again
            with in_step(model):
                for _ in range(1 + 3 * dist.get_rank()):
                    assert torch.equal(model(IDS).logits, wanted)
        assert torch.equal(model(IDS).logits, wanted)


def local_size(value: Any) -> int:
    return int(value.to_local().numel())


def run_every_kind() -> None:
    untied = whole_model(*T5)
    untied.lm_head.weight = nn.Parameter(-untied.shared.weight.detach())  # by every configuration T5 is tied
    assert_same(untied, T5[0], T5[1], IDS, decoder_input_ids=IDS)
    packed = whole_model(*ENCODER)
    assert use_packed_attention(packed)
    assert_same(packed, ENCODER[0], packed.config, IDS[:1], packing=Packing.of([6], IDS.device))


@torch.inference_mode()
def assert_same(whole: Any, kind: Any, config: Any, ids: Any, **inputs: Any) -> None:
    """The second process leaves a pass before the first."""
    wanted = whole(ids, **inputs).logits
    model = sharded_model(whole, kind, config)
    with in_step(model):
        for _ in range(2 - dist.get_rank()):
            assert torch.equal(model(ids, **inputs).logits, wanted)


def gather_in_bf16() -> None:
    model, expected = sharded_model(whole_model(*LLAMA), *LLAMA, "bf16-mixed"), whole_model(*LLAMA)
    for one in (model, expected):
        with torch.autocast("cpu", torch.bfloat16):
            loss = one(IDS, labels=IDS).loss
        loss.backward()
    wanted, pairs = dict(expected.named_parameters()), []
    for name, value in model.named_parameters():
        assert value.dtype == value.grad.dtype == torch.float32, "the shards and what is added to them"
        assert torch.equal(value.full_tensor(), wanted[name]), "the weights are not rounded"
        pairs.append((value.grad.full_tensor().flatten(), wanted[name].grad.flatten()))
    found, gradient = (torch.cat(side) for side in zip(*pairs, strict=True))
    assert 0 < (found - gradient).norm() < 0.02 * gradient.norm()


@pytest.mark.parametrize("work", [run_unevenly, run_every_kind, gather_in_bf16])
def test_two_processes_with_the_weights_of_one_compute_what_one_does(work: Any) -> None:
    in_processes(2, work)
