"""Measures training and scoring on a CUDA GPU as a share of its BF16 matrix rate; random weights of the true shapes.

Training is that of `train.py` without checkpoints, from the first batch to the last; scoring is `Critic.score`, which
also tokenises. The matrix rate is measured in the same run, by multiplying large matrices. Products with padding do not
count. A language model runs with as many of its layers as fit. speed.tagger_speed runs on a GPU too (--device cuda).

python -m speed.gpu_speed                        some minutes; without a GPU it names what it would run
python -m speed.gpu_speed --device cpu --quick   tries the program with small models, without figures to keep
"""

import gc
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from critic import Critic
from critic.sequence.task import CriticTask
from data_modules.build import build_source
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.records import LABELS, Example
from judge.task import JudgeTask
from speed import gpu
from speed.measure import table
from speed.samples import make_pairs, train_one_epoch, write_tokenizer

LENGTH, LR, PRECISION = {"critic": 512, "judge": 1280}, 1e-5, "bf16-mixed"
BATCH_SIZE = {"critic": 256, "judge": 32}  # examples of a step
BYTES = 16 / 0.45  # that a trained weight takes with its moments, which may fill this share of the GPU's memory
AIMS = {  # shares of the matrix rate
    "critic, RoBERTa-large: training": 0.5,
    "critic, RoBERTa-large: scoring": 0.6,
    "judge, Llama-2-7B: training": 0.45,
}
HEADER = ["work", "layers", "rows/s", "tokens/s", "TFLOP/s", "share of the matrix rate", "aim", "peak GiB"]


def main() -> None:
    """Measures the matrix rate, then each row."""
    options = gpu.GpuParser(__doc__, examples=8192).parse()
    if options.missing:
        gpu.print_plan(HEADER, [[title, *["not run"] * 5, f"{aim:.0%}", "not run"] for title, aim in AIMS.items()])
        return
    rate = gpu.measure_matrix_rate(options.device, 512 if options.quick else 8192)
    rows = [measure(title, rate, options) for title in AIMS]
    about = f"""Training in {PRECISION}, scoring in bf16; pairs of the embedded corpus (critic), judgements of its
responses (judge). Matrix rate of this run: {rate / 1e12:.1f} TFLOP/s."""
    gpu.write_gpu_results("Training and scoring on a GPU", options, about, table(HEADER, rows))


def measure(title: str, rate: float, options: Namespace) -> list[str]:
    """Measures one row, after a smaller run that warms up; returns its cells."""
    gc.collect()  # the model before this one
    kind, is_training = title.split(",")[0], title.endswith("training")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = load_tokenizer(write_tokenizer(Path(folder)))
        _, model_class, sizes, _ = gpu.RECIPES[title.split(":")[0]]
        others = {
            "vocab_size": len(tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
            "id2label": dict(enumerate(LABELS)),
        }
        shape, num_layers = gpu.make_config(model_class, sizes, quick=options.quick, bytes_per_weight=BYTES, **others)
        torch.manual_seed(0)
        with torch.device(options.device):
            model = model_class(shape).to(torch.bfloat16)
        model.save_pretrained(folder)
        config, num_weights = model.config, gpu.count_weights(model)
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
        gpu.reset_peak(options.device)
        seconds = run(examples)
    lengths = task.encoder.encode(examples, Counter())["length"]
    flops = gpu.count_flops(num_weights, config, lengths) * (3 if is_training else 1) / seconds
    rates = [f"{amount / seconds:,.0f}" for amount in (len(lengths), lengths.sum())]
    shares = f"{flops / 1e12:.1f}", f"{flops / rate:.0%}", f"{AIMS[title]:.0%}"
    cells = [title, f"{config.num_hidden_layers} of {num_layers}", *rates, *shares, gpu.peak_gib(options.device)]
    print(*cells, sep=", ", file=sys.stderr, flush=True)
    return cells


if __name__ == "__main__":
    main()
