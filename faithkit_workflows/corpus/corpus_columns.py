"""Collects the numbers of each example of a corpus in columns, without the texts.

Examples are read one by one and released, so the memory for a corpus of any size is a few numbers per row.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.metrics.begin_tags import begin_class, speech_acts
from faithkit.metrics.responses.ngrams import measure_copying
from faithkit.records import HALLUCINATED, Example
from faithkit.words import words_and_marks

NUM_BINS = 50
UNKNOWN = -1
# The facets of examples with their fields in `meta`; split and turn are fields of the example.
FACETS: Mapping[str, tuple[str, ...]] = {
    "split": (),
    "task": ("task",),
    "corpus": ("corpus", "data_source"),
    "scenario": ("scenario",),
    "domain": ("domain",),
    "model": ("model", "model_name"),
    "turn": ("turn",),
    "quality": ("quality",),
    "temperature": ("temperature",),
    "severity": ("severity",),
    "topic": ("topic", "movie"),
    "topic_source": ("topic_source",),
}
PART_FIELDS = ("task", "scenario", "domain")  # the first of them in an example is its part of the corpus
# Columns of integers, with UNKNOWN for missing ones, and of real numbers, with NaN for missing ones.
WHOLE = (
    *("judged", "spans", "response_words", "context_words", "turn_words"),
    *("response_tokens", "context_tokens", "turn_tokens", "history", "edited", "rounds"),
)
REAL = ("coverage", "density", "original_coverage", "original_density")


class Names:
    """A column of names, stored as numbers."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.column = array("i")

    def add(self, name: Any) -> int:
        """Adds a row; None is UNKNOWN."""
        number = UNKNOWN if name is None else self.numbers.setdefault(name, len(self.numbers))
        self.column.append(number)
        return number

    @property
    def values(self) -> NDArray[np.intc]:
        return np.frombuffer(self.column, np.intc) if self.column else np.zeros(0, np.intc)


