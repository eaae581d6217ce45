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
from faithkit.records import SPAN_LABELS, Example
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit_papers.corpus.corpus_measures import (
    Basic,
    Bucket,
    Counts,
    Dialogues,
    Extraction,
    Lengths,
    count_edits,
    count_responses,
    make_buckets,
    measure_dialogues,
    measure_extraction,
    measure_part,
    measure_texts,
)
from faithkit_papers.corpus.corpus_rows import CLASSES, NUM_BINS, CorpusRows

if TYPE_CHECKING:
    from pandas import DataFrame

ALL = "all"
MAX_VALUES = 30  # of a facet; the others are counted together
OTHERS = "(others)"


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


def compute_corpus_stats(examples: Iterable[Example] | CorpusRows, *, num_resamples: int = 1000) -> CorpusStats:
    """Computes all numbers; each example is read once.

    Raises:
        UserError: There are none.
    """
    corpus = examples if isinstance(examples, CorpusRows) else CorpusRows().add_all(examples)
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
        lengths=measure_texts(frame),
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
