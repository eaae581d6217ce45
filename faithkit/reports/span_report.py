"""The report of a test set with marked spans: metrics with simple baselines and published figures, marked responses."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import MEDIAN, BaselineData
from faithkit.baselines.word_overlap import empty_predictions, mismatch_predictions, whole_predictions
from faithkit.metrics.outcomes import NOT_SHOWN, TOO_MANY_UNPARSED
from faithkit.metrics.span_metrics import (
    NOTHING_FOUND,
    SpanOutcomes,
    evaluate_spans,
    join_spans,
    merge_spans,
    span_metrics,
    summarise_notes,
)
from faithkit.pages.page_tables import (
    add_fields,
    bold,
    escape_terminal,
    format_percent,
    format_verdict,
    new_field_table,
)
from faithkit.published.figures import TASKS, TEST_RESPONSES, V1, PublishedDetector, are_comparable, published_detectors
from faithkit.records import UNPARSED, UNTYPED, Example, Prediction, Span
from faithkit.reports.report import Report, Rows, Sample, build_sample, select_rows
from faithkit.reports.score_table import Cell, Row, Systems, part_rows, published_cells, score_table
from faithkit.scores.board import Board
from faithkit.statistics.metric import Metric

LEVEL_TITLES = {"response": "by response", "char": "by character"}
OPEN, CLOSE = "[[", "]]"
STYLES = {"gold": "bold yellow", "marked": "bold cyan"}  # of spans on a terminal


def headline_table(systems: Systems, *, title: str = "", is_read: bool = True, notes: Sequence[str] = ()) -> Table:
    """Shows F1 by response and by character with intervals, and characters' precision and recall: fits 80 columns.

    Args:
        is_read: Most replies of the model could be read; otherwise its figures are not shown.
        notes: Further lines of the caption.
    """
    columns = {
        "response_f1": "response F1",
        "char_f1": "character F1",
        "char_precision": "prec.",
        "char_recall": "recall",
    }
    (first, ours), *others = systems.items()
    named = {"response_precision": "precision", "response_recall": "recall", "response_auroc": "AUROC"}
    found = (f"{head} {format_percent(ours[name], bounds=False)}" for name, head in named.items() if name in ours)
    return score_table(
        f"{title}, percent",
        "system",
        columns,
        [(bold(first), ours if is_read else {}), *others],
        bounds=("response_f1", "char_f1"),
        caption=[
            f"model, by response: {', '.join(found)}" if is_read else f"model: {NOT_SHOWN}",
            f"n = {ours['response_f1'].n:,}; 95% intervals over sources",
            *notes,
        ],
        no_wrap=["prec.", "recall"],
    )


def level_table(level: str, systems: Systems, published: Sequence[PublishedDetector] = (), *, title: str = "") -> Table:
    """Shows precision, recall and F1 at one level: our systems with intervals of F1, published ones under them."""
    columns = {f"{level}_precision": "precision", f"{level}_recall": "recall", f"{level}_f1": "F1"}
    names = {name: head.lower() for name, head in columns.items()}
    rows: list[Row] = [*systems.items(), *[None] * bool(published)]
    rows += ((one.name, published_cells(asdict(one), names)) for one in published)
    return score_table(
        f"{title} {LEVEL_TITLES[level]}, percent".strip(),
        "system",
        columns | {"response_auroc": "AUROC"} if level == "response" else columns,
        rows,
        bounds=[f"{level}_f1"],
        caption=_caption(systems, f"{level}_f1", published),
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


def types_table(systems: Systems, *, title: str = "") -> Table:
    """Shows character recall for each type of gold span."""
    rows: list[Row] = []
    for part, found in split_parts("type/", systems).items():
        recalls = {name: metrics.get("char_recall") for name, metrics in found.items()}
        rows.append((part, {"n": next(iter(found.values()))["char_recall"].n, **recalls}))
    return score_table(title, "type", ["n", *systems], rows, no_wrap=["n"], show_edge=True)


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
    room = min(limit - len(chosen), len(pool))
    return [examples[row] for row in chosen + [pool[place * len(pool) // room] for place in range(room)]]


def marked_table(examples: Sequence[Example], predictions: Mapping[str, Prediction], *, title: str = "") -> Table:
    """Shows each response as people marked it and as the tagger did, spans in double brackets."""
    table = new_field_table(title)
    for example in examples:
        prediction = predictions[example.id]
        meta = [str(example.meta[name]) for name in ("task", "model") if example.meta.get(name)]
        fields: dict[str, str | Text] = {"id": " ".join([example.id, *meta]), "context": example.knowledge}
        if example.history:
            fields["question"] = example.history[-1].text
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
            pieces.append(f"{OPEN}{text[start:end]}{_label_note(inside)}{CLOSE}")
        else:
            before, after = context if place else 0, context if place < 2 * len(runs) else 0
            pieces.append(_gap(text[start:end], before, after) if runs else text)
    shown = escape_terminal("".join(pieces), max_characters)
    if shown.rfind(OPEN) > shown.rfind(CLOSE):  # the text was cut within a mark
        shown = re.sub(r"\.\.\. \(\+[\d,]+ characters\)$", rf"{CLOSE}\g<0>", shown)
    return shown


def _gap(text: str, before: int, after: int) -> str:
    out = len(text) - before - after
    if out <= 40:  # the note would be as long
        return text
    return f"{text[:before]} ... (+{out:,} characters) ... {text[len(text) - after :]}"


def _label_note(spans: Sequence[Span]) -> str:
    labels = "+".join(dict.fromkeys(span.label for span in spans if span.label != UNTYPED))
    scores = [span.score for span in spans if span.score is not None]
    words = [*([labels] if labels else []), *([f"{max(scores):.2f}"] if scores else [])]
    return f"|{' '.join(words)}" if words else ""


def _caption(systems: Systems, name: str, published: Sequence[PublishedDetector]) -> Iterator[str]:
    sizes = sorted({metric.n for metrics in systems.values() if (metric := metrics.get(name)) and metric.n})
    where = f"; published: on the official {TEST_RESPONSES:,}" if published else ""
    yield f"95% intervals over sources; n = {', '.join(f'{n:,}' for n in sizes)}{where}"
    if published and sizes and sizes[-1] < 0.9 * TEST_RESPONSES:  # the responses of poor quality are far fewer
        yield "these responses are a part of the official ones: the published figures are about others"
    protocols = {row.source: row.protocol for row in published}
    yield from (f"{source}: {protocol}" for source, protocol in protocols.items())


WHOLE, EMPTY, MISMATCH = "all characters", "no spans", "words not in context"
CHAR_F1 = "char_f1"
PREFIXES = {WHOLE: "all_characters_", EMPTY: "no_spans_", MISMATCH: "mismatch_"}  # of the baselines' metrics
ANY_SPAN = "model, any span"  # a response is hallucinated when a span is predicted in it
SHOWN = ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall")
PUBLISHED_BY_TASK = ("Llama-2-13B, fine-tuned", "GPT-4-turbo, prompted")  # of the paper's first version
OTHERS_BY_TASK = ("RAG-HAT", "RL4HS-14B")


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
        return select_metrics(span_metrics(*chosen, num_resamples=num_resamples).metrics)

    board = Board(title, num_resamples=num_resamples)
    board.add("model", evaluate_spans(outcomes), title="the model")
    metrics = select_metrics(board.metrics("model"))
    if not marks_any:
        return Report(metrics=metrics, notes=() if is_critic else (NOTHING_FOUND,), rescore=rescore, shown=SHOWN)
    data = baseline_data or BaselineData()
    threshold = data.fit_overlap("f1")
    chosen_on = f"threshold of {MISMATCH}, by response: chosen on {MEDIAN if threshold is None else data.name}"
    baselines = {
        MISMATCH: mismatch_predictions(examples, threshold=threshold),
        WHOLE: whole_predictions(examples),
        EMPTY: empty_predictions(examples),
    }
    for name, found in baselines.items():
        board.add(name, evaluate_spans(join_spans(examples, found)), is_baseline=True)
        metrics |= prefix_metrics(PREFIXES[name], board.metrics(name))
        if (difference := board.subtract("model", name, [CHAR_F1]).get(CHAR_F1)) is not None:
            metrics |= difference.to_metrics(f"{PREFIXES[name]}{CHAR_F1}")
    systems = {name: board.metrics(name) for name in board.systems}
    published = dataset if are_comparable(examples) else ""
    both_rules = {"model": systems["model"], ANY_SPAN: by_any_span(systems["model"])}
    tables = [
        level_table(
            level,
            systems if level == "char" else both_rules | systems,
            published_detectors(published, level),
            title=title,
        )
        for level in LEVEL_TITLES
    ]
    two = {name: systems[name] for name in ("model", MISMATCH)}
    if outcomes.tasks.any():
        by_task = _published_by_task(published)
        tables.append(parts_table("task/", both_rules | two, by_task, title=f"{title} by task, percent"))
    if outcomes.types:
        tables.append(types_table(two, title=f"{title}, character recall by type, percent"))
    if outcomes.models.any():
        tables.append(parts_table("model/", two, title=f"{title} by generator model, percent"))
    chosen = choose_marked(examples, outcomes, num_examples) if num_examples else []
    if num_examples:
        tables.append(marked_table(chosen, predictions, title="predictions to judge, spans in [[ ]]"))
    shown = {name: found for name, found in systems.items() if name != EMPTY}
    unread = sum(predictions[example.id].label == UNPARSED for example in examples)
    is_read = unread <= TOO_MANY_UNPARSED * len(examples)
    return Report(
        metrics=metrics,
        conclusion=board.conclude("model", {CHAR_F1: "character F1"}) if is_read else None,
        headline=(headline_table(shown, title=title, is_read=is_read, notes=[escape_terminal(chosen_on)]),),
        tables=tuple(tables),
        notes=summarise_notes(board.notes("model")),
        samples=tuple(_sample(example, predictions[example.id]) for example in chosen),
        rescore=rescore,
        shown=SHOWN,
    )


def by_any_span(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames the response metrics by spans to those by label.

    RAGTruth's release and other detectors call a response hallucinated when any span is predicted in it.
    """
    inside = "response_by_spans_"
    return {name.replace(inside, "response_"): metric for name, metric in metrics.items() if inside in name}


def _sample(example: Example, prediction: Prediction) -> Sample:
    marks = {"gold_spans": example.spans or (), "spans": prediction.spans}
    shown = {name: mark_spans(example.response, spans) for name, spans in marks.items()}
    return build_sample(example, gold=example.label, label=prediction.label, score=prediction.score, **shown)


def prefix_metrics(prefix: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames `task/qa/char_f1` to `task/qa/mismatch_char_f1`."""
    return {"/".join([*name.split("/")[:-1], prefix + name.split("/")[-1]]): m for name, m in metrics.items()}


def _published_by_task(dataset: str) -> dict[str, list[PublishedDetector]]:
    """Selects what the paper's first version, the one with tasks, measures on both levels, and the best of others."""
    rows = {
        task: [row for level in LEVEL_TITLES for row in published_detectors(dataset, level, task)] for task in TASKS
    }
    return {
        task: [row for row in found if row.system in (PUBLISHED_BY_TASK if row.source == V1 else OTHERS_BY_TASK)]
        for task, found in rows.items()
    }
