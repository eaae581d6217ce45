"""Makes what the benchmarks run on: texts and prompts, timed training, a trained critic, a random ModernBERT."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from pytorch_lightning.callbacks import Checkpoint
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
)

from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.embedded.corpus import generate
from data_modules.reading.dataset import GeneratedSource
from data_modules.splits import MixPart
from faithkit.files.run_folder import RunFolder
from faithkit.records import FAITHFUL, HALLUCINATED, SPAN_TYPES, Example, Span
from faithkit.training.module import build_optimizer
from faithkit.training.trainer import build_trainer, seed_and_threads
from faithkit.training.training_options import OptimizerOptions
from faithkit.weights.resolve import resolve
from speed.measure import clock_of, cpu_seconds

MEDIAN_TOKENS, SPREAD, SHORTEST, LONGEST = 80, 0.6, 20, 256
CONTEXT, ANSWER = (50, 900), (20, 200)  # tokens of tagged examples, log-uniform
ACCELERATORS = {"cpu": "cpu", "cuda": "gpu"}  # Lightning's names
SPAN_SHARE = 0.4  # of the answers have a span, as in RAGTruth
LR, CLIP = 1e-4, 1.0
Batch = Mapping[str, Tensor]
Lengths = NDArray[np.float64]  # tokens of each text
PAIRS = (
    f"lengths log-normal (median {MEDIAN_TOKENS} tokens, sigma {SPREAD}), cut to {SHORTEST} to {LONGEST}, made of the "
    "embedded corpus's sentences"
)
TAGGED = (
    f"contexts of {CONTEXT[0]} to {CONTEXT[1]} tokens and answers of {ANSWER[0]} to {ANSWER[1]} (log-uniform), made of "
    f"the embedded corpus's sentences; {SPAN_SHARE:.0%} of the answers have spans"
)


def make_pairs(tokenizer: Any, count: int) -> list[Example]:
    """Makes pairs of mixed lengths, none longer than `LONGEST` tokens, so that nothing is truncated."""
    rng = np.random.default_rng(0)
    totals = (MEDIAN_TOKENS * np.exp(rng.normal(0, SPREAD, count))).clip(SHORTEST, LONGEST)
    responses = np.minimum(_log_uniform(rng, (8, 24), count), totals / 2)
    return _make_examples(tokenizer, totals - responses - 3, responses, 0.0, rng)  # 3 special tokens


def make_tagged(tokenizer: Any, count: int) -> list[Example]:
    """Makes long contexts and answers, some of which have spans."""
    rng = np.random.default_rng(0)
    contexts, answers = (_log_uniform(rng, limits, count) for limits in (CONTEXT, ANSWER))
    return _make_examples(tokenizer, contexts, answers, SPAN_SHARE, rng)


def _log_uniform(rng: np.random.Generator, limits: tuple[int, int], count: int) -> Lengths:
    return np.exp(rng.uniform(np.log(limits[0]), np.log(limits[1]), count))


def _make_examples(
    tokenizer: Any, knowledge: Lengths, responses: Lengths, span_share: float, rng: np.random.Generator
) -> list[Example]:
    """Makes examples of the embedded corpus's sentences with these numbers of tokens and with random spans."""
    texts = [e.knowledge for e in generate("train", 4000)]
    sentences = list(dict.fromkeys(s + "." for text in texts for s in text.rstrip(".").split(". ")))
    sizes = [len(ids) for ids in tokenizer(sentences, add_special_tokens=False)["input_ids"]]
    examples = []
    for number, lengths in enumerate(zip(knowledge.tolist(), responses.tolist(), strict=True)):
        context, response = (_draw_text(sentences, sizes, int(length), rng) for length in lengths)
        spans = _draw_spans(response, rng) if rng.random() < span_share else ()
        examples.append(
            Example(
                id=f"mixed:{number}",
                source="mixed",
                split="train",
                group=str(number),
                knowledge=context,
                response=response,
                label=HALLUCINATED if spans or (number % 2 and not span_share) else FAITHFUL,
                spans=spans if span_share else None,
            )
        )
    return examples


