"""Human annotation: writes a Label Studio project; given its export, settles disagreements and writes a dataset.

In the run's folder:

    project/             label_config.xml and tasks.json for Label Studio, rows.jsonl for reading its export
    annotations.jsonl    all answers of all annotators: pipeline=agreement reads it
    problems.jsonl       problems of the export, each with its place
    disagreements.jsonl  the rows on which annotators differ, and how they were settled
    to_decide.jsonl      the rows that no rule settled: write the answers under `decision`, then pipeline.decisions=FILE
    benchmark/           the settled rows, in the official layout of the scheme's dataset

Disagreements are settled by majority, by the most severe answer, by an expert's answers, or by a person's decisions.
What a rule cannot settle (a tie, a row that the expert did not see) stays open, and so does a row with too few
annotators.

>>> question = Question(CHOICES, "verdict", "", labels={"wrong": "", "right": ""})
>>> settle_question(question, [["wrong"], ["right"], ["right"]], "majority")
['right']
>>> settle_question(question, [["wrong"], ["right"], ["right"]], "severe")
['wrong']
>>> settle_question(question, [["wrong"], ["right"]], "majority") is None
True
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
from faithkit_papers.annotation.project import (
    CONFIG,
    DECISION,
    PROJECT,
    Annotation,
    AnnotationRow,
    ExportReport,
    make_row,
    read_answers,
    read_export,
    read_rows,
    to_line,
    write_project,
)
from faithkit_papers.annotation.schemes import CHOICES, SCHEMES, SPANS, TEXT, Answer, Answers, Question, Scheme
from faithkit_papers.annotation.settled_layouts import Answered, write_layout
from faithkit_workflows.pipelines.run_chain import print_counts
from faithkit_workflows.settings.construction import ANNOTATIONS

BENCHMARK = "benchmark"
DISAGREEMENTS, TO_DECIDE = "disagreements.jsonl", "to_decide.jsonl"
GOLD, PREDICTIONS, NONE = "gold", "predictions", "none"
MAJORITY, SEVERE, EXPERT = "majority", "severe", "expert"  # or hand: a person decides every difference
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The outcome of one row.

    Args:
        answers: Those that all or the rule agree on, by question.
        open: The questions that are not settled.
        how: agreed, one annotator, the rule's name, decided by hand, or open.
        disagree: The questions that the annotators answered differently.
    """

    row: str
    answers: Answers
    open: tuple[str, ...]
    how: str
    disagree: tuple[str, ...]


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
    lines = (
        {
            "id": one.row,
            "decide": list(one.open),
            DECISION: None,
            "text": rows[one.row].text,
            "annotators": given[one.row],
            "settled": one.answers,
        }
        for one in settled
        if one.open
    )
    open_rows = write_jsonl(run.path / TO_DECIDE, lines)
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


def settle(
    scheme: Scheme,
    rows: Mapping[str, AnnotationRow],
    annotations: Sequence[Annotation],
    *,
    rule: str,
    expert: Mapping[str, Answers] | None = None,
    decisions: Mapping[str, Answers] | None = None,
    min_annotators: int = 1,
) -> list[Settled]:
    """Settles every annotated row, in the order of the rows.

    Args:
        rule: majority, severe, expert or hand; a person's decision takes precedence.
        expert: The expert's answers by row, for the rule `expert`; the expert is not an annotator then.
        decisions: A person's decisions, by row.
        min_annotators: Rows with fewer stay open.
    """
    by_row: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        by_row.setdefault(annotation.row, []).append(annotation)
    found = []
    for row in rows:
        given = by_row.get(row, [])
        if given or (decisions and row in decisions) or (expert and row in expert):
            found.append(_settle_row(scheme, row, given, rule, expert or {}, decisions or {}, min_annotators))
    return found


