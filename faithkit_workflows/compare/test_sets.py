"""Joins the predictions of several runs on one test set by row id, and divides its rows into slices by their fields."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl, read_strict_json
from faithkit.metrics.classification import Outcomes, join_outcomes, measure_slices
from faithkit.pages.page import Fact, gold_label
from faithkit.provenance.predicted_rows import FACTS, UNKNOWN_SPLIT, USER_SOURCES, PredictedRow, read_predicted_rows
from faithkit.records import AXES, CALLS, HALLUCINATED, Example, Prediction
from faithkit.runs.reading import Run
from faithkit.settings.config_files import data_path, display_name
from faithkit.statistics.metric import Metric

FACT = "fact "  # prefix of facts, which may have the name of a field
TITLES: Mapping[str, str] = {
    **{"source": "Dataset", "split": "Split"},
    **{name: name.replace("_", " ").capitalize() for name in FACTS},
    **{"model": "Generator", "model_name": "Generator"},
    **{"tags": "Tags", "span_types": "Types of spans", "span_relations": "Relations of spans"},
    **{"span_elements": "Elements of spans", "history": "Turns before", "knowledge": "Words of knowledge"},
}


@dataclass(frozen=True, slots=True)
class System:
    """The predictions of one run on a test set.

    Args:
        name: The run's name, with the file's where a run has several for one test set.
        measured: What an evaluation of generated responses measured of each, by id.
    """

    name: str
    run: Run
    predictions: Mapping[str, Prediction]
    measured: Mapping[str, Mapping[str, float]]

    def join(self, rows: Sequence[Example]) -> Outcomes:
        """Joins labelled rows with the predictions of these."""
        return join_outcomes(rows, {row.id: self.predictions[row.id] for row in rows})


@dataclass(slots=True)
class TestSet:
    """The rows that runs have predicted, and their predictions.

    Args:
        examples: By id, with the fields of all files; not every file has every row.
        with_text: The ids of rows with a known response.
        problems: What cannot be compared.
    """

    __test__ = False  # pytest: this is not a test

    name: str
    examples: dict[str, Example] = field(default_factory=dict)
    systems: list[System] = field(default_factory=list)
    with_text: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def select_judged(self, *systems: System) -> list[Example]:
        """Selects the rows with a gold label and a predicted label of each of these systems, in the files' order."""
        rows = []
        for id_, example in self.examples.items():
            predictions = [system.predictions.get(id_) for system in systems]
            gold = gold_label(example)
            if gold is not None and all(one is not None and one.label is not None for one in predictions):
                rows.append(example if example.label is not None else replace(example, label=gold))
        return rows


