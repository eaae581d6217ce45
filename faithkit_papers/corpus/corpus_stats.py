"""Computes statistics of a corpus: how much is hallucinated, of which types and generators, where, and lengths.

The numbers are those of the papers, for any corpus: RAGTruth's tables 2 to 4 and figures 2 and 3 (Niu et al. 2024),
DiaHalu's table 2 and figure 5, HalluDial's section 2.4 and figure 2, FaithDial's tables 1 and 2 and figures 2 and 3. A
statistic is empty where the corpus lacks its labels, spans or tags. Words are separated by white space.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from faithkit.errors import UserError
from faithkit.records import SPAN_LABELS
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit_papers.corpus.corpus_rows import CLASSES, NUM_BINS, CorpusRows

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXTS = {"response": "response", "context": "knowledge", "turn": "turn before"}
ALL = "all"
MAX_VALUES = 30  # of a facet; the others are counted together
OTHERS = "(others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of texts; all 0 where there are none."""

    mean: float = 0.0
    max: int = 0
    median: float = 0.0
    high: float = 0.0  # 95% are no longer
    num_texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of some responses.

    Args:
        num_judged: Responses with a label or marked spans.
        num_marked: Responses with marked spans (perhaps none), and `num_marked_words` their words.
        share: The hallucinated share of those that are judged.
        density: Spans per hundred words, and `spans_each` per response, of those that are marked.
    """

    num_responses: int
    num_hallucinated: int
    num_spans: int
    num_words: int
    num_judged: int
    num_marked: int
    num_marked_words: int
    num_faithful: int
    share: float
    density: float
    spans_each: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """A row of RAGTruth's table 2; contexts are measured once per source, and empty ones are not."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogues:
    """A column of FaithDial's table 2.

    Args:
        num_turns: Of both speakers up to the last response; 0 where no response has a history, and `turns_each` None.
        response, before, knowledge: Mean tokens (words and punctuation marks) of a response, of the turn before it,
            and of its knowledge.
        edited: The share of responses that were edited; None if no original is known.
        rounds, turn_words, longest_turn: Of responses that are whole dialogues: their mean rounds (two turns each), and
            the mean and the largest number of words in a turn.
    """

    num_responses: int
    num_dialogues: int
    num_turns: int
    response: float
    before: float
    knowledge: float
    edited: float | None
    rounds: float | None = None
    turn_words: float | None = None
    longest_turn: int | None = None
    turns_each: float | None


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


def count_responses(rows: "DataFrame") -> Counts:
    """Counts some responses."""
    marked = rows[rows["spans"].notna()]
    num_judged, num_hallucinated = int(rows["judged"].notna().sum()), int((rows["judged"] == 1).sum())
    num_spans, num_marked_words = int(marked["spans"].sum()), int(marked["response_words"].sum())
    return Counts(
        num_responses=len(rows),
        num_hallucinated=num_hallucinated,
        num_spans=num_spans,
        num_words=int(rows["response_words"].sum()),
        num_judged=num_judged,
        num_marked=len(marked),
        num_marked_words=num_marked_words,
        num_faithful=num_judged - num_hallucinated,
        share=num_hallucinated / max(1, num_judged),
        density=100 * num_spans / max(1, num_marked_words),
        spans_each=num_spans / max(1, len(marked)),
    )


def measure_part(rows: "DataFrame") -> Basic:
    """Measures a part of a corpus: its sources, contexts and responses."""
    return Basic(
        num_sources=rows["group"].nunique(),
        counts=count_responses(rows),
        context=summarize_lengths(rows.drop_duplicates("context")["context_words"]),
        response=summarize_lengths(rows["response_words"]),
    )


def summarize_lengths(lengths: "Series[float]") -> Lengths:
    """Summarizes the lengths of known texts."""
    known = lengths.dropna()
    if not len(known):
        return Lengths()
    median, high = np.quantile(known, (0.5, 0.95)).tolist()
    return Lengths(mean=float(known.mean()), max=int(known.max()), median=median, high=high, num_texts=len(known))


def count_edits(rows: "DataFrame") -> dict[str, int]:
    """Counts edited responses; empty if no original is known. A response without an original was not edited."""
    if rows["edited"].isna().all():
        return {}
    edited = int((rows["edited"] == 1).sum())  # NaN without an original
    return {"edited": edited, "not edited": len(rows) - edited}


def measure_dialogues(rows: "DataFrame") -> Dialogues:
    """Measures the dialogues of some rows, and their edits."""
    longest = rows.groupby("group")["history"].max() + 1
    tokens = {name: summarize_lengths(rows[f"{name}_tokens"]).mean for name in TEXTS}
    edits = count_edits(rows)
    edited = edits["edited"] / len(rows) if edits else None
    spoken = rows[rows["turns"] > 0]
    whole: dict[str, Any] = {}
    if len(spoken):
        whole = {
            "rounds": float(spoken["turns"].mean()) / 2,
            "turn_words": float(spoken["spoken_words"].sum() / spoken["turns"].sum()),
            "longest_turn": int(spoken["longest_turn"].max()),
        }
    num_turns = int(longest.sum()) if (rows["history"] > 0).any() else 0
    return Dialogues(
        num_responses=len(rows),
        num_dialogues=len(longest),
        num_turns=num_turns,
        turns_each=num_turns / max(1, len(longest)) if num_turns else None,
        response=tokens["response"],
        before=tokens["turn"],
        knowledge=tokens["context"],
        edited=edited,
        **whole,
    )


