"""Measures training of RoBERTa-large (random weights) in BF16 on a CUDA GPU: tokens a second and matrix rate used.

The matrix rate is measured in the same run, by multiplying large BF16 matrices. Sequences of a batch have one length,
so that nothing is padding and attention needs no mask (the flash kernel); dropout, gradient clipping and the fused
AdamW are those of real training.

Needs: a CUDA GPU; of the packages only torch, transformers and numpy.

python -m speed.gpu_train                        eager, then with torch.compile
python -m speed.gpu_train --device cpu --quick   tries the program with a small model, without figures to keep
"""

import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import RobertaConfig, RobertaForSequenceClassification

from data_modules.encoding.ragged import Ragged, offsets_of, pad_rows
from faithkit.training.module import build_optimizer, parameter_groups
from speed.measure import BenchmarkParser, table, write_results

MEDIAN_TOKENS, SPREAD, SHORTEST, LONGEST = 180, 0.6, 32, 512
LARGE = {"vocab_size": 50_265, "num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16}
SMALL = {"vocab_size": 500, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
Sizes = dict[str, int]  # of the model, named as in RobertaConfig


def main() -> None:
    """Measures the matrix rate, then the training, eager and compiled."""
    parser = BenchmarkParser(__doc__, tokens=32_768, steps=40, sequences=16_384)
    parser.add_argument("--device", default="cuda")
    options = parser.parse()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: no CUDA device", file=sys.stderr)
        return
    device, sizes = torch.device(options.device), SMALL if options.quick else LARGE
    torch.backends.cuda.matmul.allow_tf32 = True
    rate = measure_matrix_rate(device, 512 if options.quick else 8192)
    batches = make_batches(sizes["vocab_size"], options.tokens, options.sequences)
    rows = []
    for compiled in (False,) if options.quick else (False, True):
        seconds, shapes, gib = train(sizes, batches, device, options.steps, compiled)
        flops = sum(count_flops(sizes, *shape) for shape in shapes) / seconds
        tokens, examples = (sum(column) / seconds for column in zip(*((n * m, n) for n, m in shapes), strict=True))
        figures = [f"{tokens:,.0f}", f"{examples:,.0f}", f"{flops / 1e12:.1f}", f"{flops / rate:.0%}", f"{gib:.1f}"]
        rows.append(["torch.compile, layer by layer" if compiled else "eager", *figures])
    about = (
        f"BF16 autocast over fp32 weights, batches of up to {options.tokens:,} tokens, no padding; lengths log-normal "
        f"(median {MEDIAN_TOKENS}, sigma {SPREAD}, {SHORTEST} to {LONGEST}). Matrix rate measured in this run: "
        f"{rate / 1e12:.1f} TFLOP/s."
    )
    header = ["way", "tokens/s", "examples/s", "TFLOP/s", "share of the matrix rate", "GiB"]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    write_results("Training RoBERTa-large on a GPU", about, table(header, rows), quick=options.quick, device=name)


def count_flops(sizes: Sizes, batch_size: int, length: int) -> int:
    """Counts the FLOP of a training step's matrix products: forward, and twice that backward; embeddings have none.

    A layer multiplies each token with 12 hidden^2 weights (4 in attention, 8 in the feed-forward part), and with
    `length` keys and values.
    """
    weights, attention = 12 * sizes["hidden_size"] ** 2, 2 * length * sizes["hidden_size"]
    return 3 * 2 * sizes["num_hidden_layers"] * (weights + attention) * batch_size * length


def measure_matrix_rate(device: torch.device, size: int, seconds: float = 1.0) -> float:
    """Measures the FLOP/s of BF16 matrix products: the best of five runs, because it serves as the ceiling."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    time_work(lambda: left @ right, device)  # the first one chooses the kernel
    count = max(1, int(seconds / 5 / max(time_work(lambda: left @ right, device), 1e-6)))
    best = min(time_work(lambda: [left @ right for _ in range(count)], device) for _ in range(5))
    return 2 * size**3 * count / best


def time_work(work: Callable[[], Any], device: torch.device) -> float:
    """Returns the seconds of some work, the device's included."""
    wait = torch.cuda.synchronize if device.type == "cuda" else int
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


def make_batches(vocab_size: int, max_tokens: int, count: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Makes random sequences in shuffled batches, each of one length, as full as `max_tokens` allows."""
    rng = np.random.default_rng(seed)
    # Multiples of eight suit the tensor cores, and give fewer shapes.
    lengths = (np.exp(rng.normal(np.log(MEDIAN_TOKENS), SPREAD, count)).clip(SHORTEST, LONGEST) // 8 * 8).astype(int)
    rows = Ragged(rng.integers(5, vocab_size, int(lengths.sum()), np.int32), offsets_of(lengths))
    batches = []
    for length in np.unique(lengths):
        of_length, size = np.flatnonzero(lengths == length), max(1, max_tokens // length)
        chunks = [of_length[i : i + size] for i in range(0, len(of_length), size)]
        # The rest of a length would make a small batch; a stream would fill it from its next window.
        batches += [pad_rows(rows.take(chunk), 1) for chunk in chunks if len(chunk) == size or len(chunks) == 1]
    rng.shuffle(batches)
    return batches


def train(
    sizes: Sizes, batches: list[NDArray[np.int64]], device: torch.device, num_steps: int, compiled: bool
) -> tuple[float, list[tuple[int, int]], float]:
    """Trains a model with random weights; returns the seconds, the shapes and the peak GiB of the timed steps."""
    config: dict[str, Any] = {**sizes, "intermediate_size": 4 * sizes["hidden_size"], "type_vocab_size": 1}
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = RobertaForSequenceClassification(RobertaConfig(**config, max_position_embeddings=LONGEST + 2))
    model.set_attn_implementation("sdpa")  # without a mask it uses the flash kernel
    model.train()
    if compiled:
        for layer in model.roberta.encoder.layer:  # equal layers share the compiled code: seconds instead of minutes
            layer.compile(dynamic=True)
    optimizer = build_optimizer(parameter_groups(model, 1e-5, 0.1), 1e-5, betas=(0.9, 0.98))
    is_cuda, supply, losses, shapes = device.type == "cuda", cycle(batches), [], []
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(device)

    def run(count: int) -> None:
        for array in islice(supply, count):
            ids = torch.from_numpy(array)
            ids = (ids.pin_memory() if is_cuda else ids).to(device, non_blocking=True)  # nothing makes the GPU wait
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(input_ids=ids).logits
            loss = torch.nn.functional.cross_entropy(logits.float(), ids[:, 0] % 2)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=is_cuda)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            shapes.append(array.shape)

    run(max(1, num_steps // 3))  # to warm up
    shapes.clear()
    seconds = time_work(lambda: run(num_steps), device)
    assert bool(torch.isfinite(torch.stack(losses)).all()), "every loss is a number"
    return seconds, shapes, torch.cuda.max_memory_allocated(device) / 2**30 if is_cuda else 0.0


if __name__ == "__main__":
    main()
