"""Computes statistics of a corpus: how much is hallucinated, of which types and generators, where, and lengths.

The numbers are those of the papers, for any corpus: RAGTruth's tables 2 to 4 and figures 2 and 3 (Niu et al. 2024),
DiaHalu's table 2 and figure 5, HalluDial's section 2.4 and figure 2, FaithDial's tables 1 and 2 and figures 2 and 3. A
statistic is empty where the corpus lacks its labels, spans or tags. Words are separated by white space.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.metrics.begin_tags import CLASSES
from faithkit.records import Example
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit_workflows.corpus.corpus_columns import NUM_BINS, UNKNOWN, Columns
from faithkit_workflows.corpus.corpus_counts import (
    Basic,
    Bucket,
    Counts,
    Dialogues,
    Extraction,
    Lengths,
    Rows,
    count_responses,
    make_buckets,
    measure_dialogues,
    measure_extraction,
    measure_lengths,
    measure_part,
    sort_labels,
)

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

    @property
    def has_dialogues(self) -> bool:
        """Reports whether dialogues have more than two turns, or edits or rounds are known."""
        some = self.dialogues.values()
        return any(one.turns_each > 2.5 or one.edited is not None or one.rounds is not None for one in some)

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain containers, for JSON."""
        return {name: _plain(getattr(self, name)) for name in CorpusStats.__slots__}


def compute_corpus_stats(examples: Iterable[Example] | Columns, *, num_resamples: int = 1000) -> CorpusStats:
    """Computes all numbers; each example is read once.

    Raises:
        UserError: There are none.
    """
    columns = examples if isinstance(examples, Columns) else Columns().add_all(examples)
    if not len(columns):
        raise UserError("there is no example to describe", hint="choose another split, or more rows")
    parts, tasks = _by_part(columns), _by_name(columns.tasks.numbers, columns.tasks.values)
    every = np.ones(len(columns), bool)
    together = {ALL: every} if len(parts) > 1 else {}
    context, response = columns.whole_column("context_words"), columns.whole_column("response_words")
    facets = {name: _values(columns, name) for name in columns.facets}
    shown = {name: facets[name] for name in _informative_facets(columns)}
    return CorpusStats(
        basic={name: measure_part(columns, rows) for name, rows in (parts | together).items()},
        models=_models(columns, tasks),
        types=_types(columns),
        positions=_positions(columns),
        context_buckets={t: found for t, rows in tasks.items() if (found := make_buckets(columns, rows, context))},
        response_buckets={t: found for t, rows in tasks.items() if (found := make_buckets(columns, rows, response))},
        num_unmarked=int((columns.whole_column("spans") == UNKNOWN).sum()),
        facets={
            name: {v: count_responses(columns, rows) for v, rows in values.items()} for name, values in shown.items()
        },
        rates=_rates(columns, {"": {ALL: every}} | shown, num_resamples),
        lengths=measure_lengths(columns),
        dialogues={name: measure_dialogues(columns, rows) for name, rows in _splits(columns, every).items()},
        classes=_classes(columns),
        acts={name: dict(columns.acts[name].most_common()) for name in CLASSES if columns.acts.get(name)},
        extraction=measure_extraction(columns),
        num_groups=len(columns.groups.numbers),
        num_repeated=columns.num_repeated,
    )


def _by_name(numbers: Mapping[Any, int], column: NDArray[np.intc]) -> dict[str, Rows]:
    """Selects the rows of each name."""
    return {str(name): column == number for name, number in sorted(numbers.items(), key=lambda item: str(item[0]))}


def _part_names(columns: Columns) -> dict[str, list[int]]:
    """Lists the parts with their numbers: a task, with its corpus where it has several."""
    corpora: dict[str, set[Any]] = {}
    for task, corpus in columns.parts.numbers:
        corpora.setdefault(task, set()).add(corpus)
    names: dict[str, list[int]] = {}
    for (task, corpus), number in columns.parts.numbers.items():
        name = f"{task} ({corpus or 'unknown'})" if len(corpora[task]) > 1 else task
        names.setdefault(name, []).append(number)
    return dict(sorted(names.items()))


def _by_part(columns: Columns) -> dict[str, Rows]:
    return {name: np.isin(columns.parts.values, numbers) for name, numbers in _part_names(columns).items()}


