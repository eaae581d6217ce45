"""Makes pairs of mixed lengths from the embedded corpus, and trains a critic to score them with."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from data_modules.reading.generated import GeneratedSource
from faithkit.records import Example

MEDIAN_TOKENS, SPREAD, SHORTEST, LONGEST = 80, 0.6, 20, 256
DESCRIPTION = (
    f"lengths log-normal (median {MEDIAN_TOKENS} tokens, sigma {SPREAD}), cut to {SHORTEST} to {LONGEST}: embedded "
    "examples whose knowledge was made longer with sentences of other examples, or shortened"
)


def mixed_pairs(tokenizer: Any, count: int, seed: int = 0) -> list[Example]:
    """Makes examples of mixed lengths, none longer than `LONGEST` tokens, so that nothing has to be truncated."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", count, seed))
    sentences = [s + "." for e in generate("train", 4 * count, seed + 1) for s in e.knowledge.rstrip(".").split(". ")]
    size = {s: len(ids) for s, ids in zip(sentences, token_ids(tokenizer, sentences), strict=True)}
    responses = [len(ids) for ids in token_ids(tokenizer, [e.response for e in examples])]
    rng = np.random.default_rng(seed)
    targets = np.exp(rng.normal(np.log(MEDIAN_TOKENS), SPREAD, count)).clip(SHORTEST, LONGEST)
    supply = iter(sentences * 4)
    pairs = []
    for example, target, num_response in zip(examples, targets, responses, strict=True):
        chosen, total = [next(supply)], num_response + 3  # special tokens
        total += size[chosen[0]]
        while total + size[following := next(supply)] <= target:
            chosen.append(following)
            total += size[following]
        if total <= LONGEST:
            pairs.append(replace(example, knowledge=" ".join(chosen)))
    return pairs


def token_ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Tokenises texts without special tokens."""
    return tokenizer(texts, add_special_tokens=False)["input_ids"]


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

    def generate(self, split: str, start: int = 0, stop: int | None = None) -> Iterator[Example]:
        chosen = self.training if split == "train" else self.training[:4]
        yield from chosen[start:stop]


def demo_critic(home: Path) -> str:
    """Trains the critic of `make demo` once, keeps it in the cache, and returns its run folder."""
    run = home / "critic"
    if not (run / "hf").exists():
        print("training the demo's critic to score with (once, kept in the cache)", file=sys.stderr, flush=True)
        root = Path(__file__).resolve().parent.parent
        arguments = ["model=critic", "trainer=cpu", "callbacks.progress_bar=false", f"run_dir={run}"]
        shutil.rmtree(run, ignore_errors=True)  # left by an interrupted training
        subprocess.run([sys.executable, "train.py", *arguments], cwd=root, check=True, stdout=sys.stderr)
    return str(run)