def _settle_row(
    scheme: Scheme,
    row: str,
    given: Sequence[Annotation],
    rule: str,
    expert: Mapping[str, Answers],
    decisions: Mapping[str, Answers],
    min_annotators: int,
) -> Settled:
    names = [question.name for question in scheme.questions]
    differing = tuple(
        name for name in names if any(one.answers.get(name) != given[0].answers.get(name) for one in given[1:])
    )
    if row in decisions:
        # Questions that a decision leaves out keep the answer of all, or of the rule.
        ruled = _settle_row(scheme, row, given, rule, expert, {}, 1)
        left_out = tuple(name for name in ruled.open if given and name not in decisions[row])
        how = "open" if left_out else "decided by hand"
        return Settled(row=row, answers=ruled.answers | decisions[row], open=left_out, how=how, disagree=differing)
    if rule == EXPERT and row in expert:
        return Settled(row=row, answers=dict(expert[row]), open=(), how=EXPERT, disagree=differing)
    if not given or len(given) < min_annotators:
        return Settled(row=row, answers={}, open=tuple(names), how="open", disagree=differing)
    answers: Answers = {}
    left: list[str] = []
    for question in scheme.questions:
        all_given = [one.answers[question.name] for one in given if question.name in one.answers]
        if not all_given:
            continue
        if question.name not in differing:
            answers[question.name] = all_given[0]
        elif question.kind == TEXT and rule in (MAJORITY, SEVERE):
            # That of the annotator who agrees with most of the settled answers; of equals the first by name.
            by_fit = {}
            for one in given:
                if question.name in one.answers:
                    agreed = sum(one.answers.get(name) == answer for name, answer in answers.items())
                    by_fit[-agreed, one.annotator] = str(one.answers[question.name])
            answers[question.name] = by_fit[min(by_fit)]
        elif (settled := settle_question(question, [one.answers.get(question.name) for one in given], rule)) is None:
            left.append(question.name)
        else:
            answers[question.name] = settled
    how = "open" if left else rule if differing else "agreed" if len(given) > 1 else "one annotator"
    return Settled(row=row, answers=answers, open=tuple(left), how=how, disagree=differing)


def settle_question(question: Question, answers: Sequence[Any], rule: str) -> Answer | None:
    """Settles one question's answers (None if an annotator gave none), or leaves it open: None.

    Majority: of Choices the label of more annotators than any other, of several labels those that more than half gave;
    of Spans the characters that more than half marked, with the label that most of them gave (of equals the most
    severe); of numbers the median, where it is one of the answers. Severe: the most severe label, all labels that
    anybody gave where several are allowed, the union of spans with the most severe label, the lowest number.
    """
    given = [answer for answer in answers if answer is not None]
    if rule not in (MAJORITY, SEVERE) or not given:
        return None
    if question.kind == SPANS:
        return _settle_spans(question, given, len(answers) / 2 if rule == MAJORITY else 0)
    if question.kind == CHOICES:
        counts = Counter(label for answer in given for label in answer)
        if question.multiple:
            least = len(answers) / 2 if rule == MAJORITY else 0
            return [label for label in question.labels if counts[label] > least] or None
        if rule == SEVERE:
            return [next(label for label in question.labels if counts[label])] if counts else None
        unanswered = sum(not answer for answer in answers)  # counts as an answer, which may have the majority
        (best, most), *others = counts.most_common() or [("", 0)]
        tied = unanswered >= most or any(count == most for _, count in others)
        return None if tied else [best]
    if rule == SEVERE:
        return min(given)
    ordered = sorted(given)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else None


def _settle_spans(question: Question, answers: Sequence[list[dict[str, Any]]], least: float) -> list[dict[str, Any]]:
    """Keeps the characters that more than `least` annotators marked, cut where their label or flags change."""
    edges = sorted({edge for spans in answers for span in spans for edge in (span["start"], span["end"])})
    severity = list(question.labels)
    pieces: list[dict[str, Any]] = []
    for start, end in pairwise(edges):
        marking = [[span for span in spans if span["start"] <= start and end <= span["end"]] for spans in answers]
        marking = [spans for spans in marking if spans]
        if len(marking) <= least or not marking:
            continue
        labels = Counter(label for spans in marking for label in {span["label"] for span in spans})
        flags = Counter(
            flag for spans in marking for flag in {flag for span in spans for flag in span.get("flags", ())}
        )
        label = min(labels, key=lambda name: (-labels[name] if least else 0, severity.index(name)))
        kept = [flag for flag in question.flags if flags[flag] * 2 > len(marking)]
        piece = {"start": start, "end": end, "label": label} | ({"flags": kept} if kept else {})
        if (
            pieces
            and pieces[-1]["end"] == start
            and {**piece, "start": 0, "end": 0} == {**pieces[-1], "start": 0, "end": 0}
        ):
            pieces[-1]["end"] = end
        else:
            pieces.append(piece)
    return pieces
