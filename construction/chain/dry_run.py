"""Shows what a chain would ask, and estimates its tokens and cost; nothing is asked and nothing is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from construction.chain.ask import Ask
from construction.chain.chain_rows import AT, KEY, Row, is_hole
from construction.chain.runner import AnyStep, Each, Source, Step
from faithkit.inference.text import Message
from faithkit.inference.text_engines import EngineOptions
from faithkit.pages.tables import new_number_table, print_tables

SHOWN, MEASURED = 3, 200  # rows whose prompts are printed, and whose lengths are averaged
CHARACTERS = 4.0  # of English text in a token, about
MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The tokens of a step: those read are estimated by characters, those written are the most that may be."""

    step: str
    requests: int
    read: int
    written: int
    cost: float | None


def show_dry_run(steps: Sequence[AnyStep]) -> list[Estimate]:
    """Prints three filled prompts of each step that asks, and a table of the estimates."""
    rows: dict[str, list[Row]] = {}
    counts: dict[str, int] = {}
    estimates = []
    for step in steps:
        if isinstance(step, Source):
            rows[step.name], counts[step.name] = _first(iter(step.read()))
            continue
        before = _joined(step, steps, rows)
        counts[step.name] = sum(counts[name] for name in step.after)
        if not isinstance(step.work, Ask):
            rows[step.name] = list(step.work.run(before)) if isinstance(step.work, Each) else before
            continue
        usable = [row for row in before if not is_hole(row)]
        for number, row in enumerate(usable[:SHOWN], start=1):
            print(f"--- {step.name}, prompt {number} of {counts[step.name]:,}: {row[KEY]}")
            print(
                *(f"[{message.role}]\n{message.content}" for message in step.work.messages(row)), sep="\n", end="\n\n"
            )
        estimates.append(_estimate(step.name, step.work, usable, counts[step.name]))
        rows[step.name] = [step.work.pretend(row) for row in usable]
    _show(estimates)
    return estimates


def _first(rows: Iterator[Row]) -> tuple[list[Row], int]:
    first = list(islice(rows, MEASURED))
    return first, len(first) + sum(1 for _ in rows)


def _joined(step: Step, steps: Sequence[AnyStep], rows: dict[str, list[Row]]) -> list[Row]:
    if len(step.after) == 1:
        return rows[step.after[0]]
    branches = {one.name: one.branch or one.name for one in steps}
    return [
        {**row, KEY: f"{row[KEY]}{AT}{branches[name]}"}
        for same in zip(*(rows[name] for name in step.after), strict=True)
        for name, row in zip(step.after, same, strict=True)
    ]


def _estimate(name: str, ask: Ask, rows: Sequence[Row], count: int) -> Estimate:
    lengths = [_tokens(ask.messages(row)) for row in rows]
    read = round(sum(lengths) / max(1, len(lengths)) * count)
    written = count * ask.decoding.max_new_tokens
    return Estimate(step=name, requests=count, read=read, written=written, cost=_cost(ask.options, read, written))


def _tokens(messages: Sequence[Message]) -> float:
    return sum(len(message.content) for message in messages) / CHARACTERS


def _cost(options: EngineOptions, read: int, written: int) -> float | None:
    if options.price is None:
        return None
    return (read * options.price[0] + written * options.price[1]) / MILLION


def _show(estimates: Sequence[Estimate]) -> None:
    figures = ("requests", "tokens read, about", "written, at most", "dollars, at most")
    table = new_number_table("what it would ask", "step", figures, show_edge=True)
    if any(one.cost is None for one in estimates):
        table.caption = "engine.price=[READ,WRITTEN], for a million tokens each, gives the dollars"
    for one in estimates:
        cost = "-" if one.cost is None else f"{one.cost:,.2f}"
        table.add_row(one.step, f"{one.requests:,}", f"{one.read:,}", f"{one.written:,}", cost)
    print_tables(table)
