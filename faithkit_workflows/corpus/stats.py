"""Statistics of a corpus of responses: how much is hallucinated, of which types, by whom, where, and how long.

The numbers are those of the papers, for any corpus: RAGTruth's tables 2 to 4 and figures 2 and 3 (Niu et al. 2024),
DiaHalu's table 2 and figure 5, HalluDial's section 2.4 and figure 2, FaithDial's tables 1 and 2 and figures 2 and 3. A
statistic that a corpus has no labels, spans or tags for is empty. Words are what white space parts.
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
from faithkit_workflows.corpus.columns import NUM_BINS, UNKNOWN, Columns
from faithkit_workflows.corpus.counts import Basic, Bucket, Counts, Rows, basic, buckets, count, in_order
from faithkit_workflows.corpus.text_stats import (
    Dialogues,
    Extraction,
    Lengths,
    dialogues_of,
    extraction_of,
    lengths_table,
)

ALL = "all"
MAX_VALUES = 30  # of a facet: the rest stand together
OTHERS = "(others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusStats:
    """The numbers of a corpus; in `basic` and `models`, `all` stands for all parts together.

    Args:
        basic: RAGTruth's table 2, by part: a task, scenario or domain, or a task's corpus where it has several.
        models: Table 3, by generator, then task.
        types: Figure 2: spans by part, then type; of corpora without spans the types of hallucinated responses.
        positions: Figure 3, by part: which share of the spans lies in each of equal parts of the responses; sums to 1.
        context_buckets, response_buckets: Table 4, by task.
        num_unmarked: Responses whose spans nobody marked.
        facets: By facet (split, domain, model, turn, topic, ...) and value; those with several values alone.
        rates: The hallucinated share of each value of each facet, with `all`, and its interval over groups.
        lengths: By text (response, knowledge, turn before): in words and tokens.
        dialogues: FaithDial's table 2, by split.
        classes: FaithDial's table 1: responses by generator ("" where none is told), then BEGIN's class.
        acts: The outer ring of figure 2: by BEGIN's class, responses with each speech act.
        extraction: Figure 3: coverage and density of the responses, and of the originals where they were edited.
        num_groups: Dialogues or sources.
        num_repeated: Responses that stand there before with the same knowledge and history.
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
        """The line of all responses."""
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
        """Tells whether there is more than a question and its answer, or what was edited."""
        some = self.dialogues.values()
        return any(one.turns_each > 2.5 or one.edited is not None or one.rounds is not None for one in some)

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, for JSON."""
        return {name: _plain(getattr(self, name)) for name in CorpusStats.__slots__}


def corpus_stats(examples: Iterable[Example] | Columns, *, num_resamples: int = 1000) -> CorpusStats:
    """Computes all numbers; of examples, each is read once.

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
    told = _telling(columns)
    shown = {name: values for name, values in facets.items() if name in told}
    return CorpusStats(
        basic={name: basic(columns, rows) for name, rows in (parts | together).items()},
        models=_models(columns, tasks),
        types=_types(columns),
        positions=_positions(columns),
        context_buckets={t: found for t, rows in tasks.items() if (found := buckets(columns, rows, context))},
        response_buckets={t: found for t, rows in tasks.items() if (found := buckets(columns, rows, response))},
        num_unmarked=int((columns.whole_column("spans") == UNKNOWN).sum()),
        facets={name: {v: count(columns, rows) for v, rows in values.items()} for name, values in shown.items()},
        rates=_rates(columns, {"": {ALL: every}} | shown, num_resamples),
        lengths=lengths_table(columns),
        dialogues={name: dialogues_of(columns, rows) for name, rows in _splits(columns, every).items()},
        classes=_classes(columns),
        acts={name: dict(columns.acts[name].most_common()) for name in CLASSES if columns.acts.get(name)},
        extraction=extraction_of(columns),
        num_groups=len(columns.groups.numbers),
        num_repeated=columns.num_repeated,
    )


def _by_name(numbers: Mapping[Any, int], column: NDArray[np.intc]) -> dict[str, Rows]:
    """The rows of each name, by name."""
    return {str(name): column == number for name, number in sorted(numbers.items(), key=lambda item: str(item[0]))}


def _part_names(columns: Columns) -> dict[str, list[int]]:
    """The parts by name, each with its numbers: a task, with the corpus behind where it draws on several."""
    corpora: dict[str, set[Any]] = {}
    for task, corpus in columns.parts.numbers:
        corpora.setdefault(task, set()).add(corpus)
    names: dict[str, list[int]] = {}
    for (task, corpus), number in columns.parts.numbers.items():
        name = f"{task} ({corpus or 'not told'})" if len(corpora[task]) > 1 else task
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
        own = {task: count(columns, both) for task, of_task in tasks.items() if (both := rows & of_task).any()}
        found[model] = own | ({ALL: count(columns, rows)} if len(own) > 1 else {})
    return found


def _types(columns: Columns) -> dict[str, dict[str, int]]:
    """Spans, or hallucinated responses, by part and type; no part where there are neither."""
    found = {}
    for name, numbers in _part_names(columns).items():
        total: Counter[str] = sum((columns.types[number] for number in numbers), Counter())
        found[name] = {label: total[label] for label in in_order(total)}
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


def _telling(columns: Columns) -> list[str]:
    """The facets with several values, but those that divide the examples just as one before does."""
    kept: list[str] = []
    for name, names in columns.facets.items():
        sizes = [len(np.unique(names.values + (len(names.numbers) + 1) * columns.facets[one].values)) for one in kept]
        own = len(np.unique(names.values))
        if own > 1 and not any(
            both == own == len(np.unique(columns.facets[one].values)) for one, both in zip(kept, sizes, strict=True)
        ):
            kept.append(name)
    return kept


def _values(columns: Columns, facet: str) -> dict[str, Rows]:
    """The rows of each value of a facet: numbers in their order, else the most frequent first; the rest together."""
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
    """The hallucinated share of each value, with its interval; of those with judged responses."""
    judged, groups = columns.whole_column("judged"), columns.groups.values
    found: dict[str, dict[str, Metric]] = {}
    for facet, values in facets.items():
        for value, rows in values.items():
            known = rows & (judged != UNKNOWN)
            if not known.any():
                continue
            _, index = np.unique(groups[known], return_inverse=True)
            own = Groups(index, int(index.max()) + 1)
            scored = bootstrap(
                own, mean_statistic(own, {"": judged[known]}), kinds=PROPORTION, num_resamples=num_resamples
            )
            metric = scored.metrics[""]
            if own.count < 2:  # which says nothing of others
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
