"""Writes a comparison of models: tables for terminal and page, figures and verdicts as JSON, and rows to label."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.table import Table

from data_modules.reading.fields import alternate
from faithkit.files.atomic import dumps, write_json
from faithkit.files.jsonl import write_jsonl
from faithkit.packages import environment
from faithkit.pages.page import Fact, answer_blocks, describe_set, fill_part, keep_first, write_filled_page
from faithkit.pages.page_tables import (
    escape_terminal,
    format_metric,
    format_p,
    format_percent,
    new_number_table,
    print_tables,
)
from faithkit.records import HALLUCINATED, Example
from faithkit.reports.report import Row, score_table
from faithkit.scores.measures import titles_of
from faithkit_workflows.audit.target import passages_of, question_of
from faithkit_workflows.compare.model_comparison import FALSE_ALARMS, FROM_CACHE, MACRO_F1, TITLES, ModelComparison
from faithkit_workflows.tables.user_table import write_table

PAGE, REPORT, ANSWERS, TO_LABEL = "compare.html", "compare.json", "answers.jsonl", "label_first.csv"
PLAIN = re.compile(r"[\w./:@+-]+")  # a name that needs no quotes in a list
MAX_ROWS = 20_000  # on the page
SHOWN = titles_of((MACRO_F1, "auroc", "precision", "recall")) | {FALSE_ALARMS: "false alarms"}
COSTS = {
    "seconds": "seconds",
    "cpu_seconds": "CPU seconds",
    "loading_seconds": "loading, s",
    FROM_CACHE: "from the cache",
    "requests": "requests",
    "tokens_read": "tokens read",
    "tokens_written": "written",
    "dollars": "dollars",
}
INTERVALS = "95% intervals over groups, or rows of fewer than five"
SECONDS_LINE = "seconds: for 100 rows, after the first"


def write_comparison(folder: Path, found: ModelComparison, config: Mapping[str, Any]) -> None:
    """Writes all files of a comparison into the run's folder; rows to label, which may have labels by now, once."""
    if (folder / TO_LABEL).exists():
        found.notes.append(f"{TO_LABEL} was written before and may have labels: it is kept. Delete it for a new one.")
    elif found.to_label:
        to_label = []
        for row in found.to_label:  # under names that every command finds
            passages, question = list(passages_of(row)), question_of(row)
            turns = [{"speaker": turn.speaker, "text": turn.text} for turn in row.history]
            is_question = row.history == alternate([question])
            cells: dict[str, Any] = {
                "id": row.id,
                "group": row.group,
                "context": _as_cell(passages[0]) if len(passages) == 1 else dumps(passages),
                "question": _as_cell(question) if is_question or not turns else dumps(turns),
                "answer": row.response,
                "label": "",
            }
            to_label.append(cells)
        write_table(folder / TO_LABEL, to_label, ",")
    report = {  # without the texts of rows
        "conclusion": found.lines,
        "notes": found.notes,
        "rows": len(found.rows),
        "compared_rows": len(found.common),
        "models": {
            one.name: {
                "verdicts": len(one.answers),
                "problems": dict(one.problems),
                "costs": dict(one.costs),
                "called_hallucinated": asdict(found.shares[one.name]) if one.name in found.shares else None,
            }
            for one in found.asked
        },
        "accuracy": None if found.accuracy is None else asdict(found.accuracy),
        "agreement": [
            {"models": both, **{name: asdict(metric) for name, metric in one.items()}}
            for both, one in found.agreements.items()
        ],
        "label_first": [row.id for row in found.to_label],
    }
    write_json(folder / REPORT, report | {"config": config, "environment": environment()})
    lines = []
    for row in found.rows:
        verdicts = {one.name: one.answers[row.id].to_dict() for one in found.asked if row.id in one.answers}
        kept = {name: {key: one[key] for key in ("label", "score", "spans")} for name, one in verdicts.items()}
        lines.append({"id": row.id, "label": row.label, "verdicts": kept})
    write_jsonl(folder / ANSWERS, lines)
    names = found.names
    called = {row.id: sum(found.answers[name][row.id].label == HALLUCINATED for name in names) for row in found.common}
    values = [f"{number} of {len(names)} models call it hallucinated" for number in range(len(names) + 1)]
    fact = Fact("called", "Models", values, {id_: values[number] for id_, number in called.items()})
    shown = keep_first(found.common, lambda row: called[row.id] in (0, len(names)), MAX_ROWS)
    rows = [(row, [found.answers[name][row.id] for name in names], True) for row in shown]
    write_filled_page(
        folder / PAGE,
        "sections.html",
        title="Comparison of models",
        styles=("style.css", "sections.css", "page.css", "report.css"),
        scripts=("answer.js", "tips.js", "filters.js", "report_ready.js"),
        blocks={"sets": [describe_set("rows", names, [fact], noun="model")], **answer_blocks(0, rows, [fact])},
        summary=fill_part("notes", found.lines, "summary"),
        sections=list(_sections(found, rows)),
    )


def print_comparison(folder: Path, found: ModelComparison) -> None:
    """Prints the headline table, the conclusion, what is not compared, and where the files are."""
    if found.accuracy is not None:
        print_tables(accuracy_table(found, bounds=(found.accuracy.metric,)))
    else:
        print_tables(share_table(found), *([agreement_table(found)] if len(found.names) > 2 else []))
    print("\n".join(escape_terminal(line) for line in ["", *found.lines, *(f"note: {note}" for note in found.notes)]))
    if found.to_label:
        names = (name if PLAIN.fullmatch(name) else f"'{name}'" for name in found.names)
        path, models = str(folder / TO_LABEL), f"models=[{','.join(names)}]"
        print("label first: fill the column label of this file, then compare again:")
        print(f"  {escape_terminal(f'faithkit compare {shlex.quote(path)} {shlex.quote(models)}')}")
    print(f"report: {escape_terminal(str(folder / PAGE))}")