def _draw_text(sentences: Sequence[str], sizes: Sequence[int], num_left: int, rng: np.random.Generator) -> str:
    """Joins random sentences up to a number of tokens; the last one is cut at a word."""
    chosen: list[str] = []
    while num_left > 0:
        place = int(rng.integers(len(sentences)))
        words = sentences[place].split(" ")
        num_kept = len(words) if sizes[place] <= num_left else max(1, len(words) * num_left // sizes[place])
        chosen.append(" ".join(words[:num_kept]))
        num_left -= sizes[place]
    return " ".join(chosen)


def _draw_spans(response: str, rng: np.random.Generator) -> tuple[Span, ...]:
    """Draws one or two spans of whole words."""
    starts = [0, *(i + 1 for i, character in enumerate(response) if character == " ")]
    ends = [*(start - 1 for start in starts[1:]), len(response)]
    found: list[Span] = []
    for half in np.array_split(np.arange(len(starts)), int(rng.integers(1, 3))):
        if len(half):
            first = int(rng.choice(half))
            last = min(first + int(rng.integers(1, 12)), int(half[-1]))
            found.append(Span(start=starts[first], end=ends[last], label=str(rng.choice(SPAN_TYPES))))
    return tuple(found)


@dataclass(frozen=True)
class InMemory(GeneratedSource):
    """A dataset of examples in memory; the validation split is the first four."""

    name: ClassVar[str] = "mixed"
    path: str = field(default="memory", init=False)
    training: list[Example]

    def sizes(self) -> Mapping[str, int]:
        return {"train": len(self.training)} | dict.fromkeys(("validation", "test"), len(self.training[:4]))

    def layout(self) -> Mapping[str, Any]:
        return {"size": len(self.training), "pairs": [e.knowledge + e.response for e in self.training]}

    def generate(self, split: str, start: int = 0) -> Iterator[Example]:
        yield from (self.training if split == "train" else self.training[:4])[start:]


def train_one_epoch(
    encoder: Any,
    build: Any,
    examples: list[Example],
    batch_size: int,
    lr: float,
    *,
    precision: str,
    monitor: str,
    device: str = "cpu",
) -> tuple[float, float]:
    """Trains in our Trainer with its callbacks but no checkpoints, on one thread or GPU.

    Args:
        build: Makes the module of optimizer options.

    Returns:
        The seconds of encoding, and of training from the first batch to the last: of the CPU, or wall time with a GPU.
    """
    clock, read_clock = [0.0], clock_of(device)

    class Clock(pl.Callback):
        def on_train_start(self, *_: Any) -> None:
            clock[0] -= read_clock()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx + 1 == trainer.num_training_batches:
                clock[0] += read_clock()

    seed_and_threads(seed=0, num_threads=1)
    data = DataModule([MixPart(InMemory(examples))], encoder, DataOptions(batch_size=batch_size))
    begin = read_clock()
    data.setup()
    encoded = read_clock() - begin
    optimizer = OptimizerOptions(lr=lr, weight_decay=0.01, warmup=0.1, schedule="linear")
    module = build(optimizer, num_steps=data.num_batches, dataset="mixed")
    callbacks = {"monitor": f"validation/mixed/{monitor}", "mode": "max", "patience": None, "save_every_seconds": 1e9}
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(
            RunFolder(Path(folder)),
            [],
            hardware={
                "accelerator": ACCELERATORS[device],
                "devices": 1,
                "strategy": "auto",
                "num_nodes": 1,
                "precision": precision,
            },
            callbacks={**callbacks, "log_every_num_steps": 10, "progress_bar": False},
            accumulate_grad_batches=1,
            gradient_clip_val=1.0,
            validation_interval=data.num_batches,
        )
        kept = [one for one in trainer.callbacks if not isinstance(one, Checkpoint)]  # type: ignore[attr-defined]
        trainer.callbacks = [*kept, Clock()]  # type: ignore[attr-defined]
        trainer.fit(module, datamodule=data)
    return encoded, clock[0]


def train_batches(
    model: Any, batches: Sequence[Batch], dtype: torch.dtype, compute_loss: Callable[[Any, Batch], Tensor]
) -> float:
    """Runs an optimizer step on each batch, with the weights in fp32; returns CPU-seconds.

    A first step, which allocates gradients and moments, does not count.
    """
    optimizer = build_optimizer(model, LR, 0.0)
    begin = 0.0
    for number, batch in enumerate([batches[-1], *batches]):
        if number == 1:
            begin = cpu_seconds()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = compute_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    return cpu_seconds() - begin


def write_tokenizer(folder: Path, examples: Sequence[Example] = ()) -> str:
    """Writes a byte-level BPE of the examples or the embedded corpus, with BERT's special tokens, to a folder."""
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    trained = ByteLevelBPETokenizer()
    texts = (f"{example.knowledge} {example.response}" for example in examples or generate("train", 4000))
    trained.train_from_iterator(texts, vocab_size=8000, special_tokens=list(special.values()), show_progress=False)
    cls, sep = (trained.token_to_id(special[f"{name}_token"]) for name in ("cls", "sep"))
    trained._tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", cls), ("[SEP]", sep)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        eos_token=special["sep_token"],
        **special,
    )
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_modernbert(folder: Path, *, hidden_size: int, num_layers: int, examples: Sequence[Example] = ()) -> str:
    """Writes a random ModernBERT encoder (window 128, each third layer global) with `write_tokenizer` to a folder."""
    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(folder, examples))
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 3 // 2,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        pad_token_id=tokenizer.pad_token_id,
        **dict.fromkeys(("cls_token_id", "bos_token_id"), tokenizer.cls_token_id),
        **dict.fromkeys(("sep_token_id", "eos_token_id"), tokenizer.sep_token_id),
    )
    torch.manual_seed(0)
    ModernBertModel(config).save_pretrained(folder)
    return str(folder)


def write_critic(folder: str) -> None:
    """Writes a critic of 2 layers of 32 with random weights and the words of `minilm`."""
    tokenizer = AutoTokenizer.from_pretrained(resolve("minilm"))
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    names = {0: "faithful", 1: "hallucinated"}
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, id2label=names, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
