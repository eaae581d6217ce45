"""Measures training and scoring on a CUDA GPU as a share of its BF16 matrix rate; random weights of the true shapes.

Training is that of `train.py` with its callbacks, from the first batch to the last; scoring is `Critic.score`, which
also tokenises. The matrix rate is measured in the same run, by multiplying large matrices. Products with padding do not
count. A language model runs with as many of its layers as fit.

Needs: a CUDA GPU. `python -m speed.tagger_speed --device cuda` compares the tagger with LettuceDetect's on it.

python -m speed.gpu_speed                        some minutes; without a GPU it names what it would run
python -m speed.gpu_speed --device cpu --quick   tries the program with small models, without figures to keep
"""

import gc
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, RobertaConfig, RobertaForSequenceClassification

from critic import Critic
from critic.sequence.task import CriticTask
from data_modules.build import build_source
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.records import LABELS, Example
from faithkit.weights.load import build_empty
from judge.task import JudgeTask
from speed.measure import BenchmarkParser, synchronize, table, write_results
from speed.samples import make_pairs, train_one_epoch, write_tokenizer

LENGTH, LR, PRECISION = {"critic": 512, "judge": 1280}, 1e-5, "bf16-mixed"
BATCH_SIZE = {"critic": 256, "judge": 8}  # examples of a step
ROBERTA = {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
LLAMA = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11_008}
QUICK = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
BYTES, SHARE = 16, 0.6  # that a trained weight takes with its moments; of the GPU's memory that these may take
AIMS = {  # shares of the matrix rate
    "critic, RoBERTa-large: training": 0.5,
    "critic, RoBERTa-large: scoring": 0.6,
    "judge, Llama-2-7B: training": 0.45,
}
HEADER = ["work", "layers", "rows/s", "tokens/s", "TFLOP/s", "share of the matrix rate", "aim", "peak GiB"]


def main() -> None:
    """Measures the matrix rate, then each row."""
    parser = BenchmarkParser(__doc__, examples=8192)
    parser.add_argument("--device", default="cuda")
    options = parser.parse()
    if options.device == "cuda" and not torch.cuda.is_available():
        planned = table(HEADER, [[title, *["not run"] * 5, f"{aim:.0%}", "not run"] for title, aim in AIMS.items()])
        print(f"not run: there is no CUDA device. With one, it measures:\n{planned}")
        return
    rate = measure_matrix_rate(options.device, 512 if options.quick else 8192)
    rows = [measure(title, rate, options) for title in AIMS]
    about = (
        f"Training in {PRECISION}, scoring in bf16; pairs of the embedded corpus (critic), judgements of its responses "
        f"(judge). Matrix rate of this run: {rate / 1e12:.1f} TFLOP/s."
    )
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    write_results("Training and scoring on a GPU", about, table(HEADER, rows), quick=options.quick, device=name)


