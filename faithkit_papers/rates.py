"""Hallucination rates of language models, by turn and by dialogue (HalluDial, section 4), and their report.

Turns with an unreadable verdict, or without a reply, are left out and counted as `unparsed_rate` and `no_reply_rate`. A
dialogue counts where any of its judged turns is hallucinated, and is left out where none is judged. Intervals are over
dialogues.

>>> import numpy as np
>>> called = np.array([1, 0, 0, 0, np.nan, 0])
>>> turns = Turns(called=called, replied=np.ones(6, bool), groups=Groups.of("aabbcc"))
>>> found = evaluate_rates(turns).score(num_resamples=10).metrics
>>> found["turn_rate"].value, round(found["dialogue_rate"].value, 3)
(0.2, 0.333)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from faithkit.metrics.classification import safe_ratio
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.pages.page_tables import escape_terminal, format_percent
from faithkit.pages.plotting import (
    COLOURS,
    MARKERS,
    STYLE,
    new_figure,
    percent_axis,
    plot_name,
    require_plots,
    save_figure,
)
from faithkit.reports.report import Report, Row, difference_cells, published_cells, score_table
from faithkit.scores.board import Board
from faithkit.settings.config_files import GOLD, RATE_HISTORIES, SELF
from faithkit.statistics.bootstrap import Difference, Evaluation, Groups
from faithkit.statistics.metric import ERROR_RATE, Metric
from faithkit.statistics.spread import Values
from faithkit_papers.published_figures import paper_table

RATES = TURN_RATE, DIALOGUE_RATE = ("turn_rate", "dialogue_rate")


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """A judge's verdicts on the replies of one model.

    Args:
        called: 1 where the judge calls the reply hallucinated [N], NaN if there is no verdict.
        replied: Whether there is a reply [N].
        groups: The dialogue of each turn.
    """

    called: Values
    replied: NDArray[np.bool_]
    groups: Groups

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Marks the turns with a verdict [N]."""
        return np.isfinite(self.called)


def evaluate_rates(turns: Turns) -> Evaluation:
    """Prepares all rates; n of `dialogue_rate` counts dialogues, that of the others turns."""
    judged, called = turns.judged, np.nan_to_num(turns.called)
    sums = turns.groups.sums(np.stack([called, judged, turns.replied, np.ones(len(called))], axis=1))  # [G, 4]
    any_called, any_judged = sums[:, 0] > 0, sums[:, 1] > 0

    def statistic(weights: Values) -> dict[str, Values]:
        hallucinated, with_verdict, replied, total = (weights @ sums).T
        return {
            TURN_RATE: safe_ratio(hallucinated, with_verdict),
            DIALOGUE_RATE: safe_ratio(weights @ any_called, weights @ any_judged),
            "unparsed_rate": safe_ratio(replied - with_verdict, replied),
            "no_reply_rate": 1 - replied / total,
        }

    n = {
        TURN_RATE: int(judged.sum()),
        DIALOGUE_RATE: len(np.unique(turns.groups.index[judged])),
        "unparsed_rate": int(turns.replied.sum()),
    }
    return Evaluation(groups=turns.groups, statistic=statistic, kinds=ERROR_RATE, n=n)


