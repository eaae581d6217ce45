"""Predictions of several runs on the rows of one test set, joined by id."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from faithkit.errors import UserError
from faithkit.evaluation.page_rows import gold_label
from faithkit.evaluation.predicted_rows import PredictedRow, read_predicted_rows
from faithkit.files.strict_json import read_strict_json
from faithkit.records import Example, Prediction
from faithkit.runs.run import Run
from faithkit.stand_in import source_of, told_name


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
                _add(test_set, own, run, read.rows)
    for test_set in found.values():
        _tell(test_set)
    return sorted(found.values(), key=lambda one: (-len(one.systems), one.name))


def data_name(run: Run, dataset: str) -> str:
    """Names a dataset of a run as a reader should see it."""
    block = run.config.get("benchmark") or run.config.get("data")
    return told_name(dataset, source_of(block)) if isinstance(block, Mapping) else dataset


def dataset_of(path: Path, default: str) -> str:
    """Names the test set of a predictions file, by the file beside it where there is one."""
    try:
        found = read_strict_json(path.with_suffix(".origin.json"), hint="")["rows"]["dataset"]
    except (UserError, OSError, KeyError, TypeError):
        return default
    return found if isinstance(found, str) and found else default


def _add(test_set: TestSet, name: str, run: Run, rows: Mapping[str, PredictedRow]) -> None:
    """Adds a run's rows; those that differ from what stands under the same id are left out."""
    predictions, other = {}, 0
    for id_, row in rows.items():
        known = test_set.examples.get(id_)
        has_text = id_ in test_set.with_text
        if known is None or (row.has_text and not has_text) or (gold_label(known) is None and gold_label(row.example)):
            if known is not None and _differs(known, row, has_text):
                other += 1
                continue
            test_set.examples[id_] = row.example
            if row.has_text:
                test_set.with_text.add(id_)
        elif _differs(known, row, has_text):
            other += 1
            continue
        predictions[id_] = row.prediction
    if other:
        problem = f"{other:,} rows have another gold label or text than the rows of the same ids before them"
        test_set.problems.append(f"{name}: {problem}, and are left out")
    if predictions:
        test_set.systems.append(System(name, run, predictions))


def _differs(known: Example, row: PredictedRow, has_text: bool) -> bool:
    new = row.example
    golds = gold_label(known), gold_label(new)
    if None not in golds and golds[0] != golds[1]:
        return True
    return has_text and row.has_text and (known.response, known.knowledge) != (new.response, new.knowledge)


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
