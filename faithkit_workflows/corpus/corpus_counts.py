"""Counts and measures parts of a corpus: hallucinated responses, lengths, dialogues, and copying from the knowledge."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit.records import SPAN_LABELS
from faithkit_workflows.corpus.corpus_columns import UNKNOWN, Columns

NUM_CELLS = 40  # of the plot of coverage against density, a side
TEXTS = {"response": "response", "context": "knowledge", "turn": "turn before"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of texts; all 0 where there are none."""

    mean: float
    max: int
    median: float
    high: float  # 95% are no longer
    num_texts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogues:
    """A column of FaithDial's table 2.

    Args:
        num_turns: Of both speakers up to the last response; 0 where no response has a history.
        response, before, knowledge: Mean tokens (words and punctuation marks) of a response, of the turn before it,
            and of its knowledge.
        edited: The share of responses that were edited; None where no original is known.
        rounds: Mean rounds of a dialogue, where known.
    """

    num_responses: int
    num_dialogues: int
    num_turns: int
    response: float
    before: float
    knowledge: float
    edited: float | None
    rounds: float | None

    @property
    def turns_each(self) -> float:
        return self.num_turns / max(1, self.num_dialogues)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """How much of the knowledge responses copy, and in how long pieces.

    Args:
        cells: The number of responses in each cell of coverage (0 to 1, rows) and density (0 to `top`, columns);
            larger densities are in the last column.
    """

    num_responses: int
    coverage: float
    density: float
    top: float
    cells: list[list[int]]


def summarize_lengths(lengths: NDArray[np.int64]) -> Lengths:
    """Summarizes the lengths of known texts."""
    known = lengths[lengths != UNKNOWN]
    if not len(known):
        return Lengths(mean=0.0, max=0, median=0.0, high=0.0, num_texts=0)
    median, high = np.quantile(known, (0.5, 0.95))
    return Lengths(
        mean=float(known.mean()), max=int(known.max()), median=float(median), high=float(high), num_texts=len(known)
    )


def measure_lengths(columns: Columns) -> dict[str, dict[str, Lengths]]:
    """Measures each kind of text in words and in tokens; knowledge counts once per source."""
    _, first = np.unique(columns.contexts.values, return_index=True)
    found = {}
    for name, shown in TEXTS.items():
        rows = first if name == "context" else slice(None)
        both = {unit: summarize_lengths(columns.whole_column(f"{name}_{unit}")[rows]) for unit in ("words", "tokens")}
        if both["words"].num_texts:
            found[shown] = both
    return found


def measure_dialogues(columns: Columns, rows: NDArray[np.bool_]) -> Dialogues:
    """Measures the dialogues of some rows."""
    groups = columns.groups.values[rows]
    longest = np.zeros(len(columns.groups.numbers), np.int64)
    np.maximum.at(longest, groups, columns.whole_column("history")[rows] + 1)
    edited, rounds = (columns.whole_column(name)[rows] for name in ("edited", "rounds"))
    tokens = {name: summarize_lengths(columns.whole_column(f"{name}_tokens")[rows]).mean for name in TEXTS}
    return Dialogues(
        num_responses=int(rows.sum()),
        num_dialogues=len(np.unique(groups)),
        num_turns=int(longest.sum()) if (columns.whole_column("history")[rows] > 0).any() else 0,
        response=tokens["response"],
        before=tokens["turn"],
        knowledge=tokens["context"],
        edited=_mean_known(edited),
        rounds=_mean_known(rounds),
    )


def measure_extraction(columns: Columns) -> dict[str, Extraction]:
    """Measures coverage and density of the responses and, where some were edited, of the originals, on one scale."""
    pairs = {}
    for name, prefix in (("responses", ""), ("before the edits", "original_")):
        values = np.stack([columns.real_column(prefix + column) for column in ("coverage", "density")], axis=1)
        known = values[np.isfinite(values[:, 0])].astype(np.float64)
        if len(known):
            pairs[name] = known
    # The top is the 99% quantile, so that a few copied passages do not hide the rest.
    top = max((float(np.ceil(np.quantile(pair[:, 1], 0.99))) for pair in pairs.values()), default=1.0)
    return {name: _extraction(pair, max(top, 1.0)) for name, pair in pairs.items()}


def _extraction(values: NDArray[np.float64], top: float) -> Extraction:
    coverage, density = values.T
    limits = ((0.0, 1.0 + 1e-9), (0.0, top))
    cells, _, _ = np.histogram2d(coverage, np.minimum(density, top), bins=NUM_CELLS, range=limits)
    return Extraction(
        num_responses=len(values),
        coverage=float(coverage.mean()),
        density=float(density.mean()),
        top=top,
        cells=cells.astype(int).tolist(),
    )


def _mean_known(values: NDArray[np.int64]) -> float | None:
    known = values[values != UNKNOWN]
    return float(known.mean()) if len(known) else None


NUM_BUCKETS = 5
Rows = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of some responses; density is spans per hundred words.

    Args:
        num_judged: Responses with a label or marked spans.
        num_marked: Responses with marked spans (perhaps none), and `num_marked_words` their words.
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
        """Lists the counts and their ratios."""
        return asdict(self) | {"share": self.share, "density": self.density, "spans_each": self.spans_each}


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """A row of RAGTruth's table 2; contexts are measured once per source."""

    num_sources: int
    counts: Counts
    context: Lengths
    response: Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A cell of table 4: responses with a length, or context length, in (low, high]; the first includes low."""

    low: int
    high: int
    counts: Counts


def count_responses(columns: Columns, rows: Rows) -> Counts:
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


def measure_part(columns: Columns, rows: Rows) -> Basic:
    """Measures a row of table 2; each context counts once, and empty ones do not count."""
    _, first = np.unique(columns.contexts.values[rows], return_index=True)
    contexts = columns.whole_column("context_words")[rows][first]
    return Basic(
        num_sources=len(np.unique(columns.groups.values[rows])),
        counts=count_responses(columns, rows),
        context=summarize_lengths(contexts),
        response=summarize_lengths(columns.whole_column("response_words")[rows]),
    )


def make_buckets(
    columns: Columns, rows: Rows, lengths: NDArray[np.int64], num_buckets: int = NUM_BUCKETS
) -> list[Bucket]:
    """Divides judged responses into buckets by length, of equal size except for ties; empty buckets are left out."""
    kept = rows & (columns.whole_column("judged") != UNKNOWN) & (lengths != UNKNOWN)
    ordered = np.sort(lengths[kept])
    if not len(ordered):
        return []
    ranks = [-(-len(ordered) * each // num_buckets) - 1 for each in range(1, num_buckets + 1)]
    edges = [int(ordered[0]), *(int(ordered[rank]) for rank in ranks)]
    place = np.searchsorted(edges[1:-1], lengths, side="left")  # a length that equals an edge lies below it
    return [
        Bucket(low=edges[each], high=edges[each + 1], counts=count_responses(columns, here))
        for each in range(num_buckets)
        if (here := kept & (place == each)).any()
    ]


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Sorts labels of spans, each once: RAGTruth's types first, the others by name."""
    found = set(labels)
    return [label for label in SPAN_LABELS if label in found] + sorted(found.difference(SPAN_LABELS))
