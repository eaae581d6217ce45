"""Control tokens as `control=ctrl` sets them up: the features in use, and how each is measured."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import Columns
from data_modules.encoding.sequence_layout import CONTROL_TOKENS
from faithkit.detector import CONTRADICTION, ENTAILMENT, NEUTRAL, Entailment
from faithkit.errors import UserError
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.files.model_folder import find_folder
from faithkit.records import Example
from faithkit.weights.resolve import resolve
from faithkit.words import VERSION as WORDS_VERSION
from generation.control.response_features import (
    ENTAILMENTS,
    OVERLAP,
    OVERLAPS,
    RELEASE_ENTAILMENT,
    VOICE,
    lexical_overlap,
    objective_voice,
    release_overlap,
)

# The level (0 is unwanted, 2 wanted) of each class of an entailment model.
LEVELS = np.zeros(3, np.int8)
LEVELS[[CONTRADICTION, NEUTRAL, ENTAILMENT]] = 0, 1, 2
LEVELS_FILE = "levels.npy"
ENTAILED = LEVELS[ENTAILMENT]
EMPTY_RESPONSE_LEVEL = LEVELS[NEUTRAL]


def entailment_levels(examples: Sequence[Example], model: Entailment) -> NDArray[np.int8]:
    """Computes the level of each pair; equal pairs are scored once, an empty response is neutral."""
    pairs = [(example.knowledge, example.response) for example in examples]
    asked = list(dict.fromkeys(pair for pair in pairs if pair[1].strip()))
    found = dict.fromkeys(pairs, EMPTY_RESPONSE_LEVEL)
    if asked:
        probabilities = model.entailment([pair[0] for pair in asked], [pair[1] for pair in asked])
        found |= dict(zip(asked, LEVELS[np.asarray(probabilities).argmax(1)], strict=True))
    return np.array([found[pair] for pair in pairs], np.int8)


def cached_levels(examples: Sequence[Example], digest: str, ask: Callable[[], NDArray[np.int8]]) -> NDArray[np.int8]:
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


VERSION = 2  # raise it when a feature is measured differently

log = logging.getLogger("faithkit")


class Ctrl:
    """Measures the features of control tokens.

    Rashkin et al. 2021, "Increasing Faithfulness in Knowledge-Grounded Dialogue with Controllable Features". In
    training the levels of the response are a prefix of the input; in decoding, the levels of a faithful answer are.
    Use it with a mixture of faithful and unfaithful responses, if none should be left out.

        p(y | c_1 ... c_k, knowledge, history)
        voice:       no word of the first person singular in y
        overlap:     |words of y in the knowledge| / |words of y|, by the terciles of the training split
        entailment:  argmax over contradiction, neutral, entailment of (knowledge, y)

    | related | differs in | use it when |
    | --- | --- | --- |
    | `objective=loss_truncation` | leaves the least likely responses out | nothing shall be measured beforehand |
    | `objective=infonce` | contrasts with negatives | there are responses that were not to be given |
    | `best_of=N detector=...` | chooses after decoding | the generator cannot be trained again |

    Example:
        >>> from generation.control.ctrl import Ctrl
        >>> from faithkit.records import Example, Turn
        >>> texts = {"knowledge": "Bread is baked from flour.", "history": (), "response": "I bake bread from flour."}
        >>> example = Example(id="1", source="test", split="test", group="1", **texts)
        >>> ctrl = Ctrl(groups=["voice", "overlap"], entailment=None, load=lambda name: None)
        >>> {name: column.tolist() for name, column in ctrl.measure([example]).items()}
        {'voice': [0], 'overlap': [0.6]}

    On the command line: `faithkit train model=t5 control=ctrl control.entailment=runs/CRITIC`. With
    `control=ctrl_release` overlap and terciles are those of FaithDial's release
    (`generation.control.response_features`), and a
    response is entailed or not: contradiction and neutral are one level.

    Args:
        groups: Names of control groups, in the order of `data_modules.encoding.sequence_layout.CONTROL_TOKENS`.
        entailment: A critic of ours or an NLI model. None leaves that group out, and logs it.
        load: Loads the model of that name; called when it is first needed.
    """

    def __init__(self, *, groups: Sequence[str], entailment: str | None, load: Callable[[str], Entailment]):
        if unknown := [group for group in groups if group not in CONTROL_TOKENS]:
            hint = f"use some of {', '.join(CONTROL_TOKENS)}, in this order"
            raise UserError(f"unknown control group {unknown[0]!r}", place="control.groups", hint=hint)
        if entailment is None and any(group in ENTAILMENTS for group in groups):
            log.info("control: no entailment group, for control.entailment names no critic and no NLI model")
            groups = [group for group in groups if group not in ENTAILMENTS]
        if not groups:
            hint = "name some in control.groups; entailment needs control.entailment=PATH"
            raise UserError("control without any group", hint=hint)
        self.groups, self.entailment, self.load = tuple(groups), entailment, load
        self._model: Entailment | None = None

    @cached_property
    def digest(self) -> str:
        """A hash of the entailment model, for the keys of caches."""
        assert self.entailment is not None
        return model_digest(self.entailment)

    def fingerprint(self) -> str:
        """Returns everything besides the examples that determines the measured values, for the keys of caches."""
        model = f":{self.digest}" if any(group in ENTAILMENTS for group in self.groups) else ""
        return f"ctrl:{VERSION}:{','.join(self.groups)}{model}"

    def measure(self, examples: Sequence[Example], *, keep: bool = False) -> Columns:
        """Measures all groups of the examples' responses; gives a column of values [examples] a group.

        Args:
            keep: Stores the entailment model's levels for later launches.
        """
        return {group: self._values(group, examples, keep) for group in self.groups}

    def _values(self, group: str, examples: Sequence[Example], keep: bool) -> np.ndarray:
        if group == VOICE:
            return np.array([objective_voice(example.response) for example in examples], np.int8)
        if group in OVERLAPS:
            overlap = lexical_overlap if group == OVERLAP else release_overlap
            return np.array([overlap(e.knowledge, e.response) for e in examples], np.float64)
        found = self._kept(examples) if keep else entailment_levels(examples, self._loaded())
        return (found == ENTAILED).astype(np.int8) if group == RELEASE_ENTAILMENT else found

    def _kept(self, examples: Sequence[Example]) -> np.ndarray:
        def ask() -> np.ndarray:
            log.info("computing entailment with %s for %s responses (cached)", self.entailment, f"{len(examples):,}")
            return entailment_levels(examples, self._loaded())

        return cached_levels(examples, self.digest, ask)

    def _loaded(self) -> Entailment:
        if self._model is None:
            assert self.entailment is not None
            self._model = self.load(self.entailment)
        return self._model

    def release(self) -> None:
        """Frees the entailment model; it is loaded again when it is needed again."""
        self._model = None