def read_test_sets(runs: Iterable[Run]) -> list[TestSet]:
    """Reads the predictions of all runs and joins them by test set; messages are in `problems`."""
    found: dict[str, TestSet] = {}
    for run in runs:
        files = []
        for stem, path in run.predictions.items():
            dataset = None
            with suppress(UserError, OSError, KeyError, TypeError):  # a file without a record is named by itself
                dataset = read_strict_json(path.with_suffix(".origin.json"), hint="")["rows"]["dataset"]
            dataset = dataset if isinstance(dataset, str) and dataset else stem
            files.append((data_name(run, dataset), stem, path))
        names = [name for name, _, _ in files]
        for name, stem, path in files:
            test_set = found.setdefault(name, TestSet(name))
            system = run.name if names.count(name) == 1 else f"{run.name}: {stem}"
            read = read_predicted_rows(path)
            test_set.problems += [f"{system}: {problem}" for problem in read.problems]
            if read.rows:
                rows = dict(read.rows)
                for id_, row in read.rows.items():
                    # A row without a source has the name of the file, and gets that of the test set.
                    if row.example.split == UNKNOWN_SPLIT and row.example.source == stem != name:
                        rows[id_] = replace(row, example=replace(row.example, source=name))
                scores, lines = run.folder / "scores" / f"{stem}.jsonl", list[dict[str, Any]]()
                try:
                    lines += read_jsonl(scores) if scores.is_file() else ()
                except UserError as error:
                    lines = []
                    test_set.problems.append(f"{scores.name} of scores cannot be read: {error.problem}")
                by_id = {str(line.get("id")): line for line in lines}
                measured = {
                    id_: {k: v for k, v in line.items() if isinstance(v, int | float)} for id_, line in by_id.items()
                }
                _add(test_set, System(system, run, {}, measured), rows)
    for test_set in found.values():
        systems, total = test_set.systems, len(test_set.examples)
        if not systems:
            continue
        for one in systems:
            if len(one.predictions) < total and len(systems) > 1:
                test_set.problems.append(f"{one.name} has {len(one.predictions):,} of the {total:,} rows")
        num_labelled = sum(gold_label(example) is not None for example in test_set.examples.values())
        if not num_labelled and all(each.label is None for one in systems for each in one.predictions.values()):
            if sum(bool(one.measured) for one in systems) < min(2, len(systems)):
                hint = "answers of generators are compared where `faithkit evaluate` has measured them"
                test_set.problems.append(hint)
        elif not num_labelled:
            test_set.problems.append("no row has a gold label: errors are unknown")
        elif num_labelled < total:
            test_set.problems.append(f"{total - num_labelled:,} of {total:,} rows have no gold label")
        if (without := total - len(test_set.with_text)) == total:
            test_set.problems.append("the files have no texts (save_texts=false): rows are shown without")
        elif without:
            test_set.problems.append(f"{without:,} of {total:,} rows have no text")
    return sorted(found.values(), key=lambda one: (-len(one.systems), one.name))


def data_name(run: Run, dataset: str) -> str:
    """Returns the display name of a dataset of a run."""
    block = run.config.get("benchmark") or run.config.get("data")
    return display_name(dataset, data_path(block)) if isinstance(block, Mapping) else dataset


def _add(test_set: TestSet, system: System, rows: Mapping[str, PredictedRow]) -> None:
    """Adds a system's rows and completes the rows of earlier runs; rows that contradict them are left out."""
    name = system.name
    predictions, num_other, num_differing = {}, 0, 0
    fields: set[str] = set()
    for id_, row in rows.items():
        known = test_set.examples.get(id_)
        if known is None:
            test_set.examples[id_] = row.example
        elif (row.example, row.has_text) != (known, id_ in test_set.with_text):
            old = _values(known, test_set.name, has_text=id_ in test_set.with_text)
            new = _values(row.example, test_set.name, has_text=row.has_text)
            both = old.keys() & new.keys()
            differing = {key for key in both if old[key] != new[key]}
            if "split" not in both:  # a line without a split may have no source either
                differing.discard("source")
            if differing & {"gold", "response", "knowledge"}:  # different rows, whatever their id
                num_other += 1
                continue
            num_differing += bool(differing)
            fields |= differing
            if missing := new.keys() - old.keys():
                values = {k: getattr(row.example, k) for k in missing if k != "gold" and not k.startswith(FACT)}
                facts = {fact: value for fact, value in row.example.meta.items() if FACT + fact in missing}
                test_set.examples[id_] = replace(known, **values, meta={**known.meta, **facts})
        if row.has_text:
            test_set.with_text.add(id_)
        predictions[id_] = row.prediction
    before = "than the same rows of earlier files"
    if num_other:
        test_set.problems.append(f"{name}: {num_other:,} rows have another gold label or text {before}: left out")
    if num_differing:
        names = ", ".join(sorted("gold spans" if one == "spans" else one.removeprefix(FACT) for one in fields))
        what = f"{num_differing:,} rows have other values of {names} {before}"
        test_set.problems.append(f"{name}: {what}: the earlier values are kept")
    if predictions:
        test_set.systems.append(replace(system, predictions=predictions))


