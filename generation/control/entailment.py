"""The entailment feature: levels by a critic or an NLI model, computed once for each pair and kept in the cache."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faithkit import entailment
from faithkit.entailment import Entailment
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.files.model_folder import find_folder
from faithkit.records import Example
from faithkit.weights.resolve import resolve
from faithkit.words import VERSION as WORDS_VERSION

# The level (0 is unwanted, 2 wanted) of each class of an entailment model.
LEVELS = np.zeros(3, np.int8)
LEVELS[[entailment.CONTRADICTION, entailment.NEUTRAL, entailment.ENTAILMENT]] = 0, 1, 2
LEVELS_FILE = "levels.npy"
ENTAILED = LEVELS[entailment.ENTAILMENT]
SAYS_NOTHING = LEVELS[entailment.NEUTRAL]


def entailment_levels(examples: Sequence[Example], model: Entailment) -> NDArray[np.int8]:
    """Gives the level of each (knowledge, response); equal pairs are scored once, an empty response is neutral."""
    pairs = [(example.knowledge, example.response) for example in examples]
    asked = list(dict.fromkeys(pair for pair in pairs if pair[1].strip()))
    found = dict.fromkeys(pairs, SAYS_NOTHING)
    if asked:
        probabilities = model.entailment([pair[0] for pair in asked], [pair[1] for pair in asked])
        found |= dict(zip(asked, LEVELS[np.asarray(probabilities).argmax(1)], strict=True))
    return np.array([found[pair] for pair in pairs], np.int8)


def kept_levels(examples: Sequence[Example], digest: str, ask: Callable[[], NDArray[np.int8]]) -> NDArray[np.int8]:
    """Reads the levels of these pairs by this model from the cache, keyed by the content of both.

    Also by the version of words: they choose what a model that is asked reads of long knowledge.

    Args:
        ask: Gives the levels, where the cache does not have them.
    """
    key = hashlib.blake2b(f"{WORDS_VERSION}:{digest}".encode(), digest_size=16)
    for example in examples:
        for text in (example.knowledge, example.response):
            data = text.encode(errors="surrogatepass")
            key.update(len(data).to_bytes(8, "little") + data)

    def build(folder: Path) -> None:
        np.save(folder / LEVELS_FILE, ask())

    return cache_entry(cache_dir("entailment") / key.hexdigest(), build, lambda folder: np.load(folder / LEVELS_FILE))


def model_digest(checkpoint: str) -> str:
    """Hashes a model for the keys of caches: the content of its folder, or else its hub name."""
    path = Path(checkpoint).expanduser()
    source = find_folder(checkpoint) if path.exists() else Path(resolve(checkpoint))
    if not source.is_dir():
        return checkpoint
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(f for f in source.iterdir() if f.suffix in (".json", ".safetensors")):
        with file.open("rb") as loaded:
            digest.update(file.name.encode() + hashlib.file_digest(loaded, "blake2b").digest())
    return digest.hexdigest()
