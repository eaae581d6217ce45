"""Joins the predictions of several runs on one test set by row id."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from faithkit.embedded_name import data_path, display_name
from faithkit.errors import UserError
from faithkit.files.jsonl import read_strict_json
from faithkit.pages.page_parts import gold_label
from faithkit.provenance.predicted_rows import UNKNOWN_SPLIT, PredictedRow, read_predicted_rows
from faithkit.records import Example, Prediction
from faithkit.runs.run import Run

IDENTITY = {"gold", "response", "knowledge"}  # rows that differ in these are different rows, whatever their id
FACT = "fact "  # prefix of facts, which may have the name of a field


@dataclass(frozen=True, slots=True)
class System:
    """The predictions of one run on a test set.

    Args:
        name: The run's name, with the file's where a run has several for one test set.
    """

    name: str
    run: Run
    predictions: Mapping[str, Prediction]


@dataclass(slots=True)
class TestSet:
    """The rows that runs have predicted, and their predictions.

    Args:
        examples: By id, with the fields of all files; not every file has every row.
        with_text: The ids of rows with a known response.
        problems: What cannot be compared.
    """

    __test__ = False  # pytest: this is no test

    name: str
    examples: dict[str, Example] = field(default_factory=dict)
    systems: list[System] = field(default_factory=list)
    with_text: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    @property
    def is_labelled(self) -> bool:
        """Reports whether any row has a gold label."""
        return any(gold_label(example) is not None for example in self.examples.values())

    def select_judged(self, *systems: System) -> list[Example]:
        """Selects the rows with a gold label and a predicted label of each of these systems, in the files' order."""
        rows = []
        for id_, example in self.examples.items():
            predictions = [system.predictions.get(id_) for system in systems]
            has_labels = all(one is not None and one.label is not None for one in predictions)
            if gold_label(example) is not None and has_labels:
                rows.append(example if example.label is not None else replace(example, label=gold_label(example)))
        return rows


def read_test_sets(runs: Iterable[Run]) -> list[TestSet]:
    """Reads the predictions of all runs and joins them by test set; messages are in `problems`."""
    found: dict[str, TestSet] = {}
    for run in runs:
        files = [(data_name(run, dataset_of(path, stem)), stem, path) for stem, path in run.predictions.items()]
        names = [name for name, _, _ in files]
        for name, stem, path in files:
            test_set = found.setdefault(name, TestSet(name))
            system = run.name if names.count(name) == 1 else f"{run.name}: {stem}"
            read = read_predicted_rows(path)
            test_set.problems += [f"{system}: {problem}" for problem in read.problems]
            if read.rows:
                _add(test_set, system, run, {id_: _with_source(row, stem, name) for id_, row in read.rows.items()})
    for test_set in found.values():
        _check(test_set)
    return sorted(found.values(), key=lambda one: (-len(one.systems), one.name))


def data_name(run: Run, dataset: str) -> str:
    """Returns the display name of a dataset of a run."""
    block = run.config.get("benchmark") or run.config.get("data")
    return display_name(dataset, data_path(block)) if isinstance(block, Mapping) else dataset


def dataset_of(path: Path, default: str) -> str:
    """Reads the name of the test set from the record next to a predictions file, if there is one."""
    try:
        found = read_strict_json(path.with_suffix(".origin.json"), hint="")["rows"]["dataset"]
    except (UserError, OSError, KeyError, TypeError):
        return default
    return found if isinstance(found, str) and found else default


def _with_source(row: PredictedRow, stem: str, name: str) -> PredictedRow:
    """Sets the source of a row without one to the test set, because it would be the name of the file."""
    example = row.example
    if example.split != UNKNOWN_SPLIT or example.source != stem or stem == name:
        return row
    return replace(row, example=replace(example, source=name))


def _add(test_set: TestSet, name: str, run: Run, rows: Mapping[str, PredictedRow]) -> None:
    """Adds a run's rows and completes the rows of earlier runs; rows that contradict them are left out."""
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
            if differing & IDENTITY:
                num_other += 1
                continue
            num_differing += bool(differing)
            fields |= differing
            if missing := new.keys() - old.keys():
                test_set.examples[id_] = _complete(known, row.example, missing)
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
        test_set.systems.append(System(name, run, predictions))


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


def _complete(known: Example, new: Example, fields: Collection[str]) -> Example:
    """Takes these fields from the new row, and all others from the known one."""
    values = {key: getattr(new, key) for key in fields if key != "gold" and not key.startswith(FACT)}
    facts = {fact: value for fact, value in new.meta.items() if FACT + fact in fields}
    return replace(known, **values, meta={**known.meta, **facts})


def _check(test_set: TestSet) -> None:
    """Adds what cannot be compared to the problems."""
    total = len(test_set.examples)
    for system in test_set.systems:
        if len(system.predictions) < total and len(test_set.systems) > 1:
            test_set.problems.append(f"{system.name} has {len(system.predictions):,} of the {total:,} rows")
    if not test_set.systems:
        return
    num_labelled = sum(gold_label(example) is not None for example in test_set.examples.values())
    predictions = (one for system in test_set.systems for one in system.predictions.values())
    if not num_labelled and all(one.label is None for one in predictions):
        hint = "answers of generators are shown, and compared by their metrics; evaluate.py against=FILE tests a pair"
        test_set.problems.append(hint)
    elif not num_labelled:
        test_set.problems.append("no row has a gold label: errors are unknown")
    elif num_labelled < total:
        test_set.problems.append(f"{total - num_labelled:,} of {total:,} rows have no gold label")
    if (without := total - len(test_set.with_text)) == total:
        test_set.problems.append("the files have no texts (save_texts=false): rows are shown without")
    elif without:
        test_set.problems.append(f"{without:,} of {total:,} rows have no text")