def _splits(columns: Columns, every: Rows) -> dict[str, Rows]:
    if "split" not in columns.facets:
        return {ALL: every}
    return _by_name(columns.facets["split"].numbers, columns.facets["split"].values)


def _models(columns: Columns, tasks: Mapping[str, Rows]) -> dict[str, dict[str, Counts]]:
    if "model" not in columns.facets:
        return {}
    found = {}
    for model, rows in _by_name(columns.facets["model"].numbers, columns.facets["model"].values).items():
        by_task = {
            task: count_responses(columns, both) for task, of_task in tasks.items() if (both := rows & of_task).any()
        }
        found[model] = by_task | ({ALL: count_responses(columns, rows)} if len(by_task) > 1 else {})
    return found


def _types(columns: Columns) -> dict[str, dict[str, int]]:
    """Counts spans, or hallucinated responses, by part and type; empty where there are neither."""
    found = {}
    for name, numbers in _part_names(columns).items():
        total: Counter[str] = sum((columns.types[number] for number in numbers), Counter())
        found[name] = {label: total[label] for label in sort_labels(total)}
    marked = (columns.whole_column("spans") != UNKNOWN).any()
    return found if marked or any(found.values()) else {}


def _positions(columns: Columns) -> dict[str, list[float]]:
    if not (columns.whole_column("spans") != UNKNOWN).any():
        return {}
    found = {}
    for name, numbers in _part_names(columns).items():
        total = np.zeros(NUM_BINS) + sum(columns.positions.get(number, 0) for number in numbers)
        found[name] = [float(share) for share in total / max(total.sum(), 1e-9)]
    return found


def _informative_facets(columns: Columns) -> list[str]:
    """Lists the facets with several values, without those that divide the examples as an earlier one does."""
    kept: list[str] = []
    for name, names in columns.facets.items():
        sizes = [len(np.unique(names.values + (len(names.numbers) + 1) * columns.facets[one].values)) for one in kept]
        size = len(np.unique(names.values))
        if size > 1 and not any(
            both == size == len(np.unique(columns.facets[one].values)) for one, both in zip(kept, sizes, strict=True)
        ):
            kept.append(name)
    return kept


def _values(columns: Columns, facet: str) -> dict[str, Rows]:
    """Selects the rows of each value of a facet: numbers in order, or else the most frequent values first."""
    names, column = columns.facets[facet].numbers, columns.facets[facet].values
    sizes = np.bincount(column[column != UNKNOWN], minlength=len(names))
    try:
        ordered = sorted(names, key=float)
    except ValueError:
        ordered = sorted(names, key=lambda name: (-sizes[names[name]], str(name)))
    kept, rest = ordered[:MAX_VALUES], ordered[MAX_VALUES:]
    found = {str(name): column == names[name] for name in kept}
    if rest:
        found[f"{OTHERS} {len(rest):,}"] = np.isin(column, [names[name] for name in rest])
    return found


def _rates(
    columns: Columns, facets: Mapping[str, Mapping[str, Rows]], num_resamples: int
) -> dict[str, dict[str, Metric]]:
    """Estimates the hallucinated share of each value with judged responses, with its interval."""
    judged, groups = columns.whole_column("judged"), columns.groups.values
    found: dict[str, dict[str, Metric]] = {}
    for facet, values in facets.items():
        for value, rows in values.items():
            known = rows & (judged != UNKNOWN)
            if not known.any():
                continue
            _, index = np.unique(groups[known], return_inverse=True)
            known_groups = Groups(index, int(index.max()) + 1)
            scored = bootstrap(
                known_groups,
                mean_statistic(known_groups, {"": judged[known]}),
                kinds=PROPORTION,
                num_resamples=num_resamples,
            )
            metric = scored.metrics[""]
            if known_groups.count < 2:  # one group has no interval
                metric = replace(metric, low=None, high=None)
            found.setdefault(facet, {})[value] = metric
    return found


def _classes(columns: Columns) -> dict[str, dict[str, int]]:
    models = sorted({model for model, _ in columns.classes})
    return {model: {name: columns.classes[model, name] for name in CLASSES} for model in models}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
