"""Human annotation: writes a Label Studio project; given its export, settles disagreements and writes a dataset.

In the run's folder:

    project/             label_config.xml and tasks.json for Label Studio, rows.jsonl for reading its export
    annotations.jsonl    all answers of all annotators: pipeline=agreement reads it
    problems.jsonl       problems of the export, each with its place
    disagreements.jsonl  the rows on which annotators differ, and how they were settled
    to_decide.jsonl      the rows that no rule settled: write the answers under `decision`, then pipeline.decisions=FILE
    benchmark/           the settled rows, in the official layout of the scheme's dataset
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from rich.table import Table
from rich.text import Text

from construction.annotation.export import Annotation, ExportReport, annotators_of, read_export, to_line
from construction.annotation.project import AnnotationRow, make_row, read_rows, scheme_of, write_project
from construction.annotation.schemes import Scheme
from construction.annotation.settle import EXPERT, Settled, open_rows_to_decide, read_decisions, read_expert, settle
from construction.annotation.settled_layouts import Answered, write_layout
from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_predictions, read_strict_json, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import full_names, write_results
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table, print_tables
from faithkit.records import Example, Prediction
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, Metric

PROJECT, SETTINGS, BENCHMARK = "project", "settings.json", "benchmark"
ANNOTATIONS, PROBLEMS = "annotations.jsonl", "problems.jsonl"
DISAGREEMENTS, TO_DECIDE = "disagreements.jsonl", "to_decide.jsonl"
GOLD, PREDICTIONS, NONE = "gold", "predictions", "none"
# Settings of the tasks: with other values the annotations of the old tasks would not fit.
OF_TASKS = (
    "scheme",
    "dataset",
    "path",
    "split",
    "options",
    "on_bad_row",
    "sample",
    "suggest",
    "predictions",
    "systems",
)
log = logging.getLogger("faithkit")


def run_annotate(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Writes the project unless it exists, and reads the export if there is one."""
    block = config["pipeline"]
    if config["dry_run"]:
        planned = list(_rows(config))
        shown = (block["scheme"], planned[0].text)
        log.info("%d tasks of scheme %s would be written; the first one:\n%s", len(planned), *shown)
        return
    project = run.path / PROJECT
    _write_once(run, config)
    if block["export"] is None:
        log.info("annotate %s, export JSON, then: faithkit construct resume=%s pipeline.export=FILE", project, run.path)
        return
    scheme, rows = read_rows(project)
    report = ExportReport(block["on_bad_annotation"])
    annotations = read_export(Path(block["export"]).expanduser(), scheme, rows, report)
    write_jsonl(run.path / ANNOTATIONS, (to_line(one, rows[one.row]) for one in annotations))
    write_jsonl(run.path / PROBLEMS, report.problems)
    settled = _settle(scheme, rows, annotations, block)
    named = {one.row: one for one in settled}
    write_jsonl(run.path / DISAGREEMENTS, _disagreements(settled, annotations))
    open_rows = write_jsonl(run.path / TO_DECIDE, open_rows_to_decide(settled, rows, annotations))
    answered = [Answered(rows[one.row], one.answers) for one in settled if not one.open]
    counts = write_layout(scheme.name, run.path / BENCHMARK, answered)
    metrics = _metrics(scheme, rows, named, annotations)
    by_number = annotators_of(annotations, rows)
    meta = {
        "scheme": scheme.name,
        "rows": len(rows),
        "annotations": len(annotations),
        "rows_by_annotators": {str(number): count for number, count in sorted(by_number.items())},
        "export": dict(report.counts),
        "settled": dict(Counter(one.how for one in settled)),
        "benchmark": dict(counts),
    }
    write_results(run.metrics, full_names("test", scheme.name, metrics), meta)
    print_tables(_found_table(meta), _question_table(scheme, settled, metrics))
    if open_rows:
        path = run.path / TO_DECIDE
        log.info("%d rows are open: fill %s, then pipeline.decisions=%s", open_rows, path, path)
    log.info("%s: %s", run.path / BENCHMARK, ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none")


def check_resumed(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Refuses other settings of the tasks than those with which the project was written.

    Raises:
        UserError: The project has other ones; the hint names them.
    """
    project = run.path / PROJECT
    if not (project / SETTINGS).exists():
        return
    stored = read_strict_json(project / SETTINGS, hint="write the project again, in another run_dir")
    if changed := [name for name, value in _of_tasks(config).items() if stored.get(name) != value]:
        problem = f"the project was written with another {' and '.join(changed)}"
        keys = (name if name in ("limit", "seed") else f"pipeline.{name}" for name in changed)
        before = " ".join(f"{key}={_shown(stored.get(name))}" for key, name in zip(keys, changed, strict=True))
        raise UserError(problem, place=str(project), hint=f"{before} as before, or another project: run_dir=DIR")


def _of_tasks(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: config["pipeline"][name] for name in OF_TASKS} | {"limit": config["limit"], "seed": config["seed"]}


def _write_once(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Writes the project unless it exists, since people may be annotating it."""
    block, project = config["pipeline"], run.path / PROJECT
    mark = project / SETTINGS  # written last: the project is complete
    if mark.exists():
        check_resumed(run, config)  # a new run in a folder that had no config.yaml
        return
    scheme = scheme_of(block["scheme"])
    model = block["suggest"] if block["suggest"] != PREDICTIONS else Path(block["predictions"]).name
    number = write_project(project, scheme, _rows(config), model)
    write_json(mark, _of_tasks(config))
    log.info("%s: %d tasks, scheme %s (%s)", project, number, scheme.name, scheme.about)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _rows(config: Mapping[str, Any]) -> Iterator[AnnotationRow]:
    block = config["pipeline"]
    scheme = scheme_of(block["scheme"])
    report = ReadReport(block["on_bad_row"])
    source = build_source(block["dataset"], block["path"], **block["options"])
    examples = list(read_examples(source, block["split"], report, config["limit"]))
    if (wanted := block["sample"]) is not None and wanted < len(examples):
        drawn = sorted(Random(config["seed"]).sample(range(len(examples)), wanted))
        examples = [examples[place] for place in drawn]
    suggest = block["suggest"] != NONE
    predictions: Mapping[str, Prediction] = {}
    if block["suggest"] == PREDICTIONS:
        predictions = _predicted(block["predictions"], examples)
    systems = {name: _predicted(path, examples) for name, path in (block["systems"] or {}).items()}
    for example in examples:
        if not systems:
            yield make_row(scheme, example, predictions.get(example.id), suggest=suggest, system=None)
        for name, predicted in systems.items():
            response = predicted[example.id].text
            if not response.strip():
                log.warning("%s has no response to %s: left out", name, example.id)
                continue
            # The labels and spans of the dataset are about its response, not this one.
            judged = replace(example, response=response, label=None, spans=None, tags=(), target=None, meta={})
            yield make_row(scheme, judged, predicted[example.id], suggest=suggest, system=name)


def _predicted(path: str, examples: Sequence[Example]) -> dict[str, Prediction]:
    found = read_predictions(Path(path).expanduser())
    missing = [example.id for example in examples if example.id not in found]
    if missing:
        problem = f"no prediction for {len(missing)} of {len(examples)} rows, such as {missing[0]}"
        raise UserError(problem, place=path, hint="predict the same rows: the same dataset, split and options")
    return found


def _settle(
    scheme: Scheme, rows: Mapping[str, AnnotationRow], annotations: Sequence[Annotation], block: Mapping[str, Any]
) -> list[Settled]:
    expert = decisions = None
    given = list(annotations)
    if block["adjudicate"] == EXPERT:
        named = block["expert"]
        if Path(named).expanduser().is_file():
            expert = read_expert(Path(named).expanduser(), scheme, rows)
        else:
            expert = {one.row: one.answers for one in given if one.annotator == named}
            given = [one for one in given if one.annotator != named]
            if not expert:
                known = ", ".join(sorted({one.annotator for one in annotations}))
                problem = f"pipeline.expert is {named!r}: no such file, and no annotator of that name"
                raise UserError(problem, hint=f"name a file of answers, or one of {known}")
    if block["decisions"] is not None:
        decisions = read_decisions(Path(block["decisions"]).expanduser(), scheme, rows)
    return settle(
        scheme,
        rows,
        given,
        rule=block["adjudicate"],
        expert=expert,
        decisions=decisions,
        min_annotators=block["min_annotators"],
    )


def _disagreements(settled: Sequence[Settled], annotations: Sequence[Annotation]) -> Iterator[dict[str, Any]]:
    by_row: dict[str, dict[str, Any]] = {}
    for annotation in annotations:
        by_row.setdefault(annotation.row, {})[annotation.annotator] = annotation.answers
    for one in settled:
        if one.disagree:
            answers = {name: {q: given.get(q) for q in one.disagree} for name, given in by_row.get(one.row, {}).items()}
            yield {
                "id": one.row,
                "disagree": list(one.disagree),
                "answers": answers,
                "how": one.how,
                "open": list(one.open),
            }


def _metrics(
    scheme: Scheme, rows: Mapping[str, AnnotationRow], settled: Mapping[str, Settled], annotations: Sequence[Annotation]
) -> dict[str, Metric]:
    """Computes the share of rows with several annotators on which all agree, by question and for all questions."""
    numbers = Counter(annotation.row for annotation in annotations)
    several = [row for row, number in numbers.items() if number > 1]
    if not several:
        return {}
    groups = Groups.of(rows[row].example.group for row in several)
    columns = {"agreed": [float(not settled[row].disagree) for row in several]}
    for question in scheme.questions:
        columns[f"{question.name}_agreed"] = [float(question.name not in settled[row].disagree) for row in several]
    return bootstrap(groups, mean_statistic(groups, columns), kinds=PROPORTION).metrics


def _found_table(meta: Mapping[str, Any]) -> Table:
    table = new_number_table("annotations", "", [""], show_edge=True)
    table.show_header = False
    by_number = {f"rows with {number} annotators": count for number, count in meta["rows_by_annotators"].items()}
    counted = {"rows": meta["rows"], "annotations": meta["annotations"], **by_number, **meta["export"]}
    for name, count in {**counted, **{f"settled: {how}": number for how, number in meta["settled"].items()}}.items():
        table.add_row(Text(escape_terminal(name)), f"{count:,}")
    return table


def _question_table(scheme: Scheme, settled: Sequence[Settled], metrics: Mapping[str, Metric]) -> Table:
    heads = ("rows that disagree", "still open", "share that agrees")
    table = new_number_table("disagreements, by question", "question", heads, show_edge=True)
    for question in scheme.questions:
        counts = [sum(question.name in getattr(one, part) for one in settled) for part in ("disagree", "open")]
        table.add_row(question.name, *map(str, counts), format_metric(metrics.get(f"{question.name}_agreed")))
    return table
