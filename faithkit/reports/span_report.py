"""The report of a test set with marked spans: metrics with simple baselines and published figures, marked responses."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import MEDIAN, BaselineData
from faithkit.baselines.word_features import mismatch_predictions
from faithkit.metrics.classification import NOT_SHOWN, TOO_MANY_UNPARSED
from faithkit.metrics.span_metrics import (
    AXES_OF_GOLD,
    NOTHING_FOUND,
    SpanOutcomes,
    evaluate_spans,
    join_spans,
    merge_spans,
)
from faithkit.pages.page_tables import (
    add_fields,
    bold,
    call_fields,
    choose_evenly,
    escape_terminal,
    format_percent,
    format_verdict,
    new_field_table,
)
from faithkit.published.figures import TASKS, TEST_RESPONSES, V1, PublishedDetector, are_comparable, published_detectors
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, UNTYPED, Example, Prediction, Span
from faithkit.reports.report import (
    Cell,
    Report,
    Row,
    Rows,
    Systems,
    build_sample,
    part_rows,
    published_cells,
    score_table,
    select_rows,
)
from faithkit.scores.board import Board
from faithkit.statistics.metric import Metric

LEVEL_TITLES = {"response": "by response", "char": "by character"}
OPEN, CLOSE = "[[", "]]"
STYLES = {"gold": "bold yellow", "marked": "bold cyan"}  # of spans on a terminal


def _headline_table(systems: Systems, *, title: str, is_read: bool, note: str) -> Table:
    """Shows F1 by response and by character with intervals, and characters' precision and recall: fits 80 columns.

    Figures of a model are left out if most of its replies could not be read.
    """
    columns = {
        "response_f1": "response F1",
        "char_f1": "character F1",
        "char_precision": "prec.",
        "char_recall": "recall",
    }
    named = {"response_precision": "precision", "response_recall": "recall", "response_auroc": "AUROC"}
    ours = systems["model"]
    found = (f"{head} {format_percent(ours[name], bounds=False)}" for name, head in named.items() if name in ours)
    others = [(name, metrics) for name, metrics in systems.items() if name not in ("model", "no spans")]
    return score_table(
        f"{title}, percent",
        "system",
        columns,
        [(bold("model"), ours if is_read else {}), *others],
        bounds=("response_f1", "char_f1"),
        caption=[
            f"model, by response: {', '.join(found)}" if is_read else f"model: {NOT_SHOWN}",
            f"n = {ours['response_f1'].n:,}; 95% intervals over sources",
            note,
        ],
        no_wrap=["prec.", "recall"],
    )


def level_table(level: str, systems: Systems, published: Sequence[PublishedDetector] = (), *, title: str = "") -> Table:
    """Shows precision, recall and F1 at one level: our systems with intervals of F1, published ones under them."""
    columns = {f"{level}_precision": "precision", f"{level}_recall": "recall", f"{level}_f1": "F1"}
    names = {name: head.lower() for name, head in columns.items()}
    rows: list[Row] = [*systems.items(), *[None] * bool(published)]
    rows += ((one.name, published_cells(asdict(one), names)) for one in published)
    sizes = sorted({one.n for metrics in systems.values() if (one := metrics.get(f"{level}_f1")) and one.n})
    where = f"; published: on the official {TEST_RESPONSES:,}" if published else ""
    lines = [f"95% intervals over sources; n = {', '.join(f'{n:,}' for n in sizes)}{where}"]
    if published and sizes and sizes[-1] < 0.9 * TEST_RESPONSES:  # the responses of poor quality are far fewer
        lines.append("these responses are a part of the official ones: the published figures are about others")
    lines += {one.source: f"{one.source}: {one.protocol}" for one in published}.values()
    return score_table(
        f"{title} {LEVEL_TITLES[level]}, percent".strip(),
        "system",
        columns | {"response_auroc": "AUROC"} if level == "response" else columns,
        rows,
        bounds=[f"{level}_f1"],
        caption=lines,
        show_edge=True,
    )


def parts_table(
    prefix: str,
    systems: Systems,
    published: Mapping[str, Sequence[PublishedDetector]] | None = None,
    *,
    title: str = "",
) -> Table:
    """Shows F1 by response and by character for each part of the data, such as `task/`, system under system.

    Args:
        published: Rows to show below ours, by part.
    """
    columns = {f"{level}_f1": f"{level} F1" for level in LEVEL_TITLES}
    theirs: dict[str, dict[str, dict[str, Cell]]] = {}
    for part, rows in (published or {}).items():
        for row in rows:
            theirs.setdefault(part, {}).setdefault(row.name, {})[f"{row.level}_f1"] = float(row.f1)
    figures = {part: found.items() for part, found in theirs.items()}
    cited = dict.fromkeys(f"{row.source}: {row.protocol}" for each in (published or {}).values() for row in each)
    return score_table(
        title,
        prefix.strip("/"),
        columns,
        part_rows(split_parts(prefix, systems), "char_f1", figures),
        caption=cited,
        no_wrap=list(columns.values()),
        show_edge=True,
    )


def split_parts(prefix: str, systems: Systems) -> dict[str, dict[str, dict[str, Metric]]]:
    """Splits metrics such as `task/qa/char_f1` by part and system."""
    parts: dict[str, dict[str, dict[str, Metric]]] = {}
    for system, metrics in systems.items():
        for name, metric in metrics.items():
            if name.startswith(prefix):
                part, _, short = name.removeprefix(prefix).rpartition("/")
                parts.setdefault(part, {one: {} for one in systems})[system][short] = metric
    return parts


def choose_marked(examples: Sequence[Example], outcomes: SpanOutcomes, limit: int = 5) -> list[Example]:
    """Chooses up to `limit` examples: half with the most characters wrong, the rest spread over marked ones."""
    wrong = outcomes.marked + outcomes.found - 2 * outcomes.hits
    order = sorted(range(len(examples)), key=lambda row: -wrong[row])
    chosen = [row for row in order if wrong[row]][: (limit + 1) // 2]
    others = [row for row in range(len(examples)) if row not in chosen]
    marked = [row for row in others if outcomes.marked[row] or outcomes.found[row]]
    pool = marked if len(marked) >= limit - len(chosen) else others
    return [examples[row] for row in chosen + choose_evenly(pool, limit - len(chosen))]


def marked_table(examples: Sequence[Example], predictions: Mapping[str, Prediction], *, title: str = "") -> Table:
    """Shows each response as people marked it and as the tagger did, spans in double brackets."""
    table = new_field_table(title)
    for example in examples:
        prediction = predictions[example.id]
        meta = [str(example.meta[name]) for name in ("task", "model") if example.meta.get(name)]
        fields: dict[str, str | Text] = {"id": " ".join([example.id, *meta]), "context": example.knowledge}
        if example.history:
            fields["question"] = example.history[-1].text
        fields |= call_fields(example)
        for name, spans in {"gold": example.spans or (), "marked": prediction.spans}.items():
            text = mark_spans(example.response, spans, max_characters=1200)
            fields[name] = color_spans(text, STYLES[name])
        add_fields(table, {**fields, "verdict": format_verdict(example, prediction)})
    return table


def color_spans(text: str, style: str) -> Text:
    """Colours texts in double brackets; the brackets stay, for readers without colours."""
    shown = Text(text)
    shown.highlight_regex(re.escape(OPEN) + ".*?" + re.escape(CLOSE), style)
    return shown


def mark_spans(text: str, spans: Iterable[Span], *, context: int = 100, max_characters: int | None = None) -> str:
    """Marks spans, as in `He was born in [[1902|evident_conflict 0.97]] and ...`: one line, harmless to a terminal.

    Overlapping spans are merged. Long parts between them are left out and counted, `context` characters are kept
    on each side; a text without spans is cut at its end.
    """
    kept = [span for span in spans if span.start < span.end]
    runs = merge_spans(kept)
    pieces, bounds = [], [0, *(bound for run in runs for bound in run), len(text)]
    for place, (start, end) in enumerate(pairwise(bounds)):
        if place % 2:
            inside = [span for span in kept if start <= span.start < end]
            scores = [span.score for span in inside if span.score is not None]
            words = ["+".join(dict.fromkeys(span.label for span in inside if span.label != UNTYPED))]
            words += [f"{max(scores):.2f}"] if scores else []
            note = " ".join(filter(None, words))
            pieces.append(f"{OPEN}{text[start:end]}{'|' * bool(note)}{note}{CLOSE}")
        else:
            before, after = context if place else 0, context if place < 2 * len(runs) else 0
            left_out = end - start - before - after if runs else 0
            gap = f" ... (+{left_out:,} characters) ... "
            is_long = left_out > 40  # the note is as long
            pieces.append(
                f"{text[start : start + before]}{gap}{text[end - after : end]}" if is_long else text[start:end]
            )
    shown = escape_terminal("".join(pieces), max_characters)
    if shown.rfind(OPEN) > shown.rfind(CLOSE):  # the text was cut within a mark
        shown = re.sub(r"\.\.\. \(\+[\d,]+ characters\)$", rf"{CLOSE}\g<0>", shown)
    return shown


MISMATCH = "words not in context"
SHOWN = ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall")


def has_spans(examples: Sequence[Example]) -> bool:
    """Checks whether spans are marked in the dataset; a response may have none."""
    return bool(examples) and all(example.spans is not None for example in examples)


def span_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    baseline_data: BaselineData | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
    is_critic: bool = False,
) -> Report:
    """Computes span metrics, and those of baselines with prefixes (`mismatch_char_f1`, `task/qa/mismatch_char_f1`).

    Predictions without spans get their overall metrics alone, without baselines and tables; those of a critic, which
    cannot mark spans, get the metrics of their labels (`response_f1`).

    Args:
        dataset: The benchmark's name, to show its published figures.
        baseline_data: Rows or thresholds for the mismatch baseline.
        is_critic: The predictions are a critic's.
    """
    outcomes = join_spans(examples, predictions)
    marks_any = bool(outcomes.found.any())

    def select_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
        if marks_any:
            return dict(metrics)
        return {
            name: metric
            for name, metric in metrics.items()
            if "/" not in name and (not is_critic or (name.startswith("response_") and "by_spans" not in name))
        }

    def rescore(rows: Rows) -> dict[str, Metric]:
        chosen = select_rows(examples, predictions, rows)
        return select_metrics(evaluate_spans(join_spans(*chosen)).score(num_resamples=num_resamples).metrics)

    board = Board(title, num_resamples=num_resamples)
    board.add("model", evaluate_spans(outcomes), title="the model")
    metrics = select_metrics(board.metrics("model"))
    if not marks_any:
        return Report(metrics=metrics, notes=() if is_critic else (NOTHING_FOUND,), rescore=rescore, shown=SHOWN)
    data = baseline_data or BaselineData()
    threshold = data.fit_overlap("f1")
    chosen_on = f"threshold of {MISMATCH}, by response: chosen on {MEDIAN if threshold is None else data.name}"
    marks_all = {
        one.id: Prediction(id=one.id, label=HALLUCINATED, spans=(Span(start=0, end=len(one.response), label=UNTYPED),))
        for one in examples
    }
    baselines = {
        MISMATCH: ("mismatch_", mismatch_predictions(examples, threshold=threshold)),
        "all characters": ("all_characters_", marks_all),
        "no spans": ("no_spans_", {one.id: Prediction(id=one.id, label=FAITHFUL) for one in examples}),
    }
    for name, (prefix, found) in baselines.items():
        board.add(name, evaluate_spans(join_spans(examples, found)), is_baseline=True)
        metrics |= prefix_metrics(prefix, board.metrics(name))
        if (difference := board.subtract("model", name, ["char_f1"]).get("char_f1")) is not None:
            metrics |= difference.to_metrics(f"{prefix}char_f1")
    systems = {name: board.metrics(name) for name in board.systems}
    tables = _figure_tables(
        systems, outcomes, dataset if are_comparable(one.meta.get("model") for one in examples) else "", title=title
    )
    chosen = choose_marked(examples, outcomes, num_examples) if num_examples else []
    if num_examples:
        tables.append(marked_table(chosen, predictions, title="predictions to judge, spans in [[ ]]"))
    samples = []
    for example in chosen:
        one = predictions[example.id]
        marks = {"gold_spans": example.spans or (), "spans": one.spans}
        shown = {name: mark_spans(example.response, spans) for name, spans in marks.items()}
        samples.append(build_sample(example, gold=example.label, label=one.label, score=one.score, **shown))
    # Notes on metrics of tasks, models and types are counted.
    notes = [note for note in board.notes("model") if "/" not in note.partition(" ")[0]]
    if num_parts := len(board.notes("model")) - len(notes):
        notes.append(f"{num_parts} metrics of tasks, models or types are undefined on some resamples")
    unread = sum(predictions[example.id].label == UNPARSED for example in examples)
    is_read = unread <= TOO_MANY_UNPARSED * len(examples)
    return Report(
        metrics=metrics,
        conclusion=board.conclude("model", {"char_f1": "character F1"}) if is_read else None,
        headline=(_headline_table(systems, title=title, is_read=is_read, note=escape_terminal(chosen_on)),),
        tables=tuple(tables),
        notes=tuple(notes),
        samples=tuple(samples),
        rescore=rescore,
        shown=SHOWN,
    )


def _figure_tables(systems: Systems, outcomes: SpanOutcomes, published: str, *, title: str) -> list[Table]:
    """Shows the figures of each level, then those by task, type and generator model.

    Args:
        published: The dataset to show published figures of; empty for none.
    """
    # RAGTruth's release and other detectors call a response hallucinated when any span is predicted in it.
    inside = "response_by_spans_"
    by_any = {name.replace(inside, "response_"): one for name, one in systems["model"].items() if inside in name}
    both_rules = {"model": systems["model"], "model, any span": by_any}
    tables = [
        level_table(
            level,
            systems if level == "char" else {**both_rules, **systems},
            published_detectors(published, level),
            title=title,
        )
        for level in LEVEL_TITLES
    ]
    two = {name: systems[name] for name in ("model", MISMATCH)}
    if outcomes.tasks.any():
        # Of the paper's first version, the one with tasks, those measured on both levels; and the best of others.
        paper, others = ("Llama-2-13B, fine-tuned", "GPT-4-turbo, prompted"), ("RAG-HAT", "RL4HS-14B")
        by_task = {
            task: [
                row
                for level in LEVEL_TITLES
                for row in published_detectors(published, level, task)
                if row.system in (paper if row.source == V1 else others)
            ]
            for task in TASKS
        }
        tables.append(parts_table("task/", both_rules | two, by_task, title=f"{title} by task, percent"))
    for axis in AXES_OF_GOLD:
        rows: list[tuple[str, dict[str, Cell]]] = []
        for part, each in split_parts(f"{axis}/", two).items():
            cells: dict[str, Cell] = {name: one.get("char_recall") for name, one in each.items()}
            for metric, size in (("char_recall", "n"), ("char_precision", "marked")):
                if (found := each["model"].get(metric)) is not None:
                    cells |= {metric: found, size: found.n}
            rows.append((part, cells))
        if not rows:
            continue
        columns, options = {"n": "n", **{name: name for name in two}}, dict[str, Any]()
        if any("marked" in cells for _, cells in rows):
            columns |= {"marked": "marked", "char_precision": "precision"}
            meaning = "n: responses with a gold span of it; marked: with a predicted one, whose precision follows"
            options = {"caption": [meaning], "bounds": ["model"]}
        head = f"{title}, character recall by {axis}, percent"
        tables.append(score_table(head, axis, columns, rows, no_wrap=["n", "marked"], show_edge=True, **options))
    if outcomes.models.any():
        tables.append(parts_table("model/", two, title=f"{title} by generator model, percent"))
    return tables


def prefix_metrics(prefix: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames `task/qa/char_f1` to `task/qa/mismatch_char_f1`."""
    return {"/".join([*name.split("/")[:-1], prefix + name.split("/")[-1]]): m for name, m in metrics.items()}
