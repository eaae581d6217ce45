"""Tables for the terminal and as markdown: metrics with intervals, and predictions to judge by eye.

Text from data is shown as it is: never read as markup, and with control characters spelt out.
"""

import copy
import io
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TextIO, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console, OverflowMethod, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from faithkit.records import CALLS, HALLUCINATED, UNPARSED, Example, Prediction, parse_calls
from faithkit.statistics.metric import Metric

Item = TypeVar("Item")


def table_cells(table: Table) -> tuple[list[str], list[list[str]], list[bool]]:
    """Gives a table's head, its rows, and which columns are numbers (those aligned to the right)."""
    head = [_plain(column.header) for column in table.columns]
    rows = [[_plain(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)]
    return head, rows, [column.justify == "right" for column in table.columns]


def table_title(table: Table) -> str:
    return _plain(table.title)


def table_caption(table: Table) -> str:
    return "" if table.caption is None else str(table.caption)


def to_markdown(table: Table) -> str:
    """Writes a table in markdown: title, cells, and the caption behind."""
    head, rows, numbers = table_cells(table)
    lines = [f"## {escape_markdown(table_title(table))}", "", f"| {' | '.join(map(escape_markdown, head))} |"]
    lines.append(f"|{'|'.join(' ---: ' if number else ' --- ' for number in numbers)}|")
    lines += (f"| {' | '.join(map(escape_markdown, row))} |" for row in rows)
    for line in filter(None, table_caption(table).split("\n")):
        lines += ["", escape_markdown(line)]
    return "\n".join([*lines, "", ""])


def escape_markdown(text: str) -> str:
    """Escapes what would be markup: text from data must stay the text that it is."""
    line = escape_terminal(text)
    for mark in "\\`*_[]<>|#":
        line = line.replace(mark, f"\\{mark}")
    return line


def _plain(value: object) -> str:
    return value.plain if isinstance(value, Text) else "" if value is None else str(value)


def escape_terminal(text: str, limit: int | None = None) -> str:
    """Makes a text one line that cannot steer a terminal: control, hidden and reordering characters become escapes.

    Args:
        limit: Characters to keep; what is cut is counted behind.
    """
    line = re.sub(r"[ \t\r\n\f\v]+", " ", text).strip()
    cut = len(line) - limit if limit is not None and len(line) > limit else 0
    kept = line[:limit].rstrip() if cut else line
    # Letters of living scripts and emoji need the two joiners; other format characters hide or reorder text.
    shown = "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\u200c\u200d"
        else character
        for character in kept
    )
    return f"{shown}... (+{cut:,} characters)" if cut else shown


def format_metric(metric: Metric | None, *, digits: int = 2, scale: float = 1.0) -> str:
    """Formats a metric as `0.71 [0.69, 0.73]`; without the brackets if there is no interval."""
    if metric is None:
        return "-"
    numbers = [metric.value] if metric.low is None or metric.high is None else [metric.value, metric.low, metric.high]
    value, *bounds = (f"{number * scale:.{digits}f}" for number in numbers)
    return f"{value} [{', '.join(bounds)}]" if bounds else value


def format_percent(metric: Metric | None, *, bounds: bool = True) -> str:
    """Formats a share as `71.2 [69.0, 73.1]`, in percent.

    Args:
        bounds: With the interval, where there is one.
    """
    if metric is not None and not bounds:
        metric = Metric(value=metric.value)
    return format_metric(metric, digits=1, scale=100)


def format_p(value: float) -> str:
    """Formats a p-value to three digits; no test shows that it is 0."""
    return f"{value:.3f}" if value >= 0.0005 else "<0.001"