class Columns:
    """The columns of a corpus.

    Args:
        facets: Names of FACETS, or fields of `meta`, to group examples by; None takes all of FACETS.
        overlap: Measures density and coverage, which takes most of the time.
    """

    def __init__(self, facets: Sequence[str] | None = None, *, overlap: bool = True):
        self.facets = {name: Names() for name in (FACETS if facets is None else facets)}
        self.groups, self.contexts, self.parts, self.tasks = Names(), Names(), Names(), Names()
        self.whole = {name: array("l") for name in WHOLE}
        self.real = {name: array("f") for name in REAL}
        self.types: dict[int, Counter[str]] = defaultdict(Counter)  # by part
        self.positions: dict[int, NDArray[np.float64]] = {}
        self.classes: Counter[tuple[str, str]] = Counter()  # BEGIN's, by system
        self.acts: dict[str, Counter[str]] = defaultdict(Counter)  # VRM's, by BEGIN's class
        self.num_repeated = 0
        self._pairs: set[int] = set()
        self._knowledge: tuple[str, Sequence[str]] = ("", ())
        self._overlap = overlap

    def __len__(self) -> int:
        return len(self.groups.column)

    def add(self, example: Example) -> None:
        """Adds one example."""
        for name, column in self.facets.items():
            column.add(read_facet(example, name))
        task = read_part(example)
        part = self.parts.add((task, read_facet(example, "corpus")))
        self.tasks.add(task)
        group = self.groups.add(example.group)
        self.contexts.add((group, hash(example.knowledge)) if example.knowledge else None)
        pair = hash((example.knowledge, example.history, example.response))
        self.num_repeated += pair in self._pairs
        self._pairs.add(pair)
        self._count(example)
        self._read(example)
        self._mark(example, part)
        self._tag(example)

    def add_all(self, examples: Iterable[Example]) -> "Columns":
        """Adds examples, and returns itself."""
        for example in examples:
            self.add(example)
        return self

    def whole_column(self, name: str) -> NDArray[np.int64]:
        """Returns a column of integers [N]."""
        return np.frombuffer(self.whole[name], np.int64) if len(self) else np.zeros(0, np.int64)

    def real_column(self, name: str) -> NDArray[np.float32]:
        """Returns a column of real numbers [N]."""
        return np.frombuffer(self.real[name], np.float32) if len(self) else np.zeros(0, np.float32)

    def _count(self, example: Example) -> None:
        judged = UNKNOWN
        if example.label is not None or example.spans is not None:
            judged = int(bool(example.spans) if example.label is None else example.label == HALLUCINATED)
        original, rounds = example.original, example.meta.get("rounds")
        values = {
            "judged": judged,
            "spans": UNKNOWN if example.spans is None else len(example.spans),
            "history": len(example.history),
            "edited": UNKNOWN if original is None else int(original.strip() != example.response.strip()),
            "rounds": rounds if isinstance(rounds, int) else UNKNOWN,
        }
        for name, value in values.items():
            self.whole[name].append(value)

    def _read(self, example: Example) -> None:
        """Measures the texts, and how much of the knowledge the response and the original copy."""
        if example.knowledge != self._knowledge[0]:  # several systems respond to the same knowledge
            self._knowledge = (example.knowledge, words_and_marks(example.knowledge))
        knowledge, response = self._knowledge[1], words_and_marks(example.response)
        last = example.history[-1].text if example.history else None
        self._measure("response", example.response, response)
        self._measure("context", example.knowledge or None, knowledge)
        self._measure("turn", last, words_and_marks(last or ""))
        original = words_and_marks(example.original) if example.original else []
        for prefix, tokens in (("", response), ("original_", original)):
            known = self._overlap and tokens and knowledge
            coverage, density = measure_copying(tokens, knowledge) if known else (np.nan, np.nan)
            self.real[f"{prefix}coverage"].append(coverage)
            self.real[f"{prefix}density"].append(density)

    def _measure(self, name: str, text: str | None, tokens: Sequence[str]) -> None:
        self.whole[f"{name}_words"].append(UNKNOWN if text is None else words(text))
        self.whole[f"{name}_tokens"].append(UNKNOWN if text is None else len(tokens))

    def _mark(self, example: Example, part: int) -> None:
        types = self.types[part]
        if example.spans is None:
            types.update(map(str, example.meta.get("types") or ()))
            return
        types.update(span.label for span in example.spans)
        if example.spans:
            self.positions[part] = self.positions.get(part, 0) + positions(example)

    def _tag(self, example: Example) -> None:
        if (found := begin_class(example.tags)) is not None:
            self.classes[_system(example), found] += 1
            self.acts[found].update(speech_acts(example.meta.get("vrm")))


def _system(example: Example) -> str:
    """Returns the generator with its corpus; empty where both are unknown."""
    model, corpus = read_facet(example, "model"), read_facet(example, "corpus")
    return f"{model or 'all'} ({corpus})" if corpus else str(model or "")


def words(text: str) -> int:
    return len(text.split())


def read_facet(example: Example, facet: str) -> Any:
    """Returns the value of a facet; None where the example has none."""
    if facet == "split":
        return example.split
    given = next((found for name in FACETS.get(facet, (facet,)) if (found := example.meta.get(name)) is not None), None)
    if facet == "turn" and given is None:
        return len(example.history) // 2 + 1  # counts the responder's turns, whoever spoke first
    return given if given is None or isinstance(given, int | str) else str(given)


def read_part(example: Example) -> str:
    """Returns the part of a corpus: the task, scenario or domain of the example, or else the corpus."""
    return str(next((example.meta[name] for name in PART_FIELDS if example.meta.get(name)), example.source))


def positions(example: Example, num_bins: int = NUM_BINS) -> NDArray[np.float64]:
    """Sums the positions of spans in a response [num_bins]: each has weight 1, spread over its characters."""
    edges, total = np.linspace(0, 1, num_bins + 1), np.zeros(num_bins)
    for span in example.spans or ():
        if span.start < span.end:
            start, end = span.start / len(example.response), span.end / len(example.response)
            total += np.diff(np.clip(edges, start, end)) / (end - start)
    return total