def measure_extraction(frame: "DataFrame") -> dict[str, Extraction]:
    """Measures coverage and density of the responses and, where some were edited, of the originals, on one scale."""
    pairs = {
        name: known.to_numpy()
        for name, prefix in (("responses", ""), ("before the edits", "original_"))
        if len(known := frame[[f"{prefix}coverage", f"{prefix}density"]].dropna())
    }
    # The top is the 99% quantile, so that a few copied passages do not hide the rest.
    top = max([1.0, *(float(np.ceil(np.quantile(pair[:, 1], 0.99))) for pair in pairs.values())])
    found = {}
    for name, pair in pairs.items():
        coverage, density = pair.T
        limits = ((0.0, 1.0 + 1e-9), (0.0, top))
        cells, _, _ = np.histogram2d(coverage, np.minimum(density, top), bins=40, range=limits)
        found[name] = Extraction(
            num_responses=len(pair),
            coverage=float(coverage.mean()),
            density=float(density.mean()),
            top=top,
            cells=cells.astype(int).tolist(),
        )
    return found


def make_buckets(rows: "DataFrame", column: str) -> list[Bucket]:
    """Divides judged responses into five buckets by length, of equal size but for ties; empty ones are left out."""
    kept = rows[rows["judged"].notna() & rows[column].notna()]
    if not len(kept):
        return []
    ordered = np.sort(kept[column].to_numpy())
    ranks = [-(-len(ordered) * each // 5) - 1 for each in range(1, 6)]
    edges = [int(ordered[0]), *(int(ordered[rank]) for rank in ranks)]
    place = np.searchsorted(edges[1:-1], kept[column], side="left")  # a length that equals an edge lies below it
    return [
        Bucket(low=edges[each], high=edges[each + 1], counts=count_responses(kept[place == each]))
        for each in np.unique(place).tolist()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusStats:
    """The numbers of a corpus; in `basic` and `models`, `all` means all parts together.

    Args:
        basic: RAGTruth's table 2, by part: a task, scenario or domain, or a task's corpus where it has several.
        models: Table 3, by generator, then task.
        types: Figure 2: spans by part, then type; of corpora without spans the types of hallucinated responses.
        positions: Figure 3, by part: which share of the spans lies in each of equal parts of the responses; sums to 1.
        context_buckets, response_buckets: Table 4, by task.
        num_unmarked: Responses without marked spans.
        facets: By facet (split, domain, model, turn, topic, ...) and value; only those with several values.
        rates: The hallucinated share of each value of each facet, with `all`, and its interval over groups.
        lengths: By text (response, knowledge, turn before): in words and tokens.
        dialogues: FaithDial's table 2, by split.
        classes: FaithDial's table 1: responses by generator ("" if unknown), then BEGIN's class.
        acts: The outer ring of figure 2: by BEGIN's class, responses with each speech act.
        extraction: Figure 3: coverage and density of the responses, and of the originals where they were edited.
        edits: Responses that were edited and that were not, if originals are known.
        num_groups: Dialogues or sources.
        num_repeated: Responses that repeat an earlier one with the same knowledge and history.
    """

    basic: dict[str, Basic]
    models: dict[str, dict[str, Counts]]
    types: dict[str, dict[str, int]]
    positions: dict[str, list[float]]
    context_buckets: dict[str, list[Bucket]]
    response_buckets: dict[str, list[Bucket]]
    num_unmarked: int
    facets: dict[str, dict[str, Counts]]
    rates: dict[str, dict[str, Metric]]
    lengths: dict[str, dict[str, Lengths]]
    dialogues: dict[str, Dialogues]
    classes: dict[str, dict[str, int]]
    acts: dict[str, dict[str, int]]
    extraction: dict[str, Extraction]
    edits: dict[str, int]
    num_groups: int
    num_repeated: int

    @property
    def whole(self) -> Basic:
        """The row of all responses."""
        return self.basic.get(ALL) or next(iter(self.basic.values()))

    @property
    def counts(self) -> Counts:
        """The counts of all responses."""
        return self.whole.counts

    @property
    def has_spans(self) -> bool:
        return self.counts.num_marked > 0

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain containers, for JSON."""
        return {name: _plain(getattr(self, name)) for name in CorpusStats.__slots__}


def compute_corpus_stats(corpus: CorpusRows, *, num_resamples: int = 1000) -> CorpusStats:
    """Computes all numbers.

    Raises:
        UserError: There are none.
    """
    if not len(corpus):
        raise UserError("there is no example to describe", hint="choose another split, or more rows")
    frame, parts = corpus.to_frame(), corpus.part_names()
    by_part = _divide(frame, "part")
    facets: dict[str, dict[str, DataFrame]] = {}  # with several values, and not those of an earlier one
    for name in corpus.facets:
        size = frame[f"by {name}"].nunique(dropna=False)
        pairs = [frame[[f"by {name}", f"by {one}"]].drop_duplicates() for one in facets]
        sizes = [frame[f"by {one}"].nunique(dropna=False) for one in facets]
        if size > 1 and not any(len(pair) == size == other for pair, other in zip(pairs, sizes, strict=True)):
            facets[name] = _by_value(frame, f"by {name}")
    models: dict[str, dict[str, Counts]] = {}
    for model, rows in _divide(frame, "by model").items() if "model" in corpus.facets else ():
        by_task = {task: count_responses(of_task) for task, of_task in _divide(rows, "task").items()}
        models[model] = by_task | ({ALL: count_responses(rows)} if len(by_task) > 1 else {})
    has_spans, names = bool(frame["spans"].notna().any()), list(dict.fromkeys(parts.values()))
    types: dict[str, Counter[str]] = {name: Counter() for name in names}
    places = {name: np.zeros(NUM_BINS) for name in names}
    for part, name in parts.items():
        types[name] += corpus.types[part]
        places[name] += corpus.positions.get(part, 0)
    found = {name: {label: counts[label] for label in sort_labels(counts)} for name, counts in types.items()}
    buckets: dict[str, dict[str, list[Bucket]]] = {"context_words": {}, "response_words": {}}
    for column, by_length in buckets.items():
        for task, rows in _divide(frame, "task").items():
            if cells := make_buckets(rows, column):
                by_length[task] = cells
    lengths: dict[str, dict[str, Lengths]] = {}
    for name, shown in TEXTS.items():  # knowledge counts once per source
        measured = frame.drop_duplicates("context") if name == "context" else frame
        both = {unit: summarize_lengths(measured[f"{name}_{unit}"]) for unit in ("words", "tokens")}
        lengths |= {shown: both} if both["words"].num_texts else {}
    return CorpusStats(
        basic={
            name: measure_part(rows) for name, rows in (by_part | ({ALL: frame} if len(by_part) > 1 else {})).items()
        },
        models=models,
        types=found if has_spans or any(found.values()) else {},
        positions={n: (p / max(p.sum(), 1e-9)).tolist() for n, p in places.items()} if has_spans else {},
        context_buckets=buckets["context_words"],
        response_buckets=buckets["response_words"],
        num_unmarked=int(frame["spans"].isna().sum()),
        facets={name: {v: count_responses(rows) for v, rows in values.items()} for name, values in facets.items()},
        rates=_rates({"": {ALL: frame}} | facets, num_resamples),
        lengths=lengths,
        dialogues={
            name: measure_dialogues(rows)
            for name, rows in (_divide(frame, "by split") if "split" in corpus.facets else {ALL: frame}).items()
        },
        classes={
            model: {name: corpus.classes[model, name] for name in CLASSES}
            for model in sorted({model for model, _ in corpus.classes})
        },
        acts={name: dict(corpus.acts[name].most_common()) for name in CLASSES if corpus.acts.get(name)},
        extraction=measure_extraction(frame),
        edits=count_edits(frame),
        num_groups=frame["group"].nunique(),
        num_repeated=corpus.num_repeated,
    )


def _divide(frame: "DataFrame", column: str) -> dict[str, "DataFrame"]:
    """Divides rows by the value of a column, in the order of the values."""
    return {str(value): rows for value, rows in frame.groupby(column)}


def _by_value(frame: "DataFrame", column: str) -> dict[str, "DataFrame"]:
    """Divides rows by the value of a facet: numbers in order, or else the most frequent values first."""
    counts = frame[column].value_counts().to_dict()
    try:
        ordered = sorted(counts, key=float)
    except ValueError:
        ordered = sorted(counts, key=lambda value: (-counts[value], value))
    found = {value: frame[frame[column] == value] for value in ordered[:MAX_VALUES]}
    if rest := ordered[MAX_VALUES:]:
        found[f"{OTHERS} {len(rest):,}"] = frame[frame[column].isin(rest)]
    return found


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Sorts labels of spans, each once: RAGTruth's types first, the others by name."""
    found = set(labels)
    return [label for label in SPAN_LABELS if label in found] + sorted(found.difference(SPAN_LABELS))


def _rates(facets: Mapping[str, Mapping[str, "DataFrame"]], num_resamples: int) -> dict[str, dict[str, Metric]]:
    """Estimates the hallucinated share of each value with judged responses, with its interval."""
    found: dict[str, dict[str, Metric]] = {}
    for facet, values in facets.items():
        for value, rows in values.items():
            judged = rows[rows["judged"].notna()]
            if not len(judged):
                continue
            _, index = np.unique(judged["group"], return_inverse=True)
            groups = Groups(index, int(index.max()) + 1)
            statistic = mean_statistic(groups, {"": judged["judged"]})
            metric = bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=num_resamples).metrics[""]
            if groups.count < 2:  # one group has no interval
                metric = replace(metric, low=None, high=None)
            found.setdefault(facet, {})[value] = metric
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
