"""Counts of some responses of a corpus, by part or by length: the lines and cells of RAGTruth's tables."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit.span_types import SPAN_LABELS
from faithkit_workflows.corpus.columns import UNKNOWN, Columns
from faithkit_workflows.corpus.text_stats import Lengths, lengths_of

NUM_BUCKETS = 5
Rows = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts how much of some responses is hallucinated; density is spans per hundred words.

    Args:
        num_judged: Responses with a label or marked spans: the others count neither way.
        num_marked: Responses whose spans somebody marked, and `num_marked_words` theirs.
    """

    num_responses: int
    num_hallucinated: int
    num_spans: int
    num_words: int
    num_judged: int
    num_marked: int
    num_marked_words: int

    @property
    def share(self) -> float:
        return self.num_hallucinated / max(1, self.num_judged)

    @property
    def density(self) -> float:
        return 100 * self.num_spans / max(1, self.num_marked_words)

    @property
    def spans_each(self) -> float:
        return self.num_spans / max(1, self.num_marked)

    def to_dict(self) -> dict[str, float]:
        """Gives the counts and the ratios of them."""
        return asdict(self) | {"share": self.share, "density": self.density, "spans_each": self.spans_each}


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """A line of RAGTruth's table 2: contexts are measured once a source, whoever answered."""

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


def count(columns: Columns, rows: Rows) -> Counts:
    """Counts some responses."""
    judged, spans = columns.whole_column("judged")[rows], columns.whole_column("spans")[rows]
    words, marked = columns.whole_column("response_words")[rows], spans != UNKNOWN
    return Counts(
        num_responses=len(judged),
        num_hallucinated=int((judged == 1).sum()),
        num_spans=int(spans[marked].sum()),
        num_words=int(words.sum()),
        num_judged=int((judged != UNKNOWN).sum()),
        num_marked=int(marked.sum()),
        num_marked_words=int(words[marked].sum()),
    )


def basic(columns: Columns, rows: Rows) -> Basic:
    """A line of table 2; each context counts once, and those without text not at all."""
    _, first = np.unique(columns.contexts.values[rows], return_index=True)
    contexts = columns.whole_column("context_words")[rows][first]
    return Basic(
        num_sources=len(np.unique(columns.groups.values[rows])),
        counts=count(columns, rows),
        context=lengths_of(contexts),
        response=lengths_of(columns.whole_column("response_words")[rows]),
    )


def buckets(columns: Columns, rows: Rows, lengths: NDArray[np.int64], num_buckets: int = NUM_BUCKETS) -> list[Bucket]:
    """Divides responses into buckets of length of equal size, ties aside; a bucket that ties empty is left out.

    Only those that are judged and have such a text; none where no response is, or all are of one length.
    """
    kept = rows & (columns.whole_column("judged") != UNKNOWN) & (lengths != UNKNOWN)
    ordered = np.sort(lengths[kept])
    if not len(ordered):
        return []
    ranks = [-(-len(ordered) * each // num_buckets) - 1 for each in range(1, num_buckets + 1)]
    edges = [int(ordered[0]), *(int(ordered[rank]) for rank in ranks)]
    place = np.searchsorted(edges[1:-1], lengths, side="left")  # a length that equals an edge lies below it
    return [
        Bucket(low=edges[each], high=edges[each + 1], counts=count(columns, here))
        for each in range(num_buckets)
        if (here := kept & (place == each)).any()
    ]


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels of spans, each once: RAGTruth's types first, the others by name."""
    found = set(labels)
    return [label for label in SPAN_LABELS if label in found] + sorted(found.difference(SPAN_LABELS))