def measure(title: str, rate: float, options: Namespace) -> list[str]:
    """Measures one row, after a smaller run that warms up; returns its cells."""
    kind = title.split(",")[0]
    gc.collect()  # the model before this one
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = load_tokenizer(write_tokenizer(Path(folder)))
        model, num_layers = build_model(kind, tokenizer, options)
        model.save_pretrained(folder)
        num_weights, config = count_weights(model), model.config
        del model
        if kind == "critic":
            examples = make_pairs(tokenizer, options.examples)
        else:
            examples = list(read_examples(build_source("halludial", "embedded"), "train", ReadReport()))
            examples = examples[: options.examples // 8]
        task = build_task(kind, folder)
        run = partial(train, task, kind) if title.endswith("training") else load_scorer(folder, options.device)
        run(examples[: max(8, len(examples) // 8)], options.device)
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = run(examples, options.device)
    lengths = task.encoder.encode(examples, Counter())["length"]
    flops = count_flops(num_weights, config, lengths) * (3 if title.endswith("training") else 1) / seconds
    peak = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else 0.0
    rates = f"{len(lengths) / seconds:,.0f}", f"{lengths.sum() / seconds:,.0f}", f"{flops / 1e12:.1f}"
    layers = f"{config.num_hidden_layers} of {num_layers}"
    return [title, layers, *rates, f"{flops / rate:.0%}", f"{AIMS[title]:.0%}", f"{peak:.1f}"]


def build_model(kind: str, tokenizer: Any, options: Namespace) -> tuple[Any, int]:
    """Builds a model with random weights in bf16 with the layers that can be trained; returns it and all its layers."""
    sizes: dict[str, Any] = {**(ROBERTA if kind == "critic" else LLAMA), **(QUICK if options.quick else {})}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "id2label": dict(enumerate(LABELS))}
    places = LENGTH[kind] + tokenizer.pad_token_id + 1  # RoBERTa counts positions from there
    make, model_class = (
        (RobertaConfig, RobertaForSequenceClassification) if kind == "critic" else (LlamaConfig, LlamaForCausalLM)
    )
    config = make(**sizes, max_position_embeddings=places)
    num_layers = config.num_hidden_layers
    if options.device == "cuda":
        room = SHARE * torch.cuda.get_device_properties(0).total_memory / BYTES
        fitting = num_layers * room / build_empty(model_class, config).num_parameters()
        config.num_hidden_layers = max(1, min(num_layers, int(fitting)))
    torch.manual_seed(0)
    with torch.device(options.device):
        model: Any = model_class(config)
    return model.to(torch.bfloat16), num_layers


def build_task(kind: str, folder: str) -> Any:
    """Builds the task of `train.py`; each row of a judge is read whole."""
    optimizer = {"lr": LR, "weight_decay": 0.01, "warmup": 0.1, "schedule": "linear"}
    model: dict[str, Any] = {"weights": folder, "max_length": LENGTH[kind]}
    if kind == "critic":
        return CriticTask(optimizer=optimizer, model=model)
    return JudgeTask(optimizer=optimizer, model=model | {"share_beginnings": False})


def train(task: Any, kind: str, examples: list[Example], device: str) -> float:
    """Trains one epoch; returns its seconds."""

    def build(_: Any, **about: Any) -> Any:
        return task.module(seed=0, **about)

    about = {"precision": PRECISION, "monitor": "macro_f1", "device": device}
    return train_one_epoch(task.encoder, build, examples, BATCH_SIZE[kind], LR, **about)[1]


def load_scorer(folder: str, device: str) -> Callable[[list[Example], str], float]:
    """Loads a critic; returns what scores examples and returns the seconds."""
    critic = Critic.load(folder, device=device, precision="bf16")

    def score(examples: list[Example], device: str) -> float:
        begin = time.perf_counter()
        critic.score([example.knowledge for example in examples], [example.response for example in examples])
        return time.perf_counter() - begin

    return score


def count_weights(model: Any) -> int:
    """Counts the weights that every token is multiplied with: those of the layers' matrices."""
    return sum(value.numel() for name, value in model.named_parameters() if value.ndim == 2 and "layer" in name)


def count_flops(num_weights: int, config: Any, lengths: NDArray[Any]) -> float:
    """Counts the FLOP of a forward pass, 2 a product; each token meets all keys and values, half if causal."""
    keys = lengths.astype(float) ** 2 * (0.5 if config.architectures[0].endswith("CausalLM") else 1.0)
    attention = 2 * config.hidden_size * config.num_hidden_layers * keys.sum()
    return float(2 * (num_weights * lengths.sum() + attention))


def measure_matrix_rate(device: str, size: int, seconds: float = 1.0) -> float:
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
    count = max(1, int(seconds / 5 / max(multiply(1), 1e-6)))
    return 2 * size**3 * count / min(multiply(count) for _ in range(5))


if __name__ == "__main__":
    main()
