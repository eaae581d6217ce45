"""Statistics of a corpus of marked responses: how much is hallucinated, of which types, by whom, and how long.

The numbers are those of RAGTruth's own analysis (Niu et al. 2024, section 4: tables 2 to 4, figures 2 and 3), for any
corpus of spans. An example's meta tells its task, its generator and, where a task draws on several corpora, the corpus.
Words are what white space parts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from faithkit.errors import UserError
from faithkit.records import HALLUCINATED, Example
from faithkit.span_types import SPAN_LABELS

ALL = "all"
NUM_BUCKETS = 5
NUM_BINS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts how much of some responses is hallucinated; density is spans per hundred words over all of them."""

    num_responses: int
    num_hallucinated: int
    num_spans: int
    num_words: int

    @property
    def share(self) -> float:
        return self.num_hallucinated / self.num_responses

    @property
    def density(self) -> float:
        return 100 * self.num_spans / max(1, self.num_words)

    @property
    def spans_each(self) -> float:
        return self.num_spans / self.num_responses

    def to_dict(self) -> dict[str, float]:
        """Gives the counts and the ratios of them."""
        return asdict(self) | {"share": self.share, "density": self.density, "spans_each": self.spans_each}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of texts, in words."""

    mean: float
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """A line of table 2: contexts are measured once a source, whoever answered."""

    num_sources: int
    counts: Counts
    context: Lengths
    response: Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A cell of table 4: the responses whose length, or whose context's, lies in (low, high]; the first has low too."""

    low: int
    high: int
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusStats:
    """The numbers of a corpus; in `basic` and `models`, `all` stands for all tasks together.

    Args:
        basic: Table 2, by part: a task, or a task's corpus where it has several.
        models: Table 3, by generator, then task.
        types: Figure 2: spans by part, then type.
        positions: Figure 3, by part: which share of the spans lies in each of equal parts of the responses; sums to 1.
        context_buckets, response_buckets: Table 4, by task.
        num_unmarked: Examples that were passed over, since nobody marked their spans.
    """

    basic: dict[str, Basic]
    models: dict[str, dict[str, Counts]]
    types: dict[str, dict[str, int]]
    positions: dict[str, list[float]]
    context_buckets: dict[str, list[Bucket]]
    response_buckets: dict[str, list[Bucket]]
    num_unmarked: int

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, for JSON."""
        return {name: _plain(getattr(self, name)) for name in CorpusStats.__slots__}


def corpus_stats(examples: Iterable[Example]) -> CorpusStats:
    """All numbers of the marked examples.

    Raises:
        UserError: No example has marked spans.
    """
    every = list(examples)
    marked = [example for example in every if example.spans is not None]
    if not marked:
        raise UserError(f"none of {len(every):,} examples has marked spans", hint="choose a corpus or split with spans")
    tasks, parts = _by(marked, task_of), _by(marked, parts_of(marked))
    together = {ALL: marked} if len(parts) > 1 else {}
    return CorpusStats(
        basic={name: basic(rows) for name, rows in (parts | together).items()},
        models={
            model: {task: count(of_task) for task, of_task in _with_all(_by(rows, task_of)).items()}
            for model, rows in _by((e for e in marked if e.meta.get("model")), model_of).items()
        },
        types={name: type_counts(rows) for name, rows in parts.items()},
        positions={name: positions(rows) for name, rows in parts.items()},
        context_buckets={task: buckets(rows, [words(e.knowledge) for e in rows]) for task, rows in tasks.items()},
        response_buckets={task: buckets(rows, [words(e.response) for e in rows]) for task, rows in tasks.items()},
        num_unmarked=len(every) - len(marked),
    )


def words(text: str) -> int:
    return len(text.split())


def task_of(example: Example) -> str:
    """Finds an example's task where the corpus tells it, else the corpus."""
    return str(example.meta.get("task") or example.source)


def model_of(example: Example) -> str:
    return str(example.meta["model"])


def parts_of(examples: Sequence[Example]) -> "Parts":
    """Names an example's part: its task, with the corpus behind where the task draws on several."""
    corpora = defaultdict(set)
    for example in examples:
        corpora[task_of(example)].add(example.meta.get("corpus"))
    return Parts({task for task, names in corpora.items() if len(names) > 1})


@dataclass(frozen=True, slots=True)
class Parts:
    """See `parts_of`."""

    mixed: set[str]

    def __call__(self, example: Example) -> str:
        task = task_of(example)
        return f"{task} ({example.meta.get('corpus') or 'not told'})" if task in self.mixed else task


def count(examples: Iterable[Example]) -> Counts:
    rows = list(examples)
    hallucinated = [bool(e.spans) if e.label is None else e.label == HALLUCINATED for e in rows]
    return Counts(
        num_responses=len(rows),
        num_hallucinated=sum(hallucinated),
        num_spans=sum(len(e.spans or ()) for e in rows),
        num_words=sum(words(e.response) for e in rows),
    )


def basic(examples: Sequence[Example]) -> Basic:
    """A line of table 2."""
    contexts = {example.group: example.knowledge for example in examples}
    return Basic(
        num_sources=len(contexts),
        counts=count(examples),
        context=_lengths(contexts.values()),
        response=_lengths(example.response for example in examples),
    )


def type_counts(examples: Iterable[Example]) -> dict[str, int]:
    """Spans by label, RAGTruth's types first and always in the same order."""
    found = Counter(span.label for example in examples for span in example.spans or ())
    return {label: found[label] for label in in_order(found)}


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels of spans, each once: RAGTruth's types first, the others by name."""
    found = set(labels)
    return [label for label in SPAN_LABELS if label in found] + sorted(found.difference(SPAN_LABELS))


def positions(examples: Iterable[Example], num_bins: int = NUM_BINS) -> list[float]:
    """Computes where in responses spans lie [num_bins]: each weighs 1, spread over its characters; the sum is 1."""
    edges = np.linspace(0, 1, num_bins + 1)
    total = np.zeros(num_bins)
    for example in examples:
        for span in example.spans or ():
            if span.start < span.end:
                start, end = span.start / len(example.response), span.end / len(example.response)
                total += np.diff(np.clip(edges, start, end)) / (end - start)
    return [float(share) for share in total / max(total.sum(), 1e-9)]


def buckets(examples: Sequence[Example], lengths: Sequence[int], num_buckets: int = NUM_BUCKETS) -> list[Bucket]:
    """Divides examples into buckets of length of equal size, ties aside; a bucket that ties empty is left out."""
    ranks = (-(-len(lengths) * each // num_buckets) - 1 for each in range(1, num_buckets + 1))
    ordered = sorted(lengths)
    edges = [ordered[0], *(ordered[rank] for rank in ranks)]
    place = np.searchsorted(edges[1:-1], lengths, side="left")  # a length that equals an edge lies below it
    return [
        Bucket(low=edges[each], high=edges[each + 1], counts=count(rows))
        for each in range(num_buckets)
        if (rows := [example for example, own in zip(examples, place, strict=True) if own == each])
    ]


def _lengths(texts: Iterable[str]) -> Lengths:
    sizes = [words(text) for text in texts]
    return Lengths(mean=sum(sizes) / len(sizes), max=max(sizes))


def _by(examples: Iterable[Example], name: Any) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        found[name(example)].append(example)
    return dict(sorted(found.items()))


def _with_all(parts: Mapping[str, list[Example]]) -> dict[str, list[Example]]:
    together = [example for rows in parts.values() for example in rows]
    return dict(parts) | ({ALL: together} if len(parts) > 1 else {})


def _plain(value: Any) -> Any:
    if isinstance(value, Counts):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