def choose_examples(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], limit: int = 6
) -> list[Example]:
    """Chooses up to `limit` examples: half the most confident mistakes, the rest right ones spread over the data."""
    outcomes = {example.id: judge_outcome(example, predictions[example.id]) for example in examples}
    wrong = [example for example in examples if outcomes[example.id] in ("wrong", "unparsed")]
    others = [example for example in examples if outcomes[example.id] not in ("wrong", "unparsed")]
    wrong.sort(key=lambda example: -abs((predictions[example.id].score or 0.0) - (example.label == HALLUCINATED)))
    mistakes = wrong[: max(limit - limit // 2, limit - len(others))]
    return mistakes + choose_evenly(others, limit - len(mistakes))


def choose_evenly(items: Sequence[Item], limit: int) -> list[Item]:
    """Chooses up to `limit` items, spread over the sequence."""
    count = min(limit, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def judge_outcome(example: Example, prediction: Prediction) -> str:
    """Judges a prediction: right, wrong, unparsed, or not judged where the example has no gold label."""
    if prediction.label == UNPARSED:
        return UNPARSED
    if example.label is None:
        return "not judged"
    return "right" if prediction.label == example.label else "wrong"


def new_field_table(title: str) -> Table:
    """Makes an empty table of names and their texts, without a head."""
    table = _new_table(title)
    table.show_header, table.show_lines = False, False
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    return table


def context_fields(example: Example) -> dict[str, str]:
    """Returns an example's knowledge and last turn as fields of a table."""
    fields = {"knowledge": example.knowledge}
    if example.history:
        last = example.history[-1]
        fields["last turn"] = f"{last.speaker}: {last.text}"
    return fields | call_fields(example)


def call_fields(example: Example) -> dict[str, str]:
    """Returns the calls before an answer as a field of a table; none where no tool was called."""
    calls = parse_calls(example.meta.get(CALLS)) or ()
    shown = (f"{call['name']}({call['arguments']}){' failed' * call['failed']}" for call in calls)
    return {"calls": "; ".join(shown)} if calls else {}


def add_fields(table: Table, fields: Mapping[str, str | Text], max_characters: int = 400) -> None:
    """Adds one example to a table of fields; plain texts are escaped and cut, a `Text` is shown as it is."""
    for number, (name, value) in enumerate(fields.items(), start=1):
        shown = value if isinstance(value, Text) else Text(escape_terminal(value, max_characters))
        table.add_row(name, shown, end_section=number == len(fields))


def predictions_table(examples: Sequence[Example], predictions: Mapping[str, Prediction], *, title: str = "") -> Table:
    """Shows each example's knowledge, response, gold label, P(hallucinated), and whether the prediction is right."""
    table = new_field_table(title)
    for example in examples:
        prediction = predictions[example.id]
        fields = {"id": example.id, **context_fields(example), "response": example.response}
        if prediction.text and prediction.text != example.response:
            fields["output"] = prediction.text
        add_fields(table, {**fields, "verdict": format_verdict(example, prediction)})
    return table


def format_verdict(example: Example, prediction: Prediction) -> Text:
    """Formats gold label, prediction, score and outcome in one line, the outcome in colour."""
    outcome = judge_outcome(example, prediction)
    score = "-" if prediction.score is None else f"{prediction.score:.2f}"
    labels = f"gold {example.label or '-'}, called {prediction.label}, P(hallucinated) {score}: "
    styles = {"right": "green", "wrong": "red", "unparsed": "yellow"}
    return Text.assemble(labels, (outcome, styles.get(outcome, "")))


def render_text(*tables: Table, width: int = 80) -> str:
    """Renders tables as plain text: ASCII frames, no colour, no spaces at line ends."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    for table in tables:
        plain = copy.copy(table)
        plain.box = box.ASCII
        console.print(*_split_captions(plain, console))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().split("\n")[:-1])


def _split_captions(table: Table, console: Console) -> Iterator[RenderableType]:
    """Separates title, table and caption: within a table both would be cut to its width, however narrow."""
    inner = copy.copy(table)
    inner.title = inner.caption = None
    # Columns of the widest line, those beyond the edge included, which a console would leave out.
    widest = max(Segment.get_line_length(line) for line in Segment.split_lines(console.render(inner)))
    has_figures = any(column.justify == "right" for column in inner.columns)
    in_one_line = Measurement.get(console, console.options.update(width=10_000), inner).maximum
    if widest > console.width or (has_figures and in_one_line > console.width):
        _narrow(inner, console.width)
    if table.title:
        yield Text(table.title) if isinstance(table.title, str) else table.title
    yield inner
    if table.caption:
        yield Text(str(table.caption), style="dim")


def _narrow(table: Table, width: int) -> None:
    """Fits a table into a width: figures get a whole line first, then names; at need intervals go below their values.

    Words are broken only where they do not fit otherwise.
    """
    columns = [replace(column, min_width=None) for column in table.columns]
    table.pad_edge = table.show_edge
    room = width - (3 * len(columns) - 3 + 4 * table.show_edge)
    wanted = [max(map(cell_len, _texts(column))) for column in columns]
    for pattern in (r"\[[^\[\]\s]+, [^\[\]\s]+\]|\S+", r"\S+"):  # words and intervals; words
        words = [[word for cell in _texts(column) for word in re.findall(pattern, cell)] for column in columns]
        widths = [max(map(cell_len, found), default=0) for found in words]
        if (spare := room - sum(widths)) >= 0:
            break
    else:
        table.columns = columns
        return
    for number in sorted(range(len(columns)), key=lambda number: columns[number].justify != "right"):
        missing = wanted[number] - widths[number]
        given = min(missing, spare) if columns[number].justify != "right" or missing <= spare else 0
        widths[number] += given
        spare -= given
    table.columns = []
    for column, one in zip(columns, widths, strict=True):
        cells = list(column.cells)
        for number, cell in enumerate(cells):
            text = cell if isinstance(cell, Text) else Text(str(cell))
            place = text.plain.find(" [")
            if place > 0 and text.cell_len > one:  # the interval goes into the next line
                cells[number] = Text.assemble(text[:place], "\n", text[place + 1 :])
        table.columns.append(replace(column, width=one, _cells=cells))


def _texts(column: Column) -> list[str]:
    return [str(cell) for cell in (column.header, *column.cells)]


def print_tables(*tables: Table, file: TextIO | None = None) -> None:
    """Prints tables: in colour on a terminal, else as plain text that every encoding takes, 80 columns or `COLUMNS`."""
    stream = file or sys.stdout
    console = Console(file=stream)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if console.is_terminal and encoding.lower().startswith("utf"):
        for table in tables:
            console.print(*_split_captions(table, console))
        return
    text = render_text(*tables, width=console.width)
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def new_number_table(
    title: str,
    names: str | Sequence[str],
    figures: Iterable[str],
    rows: Iterable[Iterable[str | Text] | None] = (),
    *,
    caption: Iterable[str | None] = (),
    min_width: int | None = None,
    no_wrap: Collection[str] = (),
    show_edge: bool = False,
) -> Table:
    """Makes a table of names at the left and figures at the right.

    Args:
        names: The heads of the columns at the left.
        figures: Those of the columns at the right.
        rows: The cells of each row, or None at the end of a section; plain texts are escaped, their indent stays.
        caption: Lines below the table; empty ones are left out.
        min_width: Of the first column, so that wide figures go on in another line rather than the names.
        no_wrap: Those of them whose cells stay in one line.
        show_edge: Draws the frame; without it three systems fit 80 columns.
    """
    table = _new_table(title)
    table.show_edge = show_edge
    for head in [names] if isinstance(names, str) else names:
        table.add_column(Text(escape_terminal(head)), overflow="fold", min_width=None if table.columns else min_width)
    for head in figures:
        is_whole = head in no_wrap
        overflow: OverflowMethod = "ellipsis" if is_whole else "fold"
        table.add_column(Text(escape_terminal(head)), justify="right", no_wrap=is_whole, overflow=overflow)
    for cells in rows:
        if cells is None:
            table.add_section()
            continue
        shown = [
            Text(" " * (len(cell) - len(cell.lstrip(" "))) + escape_terminal(cell)) if isinstance(cell, str) else cell
            for cell in cells
        ]
        table.add_row(*shown)
    if lines := list(filter(None, caption)):
        table.caption = Text("\n".join(lines))
    return table


def bold(text: str) -> Text:
    """Makes a bold cell of a table."""
    return Text(escape_terminal(text), style="bold")


def new_text_table(title: str, columns: Iterable[str], *, no_wrap: Collection[str] = ()) -> Table:
    """Makes an empty table of texts, without a frame; a long one goes on in another line.

    Args:
        no_wrap: Columns whose cells stay in one line.
    """
    table = _new_table(title)
    table.show_edge = False
    for head in columns:
        table.add_column(Text(escape_terminal(head)), overflow="fold", no_wrap=head in no_wrap)
    return table


def _new_table(title: str) -> Table:
    """Makes an empty table in this project's look."""
    table = Table(box=box.ROUNDED, title_justify="left", caption_justify="left")
    if title:
        table.title = Text(escape_terminal(title), style="bold")
    return table
