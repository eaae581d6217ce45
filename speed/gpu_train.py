"""Measures training of RoBERTa-large (random weights) in BF16 on a CUDA GPU: tokens a second and matrix rate used.

The matrix rate is measured in the same run, by multiplying large BF16 matrices. Sequences of a batch have one length,
so that nothing is padding and attention needs no mask (the flash kernel); dropout, gradient clipping and the fused
AdamW are those of real training.

Needs: a CUDA GPU; of the packages only torch, transformers and numpy.

python -m speed.gpu_train                          eager, then with torch.compile
python -m speed.gpu_train --device cpu --tiny      tries the program itself, without figures to keep
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_modules.encoding.ragged import Ragged, offsets_of, pad_rows
from faithkit.training.optimizer import build_optimizer, parameter_groups
from speed.measure import report, table

MEDIAN_TOKENS, SPREAD, SHORTEST, LONGEST = 180, 0.6, 32, 512
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """The sizes of an encoder that its arithmetic depends on."""

    vocab_size: int = 50_265
    num_layers: int = 24
    hidden_size: int = 1024
    num_heads: int = 16

    def flops(self, batch_size: int, length: int) -> float:
        """Counts the FLOP of a training step's matrix products: forward, and twice that backward; embeddings have none.

        A layer multiplies each token with 12 hidden^2 weights (4 in attention, 8 in the feed-forward part), and with
        `length` keys and values.
        """
        weights = 12 * self.hidden_size**2
        attention = 2 * length * self.hidden_size
        return 3 * 2 * self.num_layers * (weights + attention) * batch_size * length


def main() -> int:
    """Measures the matrix rate, then the training, eager and compiled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=32_768, help="of a batch, at most")
    parser.add_argument("--steps", type=int, default=40, help="timed, after --warm-up")
    parser.add_argument("--warm-up", type=int, default=12)
    parser.add_argument("--tiny", action="store_true", help="a model of two small layers")
    parser.add_argument("--compile", choices=("both", "yes", "no"), default="both")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device is here: skipped", file=sys.stderr)
        return 0
    device = torch.device(options.device)
    shape = Shape(vocab_size=500, num_layers=2, hidden_size=64, num_heads=2) if options.tiny else Shape()
    if options.tiny:
        options.tokens, options.steps, options.warm_up = 1024, 4, 1
    torch.backends.cuda.matmul.allow_tf32 = True
    rate = matrix_rate(device, 512 if options.tiny else 8192)
    print(f"matrix rate {rate / 1e12:.1f} TFLOP/s", file=sys.stderr, flush=True)
    batches = make_batches(shape.vocab_size, options.tokens, 2048 if options.tiny else 16_384)
    rows = []
    for compiled in {"both": (False, True), "yes": (True,), "no": (False,)}[options.compile]:
        name = "torch.compile, layer by layer" if compiled else "eager"
        seconds, tokens, examples, flops = train(shape, batches, device, options, compiled)
        memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
        share = flops / seconds / rate
        rows.append([name, f"{tokens / seconds:,.0f}", f"{examples / seconds:,.0f}", f"{flops / seconds / 1e12:.1f}",
                     f"{share:.0%}", f"{memory:.1f}"])  # fmt: skip
        print(f"{name}: {tokens / seconds:,.0f} tokens/s, {share:.0%}", file=sys.stderr, flush=True)
    header = ["way", "tokens/s", "examples/s", "TFLOP/s", "share of the matrix rate", "GiB"]
    mean = np.mean([ids.shape[1] for ids in batches for _ in ids])
    body = (
        f"BF16 autocast over fp32 weights, batches of up to {options.tokens:,} tokens, no padding; lengths log-normal "
        f"(median {MEDIAN_TOKENS}, sigma {SPREAD}, {SHORTEST} to {LONGEST}; mean {mean:.0f}). Matrix rate measured in "
        f"this run: {rate / 1e12:.0f} TFLOP/s.\n\n{table(header, rows)}"
    )
    if options.tiny:
        print(body)
    else:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        report("Training RoBERTa-large on a GPU", body, device=name)
    return 0


def matrix_rate(device: torch.device, size: int, seconds: float = 1.0) -> float:
    """Measures the FLOP/s of BF16 matrix products: the best of five runs, since it serves as the ceiling."""
    left = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    right = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    _timed(lambda: left @ right, device)  # the first one chooses the kernel
    count = max(1, int(seconds / 5 / max(_timed(lambda: left @ right, device), 1e-6)))

    def multiply() -> None:
        for _ in range(count):
            left @ right

    return 2 * size**3 * count / min(_timed(multiply, device) for _ in range(5))


def _timed(work: Callable[[], Any], device: torch.device) -> float:
    _wait(device)
    begin = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - begin


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
        # The rest of a length makes a small batch: a stream would fill it from its next window.
        batches += [pad_rows(rows.take(chunk), 1) for chunk in chunks if len(chunk) == size or len(chunks) == 1]
    rng.shuffle(batches)
    return batches


def build(shape: Shape, device: torch.device) -> Any:
    """Builds the classifier with random weights."""
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(
        vocab_size=shape.vocab_size,
        num_hidden_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_heads,
        intermediate_size=4 * shape.hidden_size,
        max_position_embeddings=LONGEST + 2,
        type_vocab_size=1,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = RobertaForSequenceClassification(config)
    model.set_attn_implementation("sdpa")  # with no mask it takes the flash kernel
    return model.train()


def make_step(model: Any, device: torch.device) -> Step:
    """Makes the optimiser step: forward, backward, clipping at 1, fused AdamW; nothing makes the GPU wait."""
    optimizer = build_optimizer(parameter_groups(model, 1e-5, 0.1), 1e-5, betas=(0.9, 0.98))

    def step(ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=device.type == "cuda")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def train(
    shape: Shape, batches: list[NDArray[np.int64]], device: torch.device, options: Any, compiled: bool
) -> tuple[float, int, int, float]:
    """Trains; returns the seconds, tokens, examples and FLOP of the timed steps."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    model = build(shape, device)
    if compiled:
        for layer in model.roberta.encoder.layer:  # equal layers share what is compiled: seconds instead of minutes
            layer.compile(dynamic=True)
    step = make_step(model, device)
    supply = feed(batches, device)
    for _ in range(options.warm_up):
        step(*next(supply))
    done: list[torch.Size] = []
    losses = []

    def run() -> None:
        for _ in range(options.steps):
            ids, labels = next(supply)
            losses.append(step(ids, labels))
            done.append(ids.shape)

    seconds = _timed(run, device)
    assert bool(torch.isfinite(torch.stack(losses)).all()), "every loss is a number"
    tokens, examples = sum(rows * length for rows, length in done), sum(rows for rows, _ in done)
    return seconds, tokens, examples, sum(shape.flops(*size) for size in done)


def feed(batches: list[NDArray[np.int64]], device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields the batches on the device, over and over, copied while it computes."""
    pinned = device.type == "cuda"
    for array in cycle(batches):
        ids = torch.from_numpy(array)
        labels = ids[:, 0] % 2
        if pinned:
            ids, labels = ids.pin_memory(), labels.pin_memory()
        yield ids.to(device, non_blocking=True), labels.to(device, non_blocking=True)


if __name__ == "__main__":
    sys.exit(main())
