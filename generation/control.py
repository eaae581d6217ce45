"""Control tokens (CTRL): features of responses that a generator learns, and can be asked for.

Rashkin et al. 2021, "Increasing Faithfulness in Knowledge-Grounded Dialogue with Controllable Features". A feature is a
number, higher if the response is likelier to be faithful. Its level counts the tokens of its group from the unwanted
one (0) to the wanted one.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import Columns
from data_modules.encoding.sequence_layout import CONTROL_TOKENS
from faithkit.detector import CONTRADICTION, ENTAILMENT, NEUTRAL, Entailment
from faithkit.errors import UserError, shorten
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.files.model_folder import find_folder
from faithkit.records import Example
from faithkit.settings.config_files import CONTROL_SOURCES, MEASURED, OFFICIAL
from faithkit.weights.resolve import resolve
from faithkit.words import VERSION as WORDS_VERSION
from faithkit.words import apostrophe_words, word_set

VOICE, OVERLAP, ENTAILED = CONTROL_TOKENS  # the names of the groups
FIRST_PERSON = word_set("i me my myself mine")
LEVELS = np.zeros(3, np.int8)  # of the classes of an entailment model
LEVELS[[CONTRADICTION, NEUTRAL, ENTAILMENT]] = 0, 1, 2
LEVELS_FILE = "levels.npy"
OFFICIAL_FIELD = "control_tokens"  # of FaithDial's files, and of `meta`
# The tokens of FaithDial's release by group, from the unwanted level to the wanted one. Those of entailment have the
# levels that `entailment_levels=2` measures.
OFFICIAL_TOKENS = {
    VOICE: {"<first-person>": 0, "<no-first-person>": 1},
    OVERLAP: {"<low-prec>": 0, "<med-prec>": 1, "<high-prec>": 2},
    ENTAILED: {"<non-entailed>": 1, "<entailed>": 2},
}
VERSION = 3  # raised when a feature is measured differently

Terciles = tuple[float, float]
log = logging.getLogger("faithkit")


def check_controlled(groups: Sequence[str]) -> None:
    """Refuses a model that was trained without control tokens."""
    if not groups:
        problem = "this model was trained without control tokens: there is nothing to ask for"
        raise UserError(problem, hint="train it with control=ctrl")


def control_tokens(groups: Sequence[str], names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Chooses one token of each of the model's control groups, in their order.

    Args:
        groups: The control groups of the model's layout.
        names: Tokens such as `high-overlap`. A group that is not named gets the token of a faithful answer: no first
            person, high overlap, entailed.

    Raises:
        UserError: A name that the model does not know, or two of one group.
    """
    known = {token.strip("<|>"): group for group in groups for token in CONTROL_TOKENS[group]}
    named: dict[str, str] = {}
    for name in (name.strip("<|>") for name in names or ()):
        if name not in known:
            without = "leave control_tokens out, or train it with control=ctrl"
            hint = f"use some of {', '.join(known)}" if known else without
            raise UserError(f"this model knows no control token {name!r}", place="control_tokens", hint=hint)
        other = named.setdefault(known[name], name)
        if other != name:
            problem = f"control tokens {other!r} and {name!r} exclude each other"
            raise UserError(problem, place="control_tokens", hint="name one of them")
    return tuple(f"<|{named[group]}|>" if group in named else CONTROL_TOKENS[group][-1] for group in groups)


def objective_voice(response: str) -> bool:
    """Returns whether a response has no word of the first person singular, including "I'm" and "I'd"."""
    return FIRST_PERSON.isdisjoint(part for word in apostrophe_words(response) for part in word.split("'"))


def lexical_overlap(knowledge: str, response: str) -> float:
    """Computes the share of the response's words that the knowledge contains, with repetitions; 0 without words."""
    words, knowledge_words = apostrophe_words(response), set(apostrophe_words(knowledge))
    return sum(word in knowledge_words for word in words) / len(words) if words else 0.0


def fit_terciles(values: NDArray[np.float64]) -> Terciles:
    """Finds the two boundaries that cut values into three parts of about equal size.

    A value that equals a boundary belongs above it, so equal values share a part and the upper part is never empty.
    """
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    return float(low), float(high)


