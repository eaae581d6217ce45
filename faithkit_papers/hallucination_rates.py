"""Hallucination rates of language models in dialogues, measured by a detector (HalluDial, section 4).

Each system's replies come from files, or an engine writes them: with the histories of the data, with histories that
contain the system's earlier replies, or with both, and at several temperatures.

With the system's earlier replies, turns are written one after another, for all dialogues at the same time: its replies
replace the original ones in the history, and the seeker's turns stay.

Turns with an unreadable verdict, or without a reply, are left out and counted as `unparsed_rate` and `no_reply_rate`. A
dialogue counts where any of its judged turns is hallucinated, and is left out where none is judged. Intervals are over
dialogues.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from tqdm.auto import tqdm

from data_modules.build import read_benchmark
from data_modules.reading.dataset import draw_examples
from data_modules.reading.fields import SEEKER, SPEAKER_MARKS, WIZARD
from faithkit import signals
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_predictions, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.inference.text import GREEDY, NUCLEUS, Decoding, Request, TextEngine
from faithkit.inference.text_engines import EngineOptions, build_text_engine
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
from faithkit.records import HALLUCINATED, LABELS, Example, Turn
from faithkit.reports.report import Report, Row, difference_cells, published_cells, score_table
from faithkit.reports.write_reports import EvaluationResult, write_benchmark_results
from faithkit.scores.board import Board
from faithkit.settings.config_files import EMBEDDED, GOLD, RATE_HISTORIES, SELF
from faithkit.statistics.bootstrap import Difference, Evaluation, Groups
from faithkit.statistics.metric import ERROR_RATE, Metric
from faithkit.statistics.spread import Values
from faithkit_papers.published_figures import paper_table
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_with_origin
from faithkit_workflows.benchmarks.configured import load_configured
from faithkit_workflows.benchmarks.responses import measure_judge_error, read_labelled
from faithkit_workflows.detectors.loading import log_usage
from judge.prompt import OPTIONAL_FIELDS
from judge.questions import messages_about

RATES = TURN_RATE, DIALOGUE_RATE = ("turn_rate", "dialogue_rate")
CORRECTED = f"{TURN_RATE}_corrected"
PROMPT = "reply"
_MARKS = re.compile("|".join(re.escape(f"{SPEAKER_MARKS[who]}:") for who in (SEEKER, WIZARD)))
Replies = dict[str, str]  # by example id; empty if the model wrote nothing
FILES = {GOLD: "gold_predictions", SELF: "self_predictions"}
log = logging.getLogger("faithkit")


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
        labels = "benchmark.judge_labels=[{dataset, path}] gives rows that people labelled"
        all_notes.append(f"no rate is corrected: {labels}")
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
        line = "paired, on the same resamples of dialogues; p two-sided, uncorrected"
        head = f"{title}: self - gold histories, percent"
        tables.append(score_table(head, "system", columns, rows, caption=[line], min_width=14))
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
                line: dict[str, Any] = {"marker": marker, "linestyle": "--" if history == SELF else "-"}
                label, values = f"{plot_name(system)}, {history} history", [metric.value for _, metric in known]
                axes.plot(at, values, label=label, color=colour, **line)
                low, high = ([getattr(metric, side) for _, metric in known] for side in ("low", "high"))
                axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
            axes.set_title(title)
            axes.set_xlabel("temperature")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(percent_axis())
        figure.axes[0].legend()
        return save_figure(figure, path)


@dataclass(frozen=True, slots=True)
class Dialogues:
    """One example for each turn of each dialogue, in order, and notes on what was left out."""

    turns: tuple[Example, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, examples: Sequence[Example], num_dialogues: int | None = None, *, seed: int = 0) -> "Dialogues":
        """Takes the first of the examples that answer a turn.

        Args:
            num_dialogues: The largest number of dialogues, drawn by the seed.
        """
        first: dict[tuple[str, int], Example] = {}
        openings: dict[str, Example] = {}
        for example in examples:
            first.setdefault((example.group, len(example.history)), example)
            openings.setdefault(example.group, example)
        kept = list(openings)
        if num_dialogues is not None:
            kept = [example.group for example in draw_examples(list(openings.values()), num_dialogues, seed)]
        by_group: dict[str, list[Example]] = {group: [] for group in kept}
        for (group, _), example in sorted(first.items(), key=lambda item: item[0][1]):
            if group in by_group:
                by_group[group].append(example)
        turns = tuple(example for group in kept for example in by_group[group])
        known = {(turn.group, len(turn.history)) for turn in turns}
        in_histories = {
            (turn.group, number) for turn in turns for number, one in enumerate(turn.history) if one.speaker == WIZARD
        }
        num_missing = len(in_histories - known)
        notes = [f"{num_missing:,} turns are only in histories, without knowledge: their original replies are kept"]
        if left_out := len(openings) - len(kept):
            notes.append(f"{left_out:,} dialogues are not drawn (num_rows={num_dialogues}, seed={seed})")
        return cls(turns, tuple(notes[0 if num_missing else 1 :]))

    def with_replies(self, replies: Mapping[str, str], turns: Sequence[Example] | None = None) -> list[Example]:
        """Replaces the original replies in the histories by a model's replies, as far as they exist.

        Args:
            turns: Some of the turns; None for all.
        """
        ids, found = {(turn.group, len(turn.history)): turn.id for turn in self.turns}, []
        for turn in self.turns if turns is None else turns:
            history = list(turn.history)
            for number, one in enumerate(history):
                if one.speaker == WIZARD and (reply := replies.get(ids.get((turn.group, number), ""), "")):
                    history[number] = Turn(speaker=WIZARD, text=reply)
            found.append(replace(turn, history=tuple(history)))
        return found


def write_replies(
    engine: TextEngine,
    dialogues: Dialogues,
    decoding: Decoding,
    *,
    own_history: bool,
    prompts: str | None = None,
    title: str = "",
) -> Replies:
    """Writes a reply to every turn with a language model; a reply does not depend on the other dialogues.

    Args:
        prompts: A folder with another prompt, reply.txt.
    """
    prompt = read_text_prompt("judge", PROMPT, folder=prompts, optional=OPTIONAL_FIELDS)
    replies: Replies = {}
    failed: dict[str, str] = {}
    rounds: dict[int, list[Example]] = {}  # turns of the same number in their dialogue are written together
    for turn in dialogues.turns:
        rounds.setdefault(len(turn.history) if own_history else 0, []).append(turn)
    with tqdm(total=len(dialogues.turns), desc=title or PROMPT, unit="reply", mininterval=0.5, disable=None) as bar:
        for _, turns in sorted(rounds.items()):
            signals.check()
            examples = dialogues.with_replies(replies, turns) if own_history else turns
            requests = [Request(one.id, messages_about(prompt, one)) for one in examples]
            for reply in engine.generate(requests, decoding):
                text = reply.texts[0].strip().removeprefix(f"{SPEAKER_MARKS[WIZARD]}:") if reply.texts else ""
                replies[reply.id] = _MARKS.split(text, maxsplit=1)[0].strip()  # its first turn alone
                failed |= {} if reply.texts else {reply.id: reply.problem}
                bar.update()
    if failed:
        log.warning("%s: %d requests failed, the first: %s", title, len(failed), next(iter(failed.values())))
    return {turn.id: replies[turn.id] for turn in dialogues.turns}


def run_rates(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the dialogues, collects and judges each system's replies, and writes the rates.

    Raises:
        UserError: A turn has no reply in a system's file, or no system has replies.
    """
    block = config["benchmark"]
    benchmark = read_benchmark({**block, "num_rows": None}, labelled=False)
    dialogues = Dialogues.of(benchmark.examples, block["num_rows"], seed=config["seed"])
    given: dict[str, dict[str, Replies]] = {name: {} for name in block["systems"]}  # by system and kind of history
    notes = list(dialogues.notes)
    for name, system in block["systems"].items():
        for history, key in FILES.items():
            if path := system.get(key):
                texts = {id_: one.text.strip() for id_, one in read_predictions(path).items()}
                if missing := [turn.id for turn in dialogues.turns if turn.id not in texts]:
                    shown = f"{len(missing):,} of {len(dialogues.turns):,} turns have no reply"
                    hint = "write replies to every turn of these dialogues, or lower benchmark.num_rows"
                    raise UserError(f"{shown} ({shorten(missing[0], 40)}, ...)", place=path, hint=hint)
                given[name][history] = {turn.id: texts[turn.id] for turn in dialogues.turns}
        lacking = [one for one in block["histories"] if not system.get("name") and not system.get(FILES[one])]
        notes += (f"{name} has no replies with {history} histories: left out there" for history in lacking)
    loaded = load_configured(config)
    labelled = read_labelled({**block, "critic": config["checkpoint"]}, seed=config["seed"])
    error = measure_judge_error(loaded.detector, labelled)
    turns: dict[Case, Turns] = {}
    for name, system in block["systems"].items():
        for case, replies in _collect_replies(run, config, name, system, given[name], dialogues):
            # Each reply is judged with the history that it was written for.
            written = dialogues.with_replies(replies) if case.history == SELF else dialogues.turns
            examples = [
                replace(turn, response=replies[turn.id], label=None, spans=None, target=None)
                for turn in written
                if replies[turn.id]
            ]
            answerer = DetectorAnswerer(loaded.detector)
            predictions = write_with_origin(run, config, case.file, examples, answerer, loaded.models)
            called = {id_: float(one.label == HALLUCINATED) for id_, one in predictions.items() if one.label in LABELS}
            turns[case] = Turns(
                called=np.array([called.get(turn.id, np.nan) for turn in written]),
                replied=np.array([bool(replies[turn.id]) for turn in written]),
                groups=Groups.of(turn.group for turn in written),
            )
    if not turns:
        hint = "benchmark.histories=[gold], or name files with the other histories"
        raise UserError("no system has replies with these histories", place="benchmark.systems", hint=hint)
    loaded.log_usage()
    name = benchmark.name
    rates, report = rates_report(
        turns,
        [turn.group for turn in dialogues.turns],
        title=f"test/{name}",
        judged_by=" and ".join(Path(model.path).name for model in loaded.models),
        error=error,
        dataset="" if block["path"] == EMBEDDED else block["dataset"] or "",
        notes=notes,
        num_resamples=config["num_resamples"],
    )
    if block["plots"] and any(case.temperature is not None for case in turns):
        log.info("plot: %s", plot_temperatures(rates, run.path / "temperature.png"))
    return write_benchmark_results(run, {name: [report]}, config, benchmark.summary)


