"""Lists the paper recipes and their shapes, cuts models to what fits on a GPU, and measures its rate and memory."""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers as t
from numpy.typing import NDArray

from faithkit.weights.load import build_empty
from generation.doha import DohaForConditionalGeneration
from speed.measure import BenchmarkParser, synchronize, table, write_results

ENCODER: dict[str, Any] = {"hidden_size": 1024, "num_attention_heads": 16}
ROBERTA = ENCODER | {"num_hidden_layers": 24, "intermediate_size": 4096, "max_position_embeddings": 514}
MODERNBERT = {**ENCODER, "num_hidden_layers": 28, "intermediate_size": 2624}
T5 = {"d_model": 768, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12, "d_ff": 3072, "d_kv": 64}
GPT2 = {"n_embd": 768, "n_layer": 12, "n_head": 12, "attn_pdrop": 0}
MEDIUM = {**GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16}
SIDE = {"layers": 6, "ffn_dim": 3072, "attention_heads": 12}
BART = {"d_model": 768} | {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIDE.items()}
LLAMA: dict[str, Any] = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
LLAMA |= {"intermediate_size": 11_008}
LARGER = {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13_824}
QUICK = {"head": 4, "layer": 2, "position": 4096, "pdrop": 0, "d_kv": 16}  # sizes by a part of their name; others: 64
LONG = "model.max_length=4096"  # ModernBERT needs no windows
# By title: overrides of configs/, class, sizes, and the GPUs that share a batch.
RECIPES: dict[str, tuple[str, Any, dict[str, Any], int]] = {
    "critic, RoBERTa-large": ("model=critic", t.RobertaForSequenceClassification, ROBERTA, 1),
    "tagger, RoBERTa-large": ("model=tagger", t.RobertaForTokenClassification, ROBERTA, 1),
    "tagger, ModernBERT-large": (f"model=tagger {LONG}", t.ModernBertForTokenClassification, MODERNBERT, 1),
    "T5-base": ("model=t5", t.T5ForConditionalGeneration, T5, 1),
    "GPT-2": ("model=gpt2", t.GPT2LMHeadModel, GPT2, 1),
    "DialoGPT-medium": ("model=dialogpt", t.GPT2LMHeadModel, MEDIUM, 1),
    "DoHA, BART-base": ("model=doha", DohaForConditionalGeneration, BART, 1),
    "judge, Llama-2-7B": ("model=judge", t.LlamaForCausalLM, LLAMA, 8),
    "judge, Llama-2-13B with LoRA": ("model=judge_lora", t.LlamaForCausalLM, LARGER, 8),
}


class GpuParser(BenchmarkParser):
    """Adds `--device`, a GPU by default."""

    def __init__(self, description: str | None, **sizes: int):
        super().__init__(description, **sizes)
        self.add_argument("--device", default="cuda")

    def parse(self) -> argparse.Namespace:
        """Parses the command line; `missing` is whether there is no such device."""
        options = super().parse()
        options.missing = options.device == "cuda" and not torch.cuda.is_available()
        return options


def print_plan(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints what would be measured with a GPU."""
    print(f"not run: there is no CUDA device. With one, it measures:\n{table(header, rows)}")


def write_gpu_results(title: str, options: argparse.Namespace, *parts: str) -> None:
    """Writes a section with the name of the GPU."""
    write_results(title, *parts, quick=options.quick, device=gpu_name(options.device) or "CPU")


def gpu_name(device: str) -> str:
    """Returns the name of a GPU, empty for a CPU."""
    return torch.cuda.get_device_name() if device == "cuda" else ""


def make_config(
    model_class: Any, sizes: Mapping[str, int], *, quick: bool, bytes_per_weight: float = 0.0, **others: Any
) -> tuple[Any, int]:
    """Makes a model's configuration; returns it and how many layers the whole model has.

    Args:
        quick: Makes all sizes small.
        bytes_per_weight: Leaves the model as many layers as a GPU's memory has room for.
        others: Further values of the configuration.
    """
    if quick:
        sizes = {name: next((small for part, small in QUICK.items() if part in name), 64) for name in sizes}
    config = model_class.config_class(**sizes, **others)
    layers = int(config.num_hidden_layers)
    if bytes_per_weight and torch.cuda.is_available():
        room = torch.cuda.get_device_properties(0).total_memory / bytes_per_weight
        fitting = layers * room / build_empty(model_class, config).num_parameters()
        config.num_hidden_layers = max(1, min(layers, int(fitting)))
    return config, layers


def reset_peak(device: str) -> None:
    """Begins to measure the peak of a GPU's memory."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_gib(device: str) -> str:
    """Formats the peak of a GPU's memory since `reset_peak`."""
    return f"{torch.cuda.max_memory_allocated() / 2**30 if device == 'cuda' else 0.0:.1f}"


def count_weights(model: Any) -> int:
    """Counts the weights that every token is multiplied with: those of the layers' matrices."""
    return sum(value.numel() for name, value in model.named_parameters() if value.ndim == 2 and "layer" in name)


def count_flops(num_weights: int, config: Any, lengths: NDArray[Any]) -> float:
    """Counts the FLOP of a forward pass, 2 a product; each token meets all keys and values, half if causal."""
    keys = lengths.astype(float) ** 2 * (0.5 if config.architectures[0].endswith("CausalLM") else 1.0)
    attention = 2 * config.hidden_size * config.num_hidden_layers * keys.sum()
    return float(2 * (num_weights * lengths.sum() + attention))


def measure_matrix_rate(device: str, size: int) -> float:
    """Measures the FLOP/s of BF16 matrix products: the best of five runs, because it serves as the ceiling."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def multiply(count: int) -> float:
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(count):
            left @ right
        synchronize(device)
        return time.perf_counter() - begin

    multiply(1)  # the first one chooses the kernel
    count = max(1, int(0.2 / max(multiply(1), 1e-6)))  # of a run of 0.2 seconds
    return 2 * size**3 * count / min(multiply(count) for _ in range(5))