def levels(values: Mapping[str, Any], terciles: Terciles | None) -> NDArray[np.int64]:
    """Turns measured features into levels: the number of each row's token in its group [rows, groups].

    Args:
        values: The measured features by group [rows], in the groups' order.
        terciles: Boundaries of the lexical overlap; None if it is not among the groups, or is a level already.
    """
    columns = dict(values)
    if OVERLAP in columns and terciles is not None:
        columns[OVERLAP] = np.searchsorted(terciles, columns[OVERLAP], side="right")
    return np.stack([np.asarray(column).astype(np.int64) for column in columns.values()], axis=1)


class Ctrl:
    """Measures the features of control tokens.

    In training the levels of the response are a prefix of the input; in decoding, the levels of a faithful answer are.
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
        >>> from generation.control import Ctrl
        >>> from faithkit.records import Example, Turn
        >>> texts = {"knowledge": "Bread is baked from flour.", "history": (), "response": "I bake bread from flour."}
        >>> example = Example(id="1", source="test", split="test", group="1", **texts)
        >>> ctrl = Ctrl(groups=["voice", "overlap"], entailment=None, load=lambda name: None)
        >>> {name: column.tolist() for name, column in ctrl.measure([example]).items()}
        {'voice': [0], 'overlap': [0.6]}

    On the command line: `faithkit train model=t5 control=ctrl control.entailment=runs/CRITIC`.

    Args:
        groups: Names of control groups, in the order of `data_modules.encoding.sequence_layout.CONTROL_TOKENS`.
        entailment: A critic of ours or an NLI model. None leaves that group out, and logs it.
        load: Loads the model of that name; called when it is first needed.
        source: `measured`, or `official`: the `control_tokens` of FaithDial's files, as its release wrote them. Rows of
            validation and test without them get those of a faithful answer.
        entailment_levels: 3, or 2 as in FaithDial's release: a contradicted response gets the token of a neutral one.
    """

    def __init__(
        self,
        *,
        groups: Sequence[str],
        entailment: str | None,
        load: Callable[[str], Entailment],
        source: str = MEASURED,
        entailment_levels: int = 3,
    ):
        if unknown := [group for group in groups if group not in CONTROL_TOKENS]:
            hint = f"use some of {', '.join(CONTROL_TOKENS)}, in this order"
            raise UserError(f"unknown control group {unknown[0]!r}", place="control.groups", hint=hint)
        if source not in CONTROL_SOURCES:
            raise UserError(f"control.source is {source!r}", hint=f"use {' or '.join(CONTROL_SOURCES)}")
        if entailment_levels not in (2, 3):
            raise UserError(f"control.entailment_levels is {entailment_levels!r}", hint="use 2 or 3")
        self.source, self.entailment_levels = source, entailment_levels
        if entailment is None and ENTAILED in groups and source == MEASURED:
            log.info("control: no entailment group, because control.entailment names no critic and no NLI model")
            groups = [group for group in groups if group != ENTAILED]
        if not groups:
            hint = "name some in control.groups; entailment needs control.entailment=PATH"
            raise UserError("control without any group", hint=hint)
        self.groups, self.entailment, self.load = tuple(groups), entailment or "", load
        self._model: Entailment | None = None

    @cached_property
    def digest(self) -> str:
        """The entailment model's hash for the keys of caches: the content of its folder, or else its hub name."""
        exists = Path(self.entailment).expanduser().exists()
        source = find_folder(self.entailment) if exists else Path(resolve(self.entailment))
        if not source.is_dir():
            return self.entailment
        digest = hashlib.blake2b(digest_size=16)
        for file in sorted(f for f in source.iterdir() if f.suffix in (".json", ".safetensors")):
            with file.open("rb") as loaded:
                digest.update(file.name.encode() + hashlib.file_digest(loaded, "blake2b").digest())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """Returns everything besides the examples that determines the measured values, for the keys of caches."""
        groups = ",".join(self.groups)
        if self.source == OFFICIAL:
            return f"ctrl:{VERSION}:{OFFICIAL}:{groups}"
        model = f":{self.entailment_levels}:{self.digest}" if ENTAILED in self.groups else ""
        return f"ctrl:{VERSION}:{groups}{model}"

    def measure(self, examples: Sequence[Example], *, keep: bool = False) -> Columns:
        """Measures all groups of the examples' responses; returns a column of values [examples] for each group.

        Args:
            keep: Stores the entailment model's levels for later launches.

        Raises:
            UserError: With `source=official`, a training row without official tokens, or other tokens than these.
        """
        if self.source == OFFICIAL:
            place, hint = "control.source=official", "set control.source=measured"
            rows = []
            for example in examples:
                tokens = example.meta.get(OFFICIAL_FIELD)
                if not tokens and example.split.startswith("train"):
                    raise UserError(f"row {example.id} has no {OFFICIAL_FIELD}", place=place, hint=hint)
                if not tokens:  # those of a faithful answer
                    rows.append([max(of_group.values()) for of_group in OFFICIAL_TOKENS.values()])
                    continue
                known = zip(tokens, OFFICIAL_TOKENS.values(), strict=False)
                found = [of_group[token] for token, of_group in known if token in of_group]
                if not len(found) == len(tokens) == len(OFFICIAL_TOKENS):
                    names = "; ".join(", ".join(of_group) for of_group in OFFICIAL_TOKENS.values())
                    problem = f"row {example.id}: {OFFICIAL_FIELD} is {shorten(tokens)}, not one each of {names}"
                    raise UserError(problem, place=place, hint=hint)
                rows.append(found)
            official = np.array(rows, np.int8).reshape(len(rows), len(OFFICIAL_TOKENS))
            return {group: official[:, list(OFFICIAL_TOKENS).index(group)] for group in self.groups}
        columns: Columns = {}
        for group in self.groups:
            if group == VOICE:
                columns[group] = np.array([objective_voice(e.response) for e in examples], np.int8)
            elif group == OVERLAP:
                columns[group] = np.array([lexical_overlap(e.knowledge, e.response) for e in examples], np.float64)
            else:
                column = self._read_levels(examples) if keep else self._entailment_levels(examples)
                columns[group] = column if self.entailment_levels == 3 else np.maximum(column, LEVELS[NEUTRAL])
        return columns

    def _entailment_levels(self, examples: Sequence[Example]) -> NDArray[np.int8]:
        """Computes the level of each pair; equal pairs are scored once, an empty response is neutral."""
        self._model = self._model or self.load(self.entailment)
        pairs = [(example.knowledge, example.response) for example in examples]
        asked = list(dict.fromkeys(pair for pair in pairs if pair[1].strip()))
        found = dict.fromkeys(pairs, LEVELS[NEUTRAL])
        if asked:
            probabilities = self._model.entailment([pair[0] for pair in asked], [pair[1] for pair in asked])
            found |= dict(zip(asked, LEVELS[np.asarray(probabilities).argmax(1)], strict=True))
        return np.array([found[pair] for pair in pairs], np.int8)

    def _read_levels(self, examples: Sequence[Example]) -> NDArray[np.int8]:
        """Reads the levels of these pairs by this model from the cache, or computes them.

        The key has the content of both, and the version of words, which choose the parts of long knowledge that a model
        reads.
        """
        key = hashlib.blake2b(f"{WORDS_VERSION}:{self.digest}".encode(), digest_size=16)
        for example in examples:
            for text in (example.knowledge, example.response):
                data = text.encode(errors="surrogatepass")
                key.update(len(data).to_bytes(8, "little") + data)

        def build(folder: Path) -> None:
            count = f"{len(examples):,}"
            log.info("computing entailment with %s for %s responses (cached)", self.entailment, count)
            np.save(folder / LEVELS_FILE, self._entailment_levels(examples))

        entry = cache_dir("entailment") / key.hexdigest()
        return cache_entry(entry, build, lambda folder: np.load(folder / LEVELS_FILE))

    def release(self) -> None:
        """Frees the entailment model; it is loaded again when it is needed again."""
        self._model = None
