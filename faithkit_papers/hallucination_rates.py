"""Hallucination rates of language models in dialogues, measured by a detector (HalluDial, section 4).

Each system's replies come from files, or an engine writes them: with the histories of the data, with histories that
contain the system's earlier replies, or with both, and at several temperatures.

With the system's earlier replies, turns are written one after another, for all dialogues at the same time: its replies
replace the original ones in the history, and the seeker's turns stay.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
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
from faithkit.records import HALLUCINATED, LABELS, Example, Turn
from faithkit.reports.write_reports import EvaluationResult, write_benchmark_results
from faithkit.settings.config_files import EMBEDDED, GOLD, SELF
from faithkit.statistics.bootstrap import Groups
from faithkit_papers.rates import Case, Turns, plot_temperatures, rates_report
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_with_origin
from faithkit_workflows.benchmarks.configured import load_configured
from faithkit_workflows.detectors.judges import measure_judge_error, read_labelled
from faithkit_workflows.detectors.loading import log_usage
from judge.prompt import OPTIONAL_FIELDS
from judge.questions import messages_about

PROMPT = "reply"
_MARKS = re.compile("|".join(re.escape(f"{SPEAKER_MARKS[who]}:") for who in (SEEKER, WIZARD)))
Replies = dict[str, str]  # by example id; empty if the model wrote nothing


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


FILES = {GOLD: "gold_predictions", SELF: "self_predictions"}
log = logging.getLogger("faithkit")


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
    engine = build_text_engine(
        EngineOptions(**{key: value for key, value in system.items() if key not in FILES.values()})
    )
    for temperature in block["temperatures"] or (None,):
        decoding = Decoding(**config["decoding"])
        if temperature == 0:
            decoding = replace(decoding, strategy=GREEDY)
        elif temperature is not None:
            decoding = replace(decoding, strategy=NUCLEUS, temperature=temperature)
        for history in missing:
            case = Case(system=name, history=history, temperature=temperature)
            options = {"own_history": history == SELF, "prompts": block["prompts"], "title": case.name}
            replies = write_replies(engine, dialogues, decoding, **options)
            path = run.path / "responses" / f"{case.file}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_jsonl(path, ({"id": id_, "text": text} for id_, text in replies.items()))
            yield case, replies
    log_usage(engine)
