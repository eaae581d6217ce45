"""Measures training and scoring on a CUDA GPU as a share of its BF16 matrix rate; random weights of the true shapes.

Training is that of `train.py` without checkpoints, from the first batch to the last; scoring is `Critic.score`, which
also tokenises. The matrix rate is measured in the same run, by multiplying large matrices. Products with padding do not
count. A language model runs with as many of its layers as fit. speed.tagger_speed runs on a GPU too (--device cuda).

python -m speed.gpu_speed                        some minutes; without a GPU it names what it would run
python -m speed.gpu_speed --device cpu --quick   tries the program with small models, without figures to keep
"""

import argparse
import gc
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import transformers as t
from numpy.typing import NDArray

from critic import Critic
from critic.sequence.task import CriticTask
from data_modules.build import build_source
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.records import LABELS, Example
from faithkit.weights.load import build_empty
from generation.doha import DohaForConditionalGeneration
from judge.task import JudgeTask
from speed.measure import BenchmarkParser, gpu_name, synchronize, table, write_results
from speed.samples import make_pairs, train_one_epoch, write_tokenizer

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
LENGTH, LR, PRECISION = {"critic": 512, "judge": 1280}, 1e-5, "bf16-mixed"
BATCH_SIZE = {"critic": 256, "judge": 32}  # examples of a step
BYTES = 16 / 0.45  # that a trained weight takes with its moments, which may fill this share of the GPU's memory
AIMS = {  # shares of the matrix rate
    "critic, RoBERTa-large: training": 0.5,
    "critic, RoBERTa-large: scoring": 0.6,
    "judge, Llama-2-7B: training": 0.45,
}
HEADER = ["work", "layers", "rows/s", "tokens/s", "TFLOP/s", "share of the matrix rate", "aim", "peak GiB"]


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


def main() -> None:
    """Measures the matrix rate, then each row."""
    options = GpuParser(__doc__, examples=8192).parse()
    if options.missing:
        print_plan(HEADER, [[title, *["not run"] * 5, f"{aim:.0%}", "not run"] for title, aim in AIMS.items()])
        return
    rate = measure_matrix_rate(options.device, 512 if options.quick else 8192)
    rows = [measure(title, rate, options) for title in AIMS]
    about = f"""Training in {PRECISION}, scoring in bf16; pairs of the embedded corpus (critic), judgements of its
responses (judge). Matrix rate of this run: {rate / 1e12:.1f} TFLOP/s."""
    write_gpu_results("Training and scoring on a GPU", options, about, table(HEADER, rows))


def measure(title: str, rate: float, options: Namespace) -> list[str]:
    """Measures one row, after a smaller run that warms up; returns its cells."""
    gc.collect()  # the model before this one
    kind, is_training = title.split(",")[0], title.endswith("training")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = load_tokenizer(write_tokenizer(Path(folder)))
        _, model_class, sizes, _ = RECIPES[title.split(":")[0]]
        others = {
            "vocab_size": len(tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
            "id2label": dict(enumerate(LABELS)),
        }
        shape, num_layers = make_config(model_class, sizes, quick=options.quick, bytes_per_weight=BYTES, **others)
        torch.manual_seed(0)
        with torch.device(options.device):
            model = model_class(shape).to(torch.bfloat16)
        model.save_pretrained(folder)
        config, num_weights = model.config, count_weights(model)
        del model
        judged, size = read_examples(build_source("halludial", "embedded"), "train", ReadReport()), options.examples
        examples = make_pairs(tokenizer, size) if kind == "critic" else list(islice(judged, size // 16))
        optimizer = {"lr": LR, "weight_decay": 0.01, "warmup": 0.1, "schedule": "linear"}
        # Each row of a judge is read whole.
        task_class, given = (CriticTask, {}) if kind == "critic" else (JudgeTask, {"share_beginnings": False})
        task: Any = task_class(optimizer=optimizer, model={"weights": folder, "max_length": LENGTH[kind], **given})
        critic = None if is_training else Critic.load(folder, device=options.device, precision="bf16")

        def run(some: list[Example]) -> float:
            """Trains one epoch, or scores; returns the seconds."""
            if critic is None:
                build = lambda _, **about: task.module(seed=0, **about)  # noqa: E731
                about: dict[str, Any] = {"precision": PRECISION, "monitor": "macro_f1", "device": options.device}
                return train_one_epoch(task.encoder, build, some, BATCH_SIZE[kind], LR, **about)[1]
            begin = time.perf_counter()
            critic.score([example.knowledge for example in some], [example.response for example in some])
            return time.perf_counter() - begin

        run(examples[: max(8, len(examples) // 8)])
        reset_peak(options.device)
        seconds = run(examples)
    lengths = task.encoder.encode(examples, Counter())["length"]
    flops = count_flops(num_weights, config, lengths) * (3 if is_training else 1) / seconds
    rates = [f"{amount / seconds:,.0f}" for amount in (len(lengths), lengths.sum())]
    shares = f"{flops / 1e12:.1f}", f"{flops / rate:.0%}", f"{AIMS[title]:.0%}"
    cells = [title, f"{config.num_hidden_layers} of {num_layers}", *rates, *shares, peak_gib(options.device)]
    print(*cells, sep=", ", file=sys.stderr, flush=True)
    return cells


if __name__ == "__main__":
    main()
