"""Hallucination rates of language models in dialogues, measured by a detector (HalluDial, section 4).

Each system's replies come from files, or an engine writes them: with the histories of the data, with histories that
contain the system's earlier replies, or with both, and at several temperatures.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.build import read_benchmark
from faithkit.choices import GOLD, SELF
from faithkit.embedded_name import EMBEDDED
from faithkit.environment import environment
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_predictions, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import GREEDY, NUCLEUS, Decoding
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.records import HALLUCINATED, UNPARSED, Prediction
from faithkit.reports.rates import Case, Turns, rates_report
from faithkit.reports.write_reports import EvaluationResult, write_run_results
from faithkit.statistics.bootstrap import Groups
from faithkit_workflows.answering.dialogue_writing import Dialogues, DialogueWriter, Replies
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_with_origin
from faithkit_workflows.detectors.configured import load_configured
from faithkit_workflows.detectors.judges import measure_judge_error, read_labelled
from faithkit_workflows.detectors.loading import LoadedDetector, log_usage

FILES = {GOLD: "gold_predictions", SELF: "self_predictions"}
PLOT = "temperature.png"
log = logging.getLogger("faithkit")


def run_rates(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the dialogues, collects and judges each system's replies, and writes the rates."""
    block = config["benchmark"]
    benchmark = read_benchmark({**block, "num_rows": None}, labelled=False)
    dialogues = Dialogues.of(benchmark.examples, block["num_rows"])
    given = {name: _read_replies(system, dialogues) for name, system in block["systems"].items()}
    notes = [*dialogues.notes, *_list_missing(block)]
    loaded = load_configured(config)
    labelled = read_labelled({**block, "critic": config["checkpoint"]})
    error = measure_judge_error(loaded.detector, labelled)
    turns: dict[Case, Turns] = {}
    for name, system in block["systems"].items():
        for case, replies in _collect_replies(run, config, name, system, given[name], dialogues):
            turns[case] = _judge(run, config, loaded, dialogues, case, replies)
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
        from faithkit.reports.rates import plot_temperatures

        log.info("plot: %s", plot_temperatures(rates, run.path / PLOT))
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    return EvaluationResult(write_run_results(run, {name: [report]}, meta=meta))


def _read_replies(system: Mapping[str, Any], dialogues: Dialogues) -> dict[str, Replies]:
    """Reads the replies in the files of a system, by kind of history.

    Raises:
        UserError: A turn has no reply.
    """
    found = {}
    for history, key in FILES.items():
        if not (path := system.get(key)):
            continue
        texts = {id_: one.text.strip() for id_, one in read_predictions(path).items()}
        missing = [turn.id for turn in dialogues.turns if turn.id not in texts]
        if missing:
            problem = (
                f"{len(missing):,} of {len(dialogues.turns):,} turns have no reply ({shorten(missing[0], 40)}, ...)"
            )
            hint = "write replies to every turn of these dialogues, or lower benchmark.num_rows"
            raise UserError(problem, place=path, hint=hint)
        found[history] = {turn.id: texts[turn.id] for turn in dialogues.turns}
    return found


def _list_missing(block: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note for each system that has no file with the requested histories."""
    for name, system in block["systems"].items():
        for history in block["histories"]:
            if not system.get("name") and not system.get(FILES[history]):
                yield f"{name} has no replies with {history} histories: left out there"


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
    options = EngineOptions(**{key: value for key, value in system.items() if key not in FILES.values()})
    engine = build_text_engine(options)
    writer = DialogueWriter(engine, prompts=block["prompts"])
    for temperature in block["temperatures"] or (None,):
        decoding = _with_temperature(Decoding(**config["decoding"]), temperature)
        for history in missing:
            case = Case(system=name, history=history, temperature=temperature)
            replies = writer.write(dialogues, decoding, own_history=history == SELF, title=case.name)
            path = run.path / "responses" / f"{case.file}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_jsonl(path, ({"id": id_, "text": text} for id_, text in replies.items()))
            yield case, replies
    log_usage(engine)


def _with_temperature(decoding: Decoding, temperature: float | None) -> Decoding:
    """Returns the decoding settings at a temperature; 0 is greedy decoding."""
    if temperature is None:
        return decoding
    if temperature == 0:
        return replace(decoding, strategy=GREEDY)
    return replace(decoding, strategy=NUCLEUS, temperature=temperature)


def _judge(
    run: RunFolder,
    config: Mapping[str, Any],
    loaded: LoadedDetector,
    dialogues: Dialogues,
    case: Case,
    replies: Replies,
) -> Turns:
    """Judges the replies of a case, each with the history that it was written for."""
    turns = dialogues.with_replies(replies) if case.history == SELF else list(dialogues.turns)
    examples = [
        replace(turn, response=replies[turn.id], label=None, spans=None, target=None)
        for turn in turns
        if replies[turn.id]
    ]
    answerer = DetectorAnswerer(loaded.detector)
    predictions = write_with_origin(run, config, case.file, examples, answerer, loaded.models)
    return Turns(
        called=np.array([_is_hallucinated(predictions.get(turn.id)) for turn in turns]),
        replied=np.array([bool(replies[turn.id]) for turn in turns]),
        groups=Groups.of(turn.group for turn in turns),
    )


def _is_hallucinated(prediction: Prediction | None) -> float:
    if prediction is None or prediction.label in (None, UNPARSED):
        return np.nan
    return float(prediction.label == HALLUCINATED)