def _collect_replies(
    run: RunFolder,
    config: Mapping[str, Any],
    name: str,
    system: Mapping[str, Any],
    given: Mapping[str, Replies],
    dialogues: Dialogues,
) -> Iterator[tuple[Case, Replies]]:
    """Yields the replies of one system by case; replies of an engine are also written to the run's `responses/`."""
    block = config["benchmark"]
    yield from ((Case(system=name, history=h), given[h]) for h in block["histories"] if h in given)
    missing = [history for history in block["histories"] if history not in given]
    if not system.get("name") or not missing:
        return
    options = {key: value for key, value in system.items() if key not in FILES.values()}
    engine = build_text_engine(EngineOptions(**options))
    for temperature in block["temperatures"] or (None,):
        decoding = Decoding(**config["decoding"])
        if temperature == 0:
            decoding = replace(decoding, strategy=GREEDY)
        elif temperature is not None:
            decoding = replace(decoding, strategy=NUCLEUS, temperature=temperature)
        for history in missing:
            case = Case(system=name, history=history, temperature=temperature)
            shown: dict[str, Any] = {"prompts": block["prompts"], "title": case.name}
            replies = write_replies(engine, dialogues, decoding, own_history=history == SELF, **shown)
            path = run.path / "responses" / f"{case.file}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_jsonl(path, ({"id": id_, "text": text} for id_, text in replies.items()))
            yield case, replies
    log_usage(engine)
