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

import numpy as np

from data_modules.build import build_source
from data_modules.reading.dataset import read_drawn_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.responses.measure_responses import gold_response, is_fallback
from faithkit.pages.page_tables import format_metric, new_number_table, print_tables
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.settings.config_files import ORIGINAL, UNANSWERABLE
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import ACCURACY, PROPORTION, Metric, full_names, write_results
from faithkit.statistics.spread import Values
from faithkit_papers.annotation.annotation_questions import CHOICES, Answers
from faithkit_papers.annotation.project import (
    CONFIG,
    Annotation,
    AnnotationRow,
    ExportReport,
    make_row,
    read_export,
    read_rows,
    to_line,
    write_project,
)
from faithkit_papers.annotation.schemes import SCHEMES, Scheme
from faithkit_papers.annotation.settle import DECISION, EXPERT, Settled, open_rows_to_decide, read_answers, settle
from faithkit_papers.annotation.settled_layouts import Answered, write_layout
from faithkit_workflows.pipelines.run_chain import print_counts
from faithkit_workflows.settings.construction import ANNOTATIONS

PROJECT, BENCHMARK = "project", "benchmark"
DISAGREEMENTS, TO_DECIDE = "disagreements.jsonl", "to_decide.jsonl"
GOLD, PREDICTIONS, NONE = "gold", "predictions", "none"
log = logging.getLogger("faithkit")