def _values(example: Example, name: str, *, has_text: bool) -> dict[str, Any]:
    """Lists the known values of a row by field: `gold` from its label or spans, and each fact.

    Defaults of source, split and group are left out.
    """
    found = {
        "gold": gold_label(example),
        "label": example.label,
        "spans": example.spans,
        "response": example.response if has_text else None,
        "knowledge": example.knowledge or None,
        "history": example.history or None,
        "reference": example.reference,
        "source": example.source if example.source != name else None,
        "split": example.split if example.split != UNKNOWN_SPLIT else None,
        "group": example.group if example.group != example.id else None,
        "tags": example.tags or None,
    }
    facts = {FACT + fact: value for fact, value in example.meta.items()}
    return {key: value for key, value in found.items() if value is not None} | facts


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


def read_facts(test_set: TestSet) -> list[Fact]:
    """Finds the fields with several values.

    Values are sorted by the number that they all begin with, or else the most frequent first.
    """
    columns = (name for one in test_set.examples.values() if one.source in USER_SOURCES for name in one.meta)
    found: dict[str, dict[str, str]] = {name: {} for name in dict.fromkeys([*TITLES, *columns])}
    for id_, example in test_set.examples.items():
        facts = {"source": example.source, "split": example.split}
        names = example.meta if example.source in USER_SOURCES else FACTS
        facts |= {name: str(example.meta[name]) for name in names if name in example.meta and name != CALLS}
        if example.tags:
            facts["tags"] = ", ".join(example.tags)
        if example.spans:
            facts["span_types"] = ", ".join(sorted({span.label for span in example.spans}))
            for axis in AXES:
                if types := {getattr(span, axis) for span in example.spans} - {None}:
                    facts[f"span_{axis}s"] = ", ".join(sorted(types))
        if id_ in test_set.with_text:
            facts["history"] = _bin(len(example.history), TURNS)
            facts["knowledge"] = _bin(len(example.knowledge.split()), WORDS)
        for name, value in facts.items():
            found[name][id_] = value
    few = {name: values for name, values in found.items() if 1 < len(set(values.values())) <= MAX_VALUES}
    distinct: dict[tuple[int, ...], str] = {}
    for name, values in few.items():  # fields that divide the rows in the same way are shown once
        numbers: dict[str, int] = {}
        pattern = (numbers.setdefault(values[id_], len(numbers)) if id_ in values else -1 for id_ in test_set.examples)
        distinct.setdefault(tuple(pattern), name)
    fields = []
    for name in distinct.values():
        counts = Counter(few[name].values())
        if all(value.split()[:1] and value.split()[0].isdecimal() for value in counts):
            ordered = sorted(counts, key=lambda value: int(value.split()[0]))
        else:
            ordered = [value for value, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
        fields.append(Fact(name, TITLES.get(name, name), ordered, few[name]))
    return fields


def _bin(number: int, starts: Sequence[int]) -> str:
    place = bisect_right(starts, number)
    low = starts[place - 1]
    if place == len(starts):
        return f"{low} and more"
    high = starts[place] - 1
    return str(low) if low == high else f"{low} to {high}"


def measure_slices_by_system(
    test_set: TestSet,
    judged: Mapping[str, tuple[Sequence[Example], Outcomes]],
    facts: Sequence[Fact],
    *,
    num_resamples: int,
) -> list[Slice]:
    """Computes each system's metrics on each slice of the rows that it has judged.

    Args:
        judged: By system the rows that it has judged, and what it makes of them.
    """
    measured = {}
    for system, (rows, outcomes) in judged.items():
        fields = {fact.name: [fact.of.get(example.id, "") for example in rows] for fact in facts}
        measured[system] = measure_slices(outcomes, fields, METRICS, num_resamples=num_resamples)
    golds = {example.id: example.label for example in test_set.select_judged()}
    found = []
    for fact in facts:
        for value in fact.values:
            rows_of = [golds[id_] for id_, of_row in fact.of.items() if of_row == value and id_ in golds]
            if rows_of:
                share = sum(label == HALLUCINATED for label in rows_of) / len(rows_of)
                metrics = {system: of_slices.get((fact.name, value), {}) for system, of_slices in measured.items()}
                found.append(Slice(fact.name, value, len(rows_of), share, metrics))
    return found