def accuracy_table(found: ModelComparison, *, bounds: Collection[str] | None = None) -> Table:
    """Shows models, the best first, above simple baselines.

    Args:
        bounds: Metrics that are shown with their intervals; None for all.
    """
    accuracy = found.accuracy
    assert accuracy is not None, "there are labels"
    has_both = 0 < accuracy.num_hallucinated < accuracy.num_rows
    columns = SHOWN if has_both else {"accuracy": "accuracy"}
    costs = {one.name: one.costs for one in found.asked}
    rows: list[Row] = []
    for name, metrics in accuracy.models.items():
        rows.append((name, {**metrics, "seconds": _format_cost(costs[name], "seconds")}))
    rows.append(None)
    for name, metrics in accuracy.baselines.items():
        rows.append((name, {**metrics, "seconds": ""}))
    counts = f"{accuracy.num_rows:,} labelled rows, {accuracy.num_hallucinated:,} of them hallucinated"
    lines = [f"{counts}; percent, {INTERVALS}; {SECONDS_LINE}"]
    lines += ["baselines are fitted on other folds of these rows"] * bool(accuracy.baselines)
    heads = {**columns, "seconds": "seconds"}
    return score_table("Accuracy", "model", heads, rows, bounds=bounds, caption=lines)


def share_table(found: ModelComparison) -> Table:
    """Shows how much each model calls hallucinated."""
    costs = {one.name: one.costs for one in found.asked}
    rows = [
        [name, format_percent(metric), _format_cost(costs[name], "seconds")] for name, metric in found.shares.items()
    ]
    line = f"percent of {len(found.common):,} rows, {INTERVALS}; {SECONDS_LINE}"
    return new_number_table("Verdicts", "model", ["called hallucinated", "seconds"], rows, caption=[line])


def agreement_table(found: ModelComparison) -> Table:
    """Shows how often every two models give the same label."""
    rows = [
        [*both, format_percent(one["agreement"]), format_metric(one.get("kappa"))]
        for both, one in found.agreements.items()
    ]
    line = "kappa: 0 is chance, 1 is full agreement"
    return new_number_table("Agreement", ("first", "second"), ("same label, percent", "kappa"), rows, caption=[line])


def _format_cost(costs: Mapping[str, float], key: str) -> str:
    is_rate = key in ("seconds", "cpu_seconds")
    if key not in costs or (is_rate and not costs["rows"]):
        return "-"
    value = 100 * costs[key] / costs["rows"] if is_rate else costs[key]
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _as_cell(text: str) -> str:
    """Writes a text; one that looks like a list is written as the only item of a list."""
    return dumps([text]) if text.lstrip().startswith("[") else text


def _sections(found: ModelComparison, rows: Sequence[tuple[Example, Any, bool]]) -> Iterator[tuple[str, str, Markup]]:
    accuracy = found.accuracy
    if accuracy is not None:
        tests = []
        for pair in accuracy.pairs:
            one, mcnemar = pair.differences[accuracy.metric], pair.mcnemar
            assert mcnemar is not None, "rows have labels"
            alone = f"{mcnemar.first_alone:,} / {mcnemar.second_alone:,}"
            p_values = format_p(pair.corrected[accuracy.metric]), format_p(mcnemar.corrected)
            tests.append([pair.first, pair.second, format_percent(one.metric), p_values[0], alone, p_values[1]])
        heads = (f"{TITLES[accuracy.metric]}, difference", "p (Holm)", "right alone", "McNemar's p (Holm)")
        lines = [
            "first minus second, paired bootstrap over groups",
            "right alone: rows on which only one of them is right",
        ]
        table = new_number_table("Every two models", ("first", "second"), heads, tests, caption=lines)
        body = _tables(accuracy_table(found), table) + fill_part("notes", accuracy.notes)
        yield "accuracy", "Accuracy on labelled rows", body
    tables = [share_table(found), agreement_table(found)]
    yield "agreement", "Verdicts and agreement", _tables(*tables)
    if found.to_label:
        lines = [
            f"{TO_LABEL} in this folder has rows on which models disagree.",
            "Fill its column label with hallucinated or faithful, then give the file to the same command. It holds no "
            "verdict, so that none is copied. These rows show best which model is better. Accuracy on them is not that "
            "on all rows, and differences are larger, since the models disagree on each.",
        ]
        yield "label", "Label first", fill_part("notes", lines)
    shown = {key: head for key, head in COSTS.items() if any(key in one.costs for one in found.asked)}
    costs = [[one.name, *(_format_cost(one.costs, key) for key in shown)] for one in found.asked]
    line = "seconds of wall and CPU time are for 100 rows, after the first; loading ends with the first verdict"
    table = new_number_table("Time and cost", "model", shown.values(), costs, caption=[line])
    yield "cost", "Time and cost", _tables(table)
    if found.notes:
        yield "left-out", "What was not compared", fill_part("notes", found.notes)
    has_marks = any(one.spans for _, answers, _ in rows for one in answers)
    legend = fill_part("legend", False) if has_marks else ""
    yield "browser", "Answers, and where two models disagree", fill_part("browser", legend)


def _tables(*tables: Table) -> Markup:
    return Markup().join(fill_part("table", table) for table in tables)