def run_annotate(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Writes the project unless it exists, and reads the export if there is one."""
    block, project = config["pipeline"], run.path / PROJECT
    if config["dry_run"]:
        planned = list(_rows(config))
        shown = (block["scheme"], planned[0].text)
        log.info("%d tasks of scheme %s would be written; the first one:\n%s", len(planned), *shown)
        return
    if not (project / CONFIG).exists():  # written last; people may be annotating a complete project
        scheme = SCHEMES[block["scheme"]]
        model = block["suggest"] if block["suggest"] != PREDICTIONS else Path(block["predictions"]).name
        number = write_project(project, scheme, _rows(config), model)
        log.info("%s: %d tasks, scheme %s (%s)", project, number, scheme.name, scheme.about)
    if block["export"] is None:
        log.info("annotate %s, export JSON, then: faithkit construct resume=%s pipeline.export=FILE", project, run.path)
        return
    scheme, rows = read_rows(project)
    report = ExportReport(block["on_bad_annotation"])
    annotations = read_export(Path(block["export"]).expanduser(), scheme, rows, report)
    write_jsonl(run.path / ANNOTATIONS, (to_line(one, rows[one.row]) for one in annotations))
    write_jsonl(run.path / "problems.jsonl", report.problems)
    settled = _settle(scheme, rows, annotations, block)
    given: dict[str, dict[str, Answers]] = {row: {} for row in rows}
    for one in annotations:
        given[one.row][one.annotator] = one.answers
    disagreements = (
        {
            "id": one.row,
            "disagree": list(one.disagree),
            "answers": {
                name: {question: of.get(question) for question in one.disagree} for name, of in given[one.row].items()
            },
            "how": one.how,
            "open": list(one.open),
        }
        for one in settled
        if one.disagree
    )
    write_jsonl(run.path / DISAGREEMENTS, disagreements)
    open_rows = write_jsonl(run.path / TO_DECIDE, open_rows_to_decide(settled, rows, given))
    answered = [Answered(rows[one.row], one.answers) for one in settled if not one.open]
    counts = write_layout(scheme.name, run.path / BENCHMARK, answered)
    metrics = _metrics(scheme, rows, settled, given)
    by_number = sorted(Counter(map(len, given.values())).items())
    by_outcome = Counter(one.how for one in settled)
    meta = {
        "scheme": scheme.name,
        "rows": len(rows),
        "annotations": len(annotations),
        "rows_by_annotators": {str(number): count for number, count in by_number},
        "export": dict(report.counts),
        "settled": dict(by_outcome),
        "benchmark": dict(counts),
    }
    write_results(run.metrics, full_names("test", scheme.name, metrics), meta)
    found = {"rows": len(rows), "annotations": len(annotations)}
    found |= {f"rows with {number} annotators": count for number, count in by_number} | report.counts
    print_counts("annotations", "", found | {f"settled: {how}": count for how, count in by_outcome.items()})
    heads = ("rows that disagree", "still open", "share that agrees")
    table = new_number_table("disagreements, by question", "question", heads, show_edge=True)
    for question in scheme.questions:
        numbers = [sum(question.name in getattr(one, part) for one in settled) for part in ("disagree", "open")]
        table.add_row(question.name, *map(str, numbers), format_metric(metrics.get(f"{question.name}_agreed")))
    print_tables(table)
    if open_rows:
        path = run.path / TO_DECIDE
        log.info("%d rows are open: fill %s, then pipeline.decisions=%s", open_rows, path, path)
    log.info("%s: %s", run.path / BENCHMARK, ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none")


def _rows(config: Mapping[str, Any]) -> Iterator[AnnotationRow]:
    block = config["pipeline"]
    scheme = SCHEMES[block["scheme"]]
    report = ReadReport(block["on_bad_row"])
    source = build_source(block["dataset"], block["path"], **block["options"])
    examples = read_drawn_examples(source, block["split"], report, num_rows=config["limit"], seed=config["seed"])
    if block["text"] == ORIGINAL:
        examples = [replace(example, response=example.original or example.response) for example in examples]
    if block["only"] == UNANSWERABLE:
        examples = [example for example in examples if is_fallback(gold_response(example))]
        if not examples:
            raise UserError("no response of the dataset says that the answer is not known", hint="pipeline.only=null")
    systems = {name: _predicted(path, examples) for name, path in (block["systems"] or {}).items()}
    if block["only"] == HALLUCINATED:
        examples = [one for one in examples if all(of[one.id].label == HALLUCINATED for of in systems.values())]
        if not examples:
            raise UserError("no response is hallucinated for all systems", hint="pipeline.only=null")
    if (wanted := block["sample"]) is not None and wanted < len(examples):
        drawn = sorted(Random(config["seed"]).sample(range(len(examples)), wanted))
        examples = [examples[place] for place in drawn]
    suggest = block["suggest"] != NONE
    predictions: Mapping[str, Prediction] = {}
    if block["suggest"] == PREDICTIONS:
        predictions = _predicted(block["predictions"], examples)
    for example in examples:
        if not systems:
            yield make_row(scheme, example, predictions.get(example.id), suggest=suggest, system=None)
        for name, predicted in systems.items():
            text = predicted[example.id].text
            if not text.strip():
                log.warning("%s has no %s to %s: left out", name, scheme.judged, example.id)
                continue
            # The labels and spans of the dataset are about its own text, not this one.
            unlabelled = replace(example, label=None, spans=None, tags=(), target=None, meta={})
            judged_text: dict[str, Any] = {scheme.judged: text}
            judged = replace(unlabelled, **judged_text)
            yield make_row(scheme, judged, predicted[example.id], suggest=suggest, system=name)


def _predicted(path: str, examples: Sequence[Example]) -> dict[str, Prediction]:
    """Reads the predictions of these examples from a file, or from the one file of a run."""
    file = Path(path).expanduser()
    if file.is_dir():
        files = sorted((file / PREDICTIONS).glob("*.jsonl"))
        if len(files) != 1:
            raise UserError(f"{len(files)} predictions files are in this run", place=path, hint="name one of its files")
        file = files[0]
    found = read_predictions(file)
    missing = [example.id for example in examples if example.id not in found]
    if missing:
        problem = f"no prediction for {len(missing)} of {len(examples)} rows, such as {missing[0]}"
        raise UserError(problem, place=path, hint="predict the same rows: the same dataset, split and options")
    return found


def _settle(
    scheme: Scheme, rows: Mapping[str, AnnotationRow], annotations: Sequence[Annotation], block: Mapping[str, Any]
) -> list[Settled]:
    expert = decisions = None
    given = annotations
    if block["adjudicate"] == EXPERT:
        named = block["expert"]
        if Path(named).expanduser().is_file():
            expert = read_answers(Path(named).expanduser(), scheme, rows, "answers")
        else:
            expert = {one.row: one.answers for one in given if one.annotator == named}
            given = [one for one in given if one.annotator != named]
            if not expert:
                known = ", ".join(sorted({one.annotator for one in annotations}))
                problem = f"pipeline.expert is {named!r}: no such file, and no annotator of that name"
                raise UserError(problem, hint=f"name a file of answers, or one of {known}")
    if block["decisions"] is not None:
        decisions = read_answers(Path(block["decisions"]).expanduser(), scheme, rows, DECISION)
    return settle(
        scheme,
        rows,
        given,
        rule=block["adjudicate"],
        expert=expert,
        decisions=decisions,
        min_annotators=block["min_annotators"],
    )


def _metrics(
    scheme: Scheme,
    rows: Mapping[str, AnnotationRow],
    settled: Sequence[Settled],
    given: Mapping[str, Mapping[str, Answers]],
) -> dict[str, Metric]:
    """Computes the share of rows with several annotators on which all agree, by question and for all questions.

    Where the dataset has labels, `<question>_f1` is the micro F1 of the settled labels against them.
    """
    found: dict[str, Metric] = {}
    if several := [one for one in settled if len(given[one.row]) > 1]:
        groups = Groups.of(rows[one.row].example.group for one in several)
        columns = {"agreed": [float(not one.disagree) for one in several]}
        for question in scheme.questions:
            columns[f"{question.name}_agreed"] = [float(question.name not in one.disagree) for one in several]
        found |= bootstrap(groups, mean_statistic(groups, columns), kinds=PROPORTION).metrics
    for name in (question.name for question in scheme.questions if question.kind == CHOICES):
        pairs = [
            (rows[one.row].example.group, set(gold), set(one.answers[name]))
            for one in settled
            if name in one.answers and (gold := scheme.suggest(rows[one.row].example, None).get(name))
        ]
        if not pairs:
            continue
        groups = Groups.of(group for group, _, _ in pairs)
        sums = groups.sums(np.array([[2 * len(gold & new), len(gold) + len(new)] for _, gold, new in pairs], float))

        def statistic(weights: Values, key: str = f"{name}_f1", sums: Values = sums) -> dict[str, Values]:
            shared, all_labels = (weights @ sums).T
            return {key: shared / all_labels}

        found |= bootstrap(groups, statistic, kinds=ACCURACY, n=len(pairs)).metrics
    return found
