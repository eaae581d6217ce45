"""Divides a test set into slices by fields of its rows: dataset, task, type, domain, generator, lengths."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faithkit.metrics.classification import measure_slices
from faithkit.metrics.outcomes import join_outcomes
from faithkit.provenance.predicted_rows import FACTS, USER_SOURCES
from faithkit.records import HALLUCINATED, Example
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.test_sets import System, TestSet

TITLES: Mapping[str, str] = {
    **{"source": "Dataset", "split": "Split"},
    **{name: name.replace("_", " ").capitalize() for name in FACTS},
    **{"model": "Generator", "model_name": "Generator"},
    **{
        "tags": "Tags",
        "span_types": "Types of spans",
        "history": "Turns before",
        "knowledge": "Words of knowledge",
    },
}
MAX_VALUES = 25  # fields with more values are left out
TURNS = (0, 1, 2, 3, 5, 9)  # the first value of each bin of the history's length
WORDS = (0, 1, 21, 51, 101, 201, 401, 801)  # and of the knowledge's
METRICS = ("accuracy", "macro_f1", "predicted_rate")


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows with one value of a field, and each system's metrics on those that it has judged."""

    field: str
    value: str
    num_rows: int
    hallucinated: float
    metrics: Mapping[str, Mapping[str, Metric]]


def title_of(name: str) -> str:
    """Returns the display name of a field; a user's column keeps its name."""
    return TITLES.get(name, name)


def read_facts(test_set: TestSet) -> dict[str, dict[str, str]]:
    """Finds the fields with several values: for each field the value of each row that has one, by id."""
    columns = (name for one in test_set.examples.values() if one.source in USER_SOURCES for name in one.meta)
    found: dict[str, dict[str, str]] = {name: {} for name in dict.fromkeys([*TITLES, *columns])}
    for id_, example in test_set.examples.items():
        for name, value in _facts(example, has_text=id_ in test_set.with_text):
            found[name][id_] = value
    few = {name: values for name, values in found.items() if 1 < len(set(values.values())) <= MAX_VALUES}
    distinct: dict[tuple[str, ...], str] = {}
    for name, values in few.items():  # fields that divide the rows in the same way are shown once
        distinct.setdefault(tuple(_pattern(test_set, values)), name)
    return {name: few[name] for name in few if name in distinct.values()}


def _facts(example: Example, *, has_text: bool) -> list[tuple[str, str]]:
    found = [("source", example.source), ("split", example.split)]
    names = example.meta if example.source in USER_SOURCES else FACTS
    found += [(name, str(example.meta[name])) for name in names if name in example.meta]
    if example.tags:
        found.append(("tags", ", ".join(example.tags)))
    if example.spans:
        found.append(("span_types", ", ".join(sorted({span.label for span in example.spans}))))
    if has_text:
        found.append(("history", _bin(len(example.history), TURNS)))
        found.append(("knowledge", _bin(len(example.knowledge.split()), WORDS)))
    return found


def _bin(number: int, starts: Sequence[int]) -> str:
    place = bisect_right(starts, number)
    low = starts[place - 1]
    if place == len(starts):
        return f"{low} and more"
    high = starts[place] - 1
    return str(low) if low == high else f"{low} to {high}"


def _pattern(test_set: TestSet, values: Mapping[str, str]) -> list[str]:
    numbers: dict[str, int] = {}
    return [str(numbers.setdefault(values[id_], len(numbers))) if id_ in values else "" for id_ in test_set.examples]


def sort_values(values: Mapping[str, str]) -> list[str]:
    """Sorts the values of a field: by the number that they all begin with, or else the most frequent first."""
    counted = Counter(values.values())
    if all(value.split()[:1] and value.split()[0].isdigit() for value in counted):
        return sorted(counted, key=lambda value: int(value.split()[0]))
    return sorted(counted, key=lambda value: (-counted[value], value))


def measure_slices_by_system(
    test_set: TestSet,
    systems: Sequence[System],
    facts: Mapping[str, Mapping[str, str]],
    *,
    num_resamples: int = 1000,
) -> list[Slice]:
    """Computes each system's metrics on each slice of the rows that it has judged."""
    measured = {}
    for system in systems:
        if rows := test_set.select_judged(system):
            outcomes = join_outcomes(rows, {example.id: system.predictions[example.id] for example in rows})
            fields = {name: [values.get(example.id, "") for example in rows] for name, values in facts.items()}
            measured[system.name] = measure_slices(outcomes, fields, METRICS, num_resamples=num_resamples)
    golds = {example.id: example.label for example in test_set.select_judged()}
    found = []
    for name, values in facts.items():
        for value in sort_values(values):
            rows_of = [golds[id_] for id_, of_row in values.items() if of_row == value and id_ in golds]
            if rows_of:
                share = sum(label == HALLUCINATED for label in rows_of) / len(rows_of)
                metrics = {system.name: measured.get(system.name, {}).get((name, value), {}) for system in systems}
                found.append(Slice(name, value, len(rows_of), share, metrics))
    return found