CORRECTED = f"{TURN_RATE}_corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One system with one kind of history, at one temperature.

    Args:
        temperature: None if none was set.
    """

    system: str
    history: str
    temperature: float | None = None

    @property
    def name(self) -> str:
        """Begins the names of its metrics, and names its files (with - for /)."""
        at = [] if self.temperature is None else [f"temperature_{self.temperature:g}"]
        return "/".join([self.system, self.history, *at])

    @property
    def file(self) -> str:
        """Names its files."""
        return self.name.replace("/", "-")


def rates_report(
    cases: Mapping[Case, Turns],
    groups: Sequence[str],
    *,
    title: str,
    judged_by: str,
    error: JudgeError | None = None,
    dataset: str = "",
    notes: Sequence[str] = (),
    num_resamples: int = 1000,
) -> tuple[Mapping[Case, Mapping[str, Metric]], Report]:
    """Computes `small/gold/turn_rate` of each case, and `difference/small/turn_rate`, self - gold histories.

    Returns the rates of each case by name, and the report of all.

    Args:
        cases: The turns of each, the same ones in the same order.
        groups: Their dialogues.
        judged_by: The judge's name for readers.
        error: Its errors on labelled rows, to correct turn rates.
        dataset: The dataset to show published figures of; empty for none.
    """
    board, found, all_notes = Board(title, num_resamples=num_resamples), dict[Case, dict[str, Metric]](), list(notes)
    for case, turns in cases.items():
        board.add(case.name, evaluate_rates(turns))
        found[case], noted = board.metrics(case.name), list(board.notes(case.name))
        num_replied, num_turns = int(turns.replied.sum()), len(turns.replied)
        if silent := num_turns - num_replied:
            noted.append(f"{case.name}: {silent:,} of {num_turns:,} turns got no reply: left out")
        if unparsed := int((turns.replied & ~turns.judged).sum()):
            noted.append(f"{case.name}: {unparsed:,} of {num_replied:,} replies got no readable verdict")
        if error is not None and turns.judged.any():
            corrected = corrected_rate(turns.called, list(groups), error, num_resamples=num_resamples)
            found[case] |= {CORRECTED: corrected.metric} if corrected.metric else {}
            noted += [f"{case.name}: {corrected.note}"] if corrected.note else []
        all_notes += [note for note in noted if note not in all_notes]
    metrics = {f"{case.name}/{name}": metric for case, scored in found.items() for name, metric in scored.items()}
    differences: dict[str, dict[str, Difference]] = {}  # self - gold histories
    for case in cases:
        other = replace(case, history=GOLD)
        if case.history == SELF and other in cases:
            name = "/".join(part for part in case.name.split("/") if part != SELF)
            differences[name] = board.subtract(case.name, other.name, RATES)
            for rate, one in differences[name].items():
                metrics |= one.to_metrics(f"{name}/{rate}")
    if error is None:
        all_notes.append(
            "no rate is corrected: benchmark.judge_labels=[{dataset, path}] gives rows that people labelled"
        )
    else:
        errors = error.metrics(num_resamples=num_resamples)
        metrics |= {f"judge/{name}": metric for name, metric in errors.items()}
        recall, false_alarms = (format_percent(errors[name]) for name in ("recall", "false_alarms"))
        calls = f"finds {recall}% of hallucinated rows and calls {false_alarms}% of the others hallucinated"
        all_notes.append(f"the judge {calls}, on {error.name}")
    tables = [_rates_table(found, title=title, judged_by=judged_by, dataset=dataset)]
    if differences:
        rows: list[Row] = []
        for name, both in differences.items():
            cells = [difference_cells(both.get(rate), rate, f"{rate} p") for rate in RATES]
            rows.append((name.replace("/temperature_", " at "), {**cells[0], **cells[1]}))
        columns = {TURN_RATE: "turns", f"{TURN_RATE} p": "p", DIALOGUE_RATE: "dialogues", f"{DIALOGUE_RATE} p": "p"}
        lines = ["paired, on the same resamples of dialogues; p two-sided, uncorrected"]
        head = f"{title}: self - gold histories, percent"
        tables.append(score_table(head, "system", columns, rows, caption=lines, min_width=14))
    return found, Report(metrics=metrics, tables=tuple(tables), notes=tuple(all_notes))


def _rates_table(cases: Mapping[Case, Mapping[str, Metric]], *, title: str, judged_by: str, dataset: str) -> Table:
    at = any(case.temperature is not None for case in cases)
    rows: list[Row] = []
    for case, metrics in cases.items():
        temperature = ["-" if case.temperature is None else f"{case.temperature:g}"] if at else []
        rows.append(((case.system, case.history, *temperature), metrics))
        if (corrected := metrics.get(CORRECTED)) is not None:
            rows.append((("  corrected", *[""] * (1 + at)), {TURN_RATE: corrected}))
    meaning = "history before a turn: gold, the data's replies; self, the system's. dialogues: any turn is hallucinated"
    intervals = "95% intervals over dialogues" + "; at: temperature" * at
    lines = [f"judged by {escape_terminal(judged_by, 200)}", f"{meaning}. {intervals}"]
    if dataset == "halludial":
        published = paper_table("halludial_rates")
        rows.append(None)
        for row in sorted(published.rows, key=lambda row: row["gold_turn"])[:3]:
            for history in RATE_HISTORIES:
                figures = published_cells(row, {TURN_RATE: f"{history}_turn", DIALOGUE_RATE: f"{history}_dialogue"})
                rows.append(((f"{row['system']} *", history, *["1"] * at), figures))
        lines.append(f"* the lowest of {published.citation}: {published.protocol}")
    names, columns = ["system", "history", *["at"] * at], {TURN_RATE: "turns", DIALOGUE_RATE: "dialogues"}
    title, heads = f"{title}: hallucinated, percent", list(columns.values())
    return score_table(title, names, columns, rows, caption=lines, min_width=14, no_wrap=heads)


def plot_temperatures(cases: Mapping[Case, Mapping[str, Metric]], path: Path) -> Path:
    """Writes one line for each system and history, with its interval as a band; cases without a temperature are none.

    Raises:
        UserError: matplotlib is not installed, or the file cannot be written.
    """
    require_plots()
    from matplotlib import rc_context

    lines: dict[tuple[str, str], list[tuple[float, Mapping[str, Metric]]]] = {}
    for case, metrics in cases.items():
        if case.temperature is not None:
            lines.setdefault((case.system, case.history), []).append((case.temperature, metrics))
    systems = list(dict.fromkeys(system for system, _ in lines))
    titles = {TURN_RATE: "hallucinated turns", DIALOGUE_RATE: "dialogues with any"}
    with rc_context(STYLE):
        figure, _ = new_figure(9, 3.4, columns=2)
        for axes, (rate, title) in zip(figure.axes, titles.items(), strict=True):
            for (system, history), points in lines.items():
                known = sorted((at, metrics[rate]) for at, metrics in points if rate in metrics)
                place = systems.index(system)
                colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
                at = [temperature for temperature, _ in known]
                style: dict[str, Any] = {
                    "color": colour,
                    "marker": marker,
                    "linestyle": "--" if history == SELF else "-",
                }
                label = f"{plot_name(system)}, {history} history"
                axes.plot(at, [metric.value for _, metric in known], label=label, **style)
                low, high = ([getattr(metric, side) for _, metric in known] for side in ("low", "high"))
                axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
            axes.set_title(title)
            axes.set_xlabel("temperature")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(percent_axis())
        figure.axes[0].legend()
        return save_figure(figure, path)
