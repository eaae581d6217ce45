"""Predictions of several runs on the rows of one test set, joined by id."""

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

LEFT_OUT = {"gold", "response", "knowledge"}  # rows that differ in these are other rows, whatever their id
FACT = "fact "  # before the name of one, which may be that of a field too


@dataclass(frozen=True, slots=True)
class System:
    """One run's predictions on a test set.

    Args:
        name: The run's name, with that of the file where a run has several for one test set.
    """

    name: str
    run: Run
    predictions: Mapping[str, Prediction]


@dataclass(slots=True)
class TestSet:
    """The rows that runs have predicted, and what each of them says.

    Args:
        examples: By id, with all that any of the files tells; the rows of one file may be others than those of another.
        problems: Sentences on what cannot be compared.
    """

    __test__ = False  # pytest: this is no test

    name: str
    examples: dict[str, Example] = field(default_factory=dict)
    systems: list[System] = field(default_factory=list)
    with_text: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    @property
    def is_labelled(self) -> bool:
        """Tells whether any row has a gold label, without which nothing can be right or wrong."""
        return any(gold_label(example) is not None for example in self.examples.values())

    def judged(self, *systems: System) -> list[Example]:
        """Selects the rows that have a gold label and a verdict of each of these systems, in the files' order."""
        rows = []
        for id_, example in self.examples.items():
            said = [system.predictions.get(id_) for system in systems]
            if gold_label(example) is not None and all(one is not None and one.label is not None for one in said):
                rows.append(example if example.label is not None else replace(example, label=gold_label(example)))
        return rows


def read_test_sets(runs: Iterable[Run]) -> list[TestSet]:
    """Reads the predictions of all runs, joined by the test set that they are of; what cannot be read is told."""
    found: dict[str, TestSet] = {}
    for run in runs:
        files = [(data_name(run, dataset_of(path, stem)), stem, path) for stem, path in run.predictions.items()]
        named = [name for name, _, _ in files]
        for name, stem, path in files:
            test_set = found.setdefault(name, TestSet(name))
            own = run.name if named.count(name) == 1 else f"{run.name}: {stem}"
            read = read_predicted_rows(path)
            test_set.problems += [f"{own}: {problem}" for problem in read.problems]
            if read.rows:
                _add(test_set, own, run, {id_: _with_source(row, stem, name) for id_, row in read.rows.items()})
    for test_set in found.values():
        _tell(test_set)
    return sorted(found.values(), key=lambda one: (-len(one.systems), one.name))


def data_name(run: Run, dataset: str) -> str:
    """Names a dataset of a run as a reader should see it."""
    block = run.config.get("benchmark") or run.config.get("data")
    return display_name(dataset, data_path(block)) if isinstance(block, Mapping) else dataset


def dataset_of(path: Path, default: str) -> str:
    """Names the test set of a predictions file, by the file beside it where there is one."""
    try:
        found = read_strict_json(path.with_suffix(".origin.json"), hint="")["rows"]["dataset"]
    except (UserError, OSError, KeyError, TypeError):
        return default
    return found if isinstance(found, str) and found else default


def _with_source(row: PredictedRow, stem: str, name: str) -> PredictedRow:
    """Calls a row whose line names no source by the test set: files of other names would differ in it."""
    example = row.example
    if example.split != UNKNOWN_SPLIT or example.source != stem or stem == name:
        return row
    return replace(row, example=replace(example, source=name))


def _add(test_set: TestSet, name: str, run: Run, rows: Mapping[str, PredictedRow]) -> None:
    """Adds a run's rows, and to the rows of earlier runs what those lack; rows that contradict them are left out."""
    predictions, other, unlike = {}, 0, 0
    fields: set[str] = set()
    for id_, row in rows.items():
        known = test_set.examples.get(id_)
        if known is None:
            test_set.examples[id_] = row.example
        elif (row.example, row.has_text) != (known, id_ in test_set.with_text):  # runs of today's files tell the same
            old = _values(known, test_set.name, has_text=id_ in test_set.with_text)
            new = _values(row.example, test_set.name, has_text=row.has_text)
            both = old.keys() & new.keys()
            differing = {key for key in both if old[key] != new[key]}
            if "split" not in both:  # a line without a split may name no source either
                differing.discard("source")
            if differing & LEFT_OUT:
                other += 1
                continue
            unlike += bool(differing)
            fields |= differing
            if lacking := new.keys() - old.keys():
                test_set.examples[id_] = _completed(known, row.example, lacking)
        if row.has_text:
            test_set.with_text.add(id_)
        predictions[id_] = row.prediction
    before = "than the rows of the same ids before them"
    if other:
        test_set.problems.append(f"{name}: {other:,} rows have another gold label or text {before}, and are left out")
    if unlike:
        told = ", ".join(sorted("gold spans" if one == "spans" else one.removeprefix(FACT) for one in fields))
        test_set.problems.append(f"{name}: {unlike:,} rows have other values of {told} {before}, whose values are kept")
    if predictions:
        test_set.systems.append(System(name, run, predictions))


def _values(example: Example, name: str, *, has_text: bool) -> dict[str, Any]:
    """Gives what a row's line tells, by field; the facts one by one, and `gold` from its label or spans.

    The source, split and group that stand in where a line has none are not told.
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


def _completed(known: Example, new: Example, fields: Collection[str]) -> Example:
    """Takes these fields from the new row, and all others from the known one."""
    own = {key: getattr(new, key) for key in fields if key != "gold" and not key.startswith(FACT)}
    facts = {fact: value for fact, value in new.meta.items() if FACT + fact in fields}
    return replace(known, **own, meta={**known.meta, **facts})


def _tell(test_set: TestSet) -> None:
    total = len(test_set.examples)
    for system in test_set.systems:
        if len(system.predictions) < total and len(test_set.systems) > 1:
            test_set.problems.append(f"{system.name} has {len(system.predictions):,} of the {total:,} rows")
    if not test_set.systems:
        return
    judged = sum(gold_label(example) is not None for example in test_set.examples.values())
    said = (one for system in test_set.systems for one in system.predictions.values())
    if not judged and all(one.label is None for one in said):
        told = "answers of generators are shown, and compared by their metrics; evaluate.py against=FILE tests a pair"
        test_set.problems.append(told)
    elif not judged:
        test_set.problems.append("no row has a gold label: what is right or wrong cannot be told")
    elif judged < total:
        test_set.problems.append(f"{total - judged:,} of {total:,} rows have no gold label")
    if (without := total - len(test_set.with_text)) == total:
        test_set.problems.append("the files hold no texts (older ones, or save_texts=false): rows are shown without")
    elif without:
        test_set.problems.append(f"{without:,} of {total:,} rows have no text")
