"""Reads inspect_ai's `.eval` logs as runs that `faithkit report` compares on the samples that they share.

write_run("logs/a.eval", "runs/a")
write_run("logs/b.eval", "runs/b")  # then: faithkit report runs=[runs/a,runs/b]
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.arguments import read_passages
from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder, write_config
from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.metrics.responses.measure_responses import defined_means
from faithkit.provenance.predicted_rows import to_line
from faithkit.records import HALLUCINATED, LABELS, UNPARSED, Example, Prediction, Turn, join_passages
from faithkit.scores.measures import CRITIC_RATE, RESPONSES, kinds_of
from faithkit.statistics.bootstrap import Groups, bootstrap
from faithkit.statistics.metric import full_names, write_results
from faithkit_workflows.adapters.scorer import needs_tool, read_context

with needs_tool("inspect_ai", "inspect_ai"):
    from inspect_ai.log import EvalSample, read_eval_log

Evaluation = Mapping[str, float]
log = logging.getLogger("faithkit")


def write_run(
    log_file: str | Path, folder: str | Path, *, scorer: str = "faithfulness", context: str = "context"
) -> Path:
    """Writes the scored samples of a log as the folder of a run: predictions and metrics with intervals.

    Where targets are `faithful` or `hallucinated`, the model under test is a detector: its label is that of the score,
    or the one word of these in its output. Otherwise it writes answers, and the scorer `faithfulness` measured them.

    Args:
        scorer: The score to read; samples without it are left out.
        context: The key of the context in the samples' metadata.

    Raises:
        UserError: The log cannot be read, no sample has this score, it measured nothing, or the folder is not empty.
    """
    try:
        read = read_eval_log(str(log_file))
    except Exception as error:  # inspect_ai raises errors of many kinds
        hint = "name a .eval or .json log"
        raise UserError(f"the log cannot be read: {error}", place=str(log_file), hint=hint) from error
    samples = [one for one in read.samples or () if scorer in (one.scores or {})]
    if not samples:
        names = sorted({name for one in read.samples or () for name in one.scores or {}})
        hint = f"set scorer to {' or '.join(names)}" if names else "it has no scored sample: let the evaluation finish"
        raise UserError(f"no sample has the score {scorer!r}", place=str(log_file), hint=hint)
    if (left_out := len(read.samples or ()) - len(samples)) > 0:
        log.warning("%s: %s samples without the score %s are left out", log_file, f"{left_out:,}", scorer)
    run, task = RunFolder(folder), read.eval.task.replace("/", "_")
    if run.path.exists() and any(run.path.iterdir()):
        raise UserError("the folder of the run is not empty", place=str(folder), hint="name a new folder")
    examples = [_read_example(one, task, context) for one in samples]
    is_generated = any(one.label is None for one in examples)
    verdicts: list[tuple[str | None, float | None]] = []
    for one in samples:  # other scorers may have anything under these names, or nothing
        values = one.scores[scorer].metadata or {}
        label, probability = values.get("label"), values.get("probability")
        is_probability = isinstance(probability, float) and 0 <= probability <= 1
        verdicts.append((label if label in LABELS else None, probability if is_probability else None))
    if is_generated:
        measured = []
        for label, probability in verdicts:
            scores = {CRITIC_RATE: float(label == HALLUCINATED)} if label else {}
            measured.append(scores if probability is None else {**scores, "critic_score": probability})
        predictions = [
            Prediction(id=example.id, text=one.output.completion)
            for example, one in zip(examples, samples, strict=True)
        ]
        if not any(measured):
            hint = "write_run reads the scorer faithfulness, or tasks whose targets are faithful and hallucinated"
            raise UserError(f"the score {scorer!r} has no label or probability", place=str(log_file), hint=hint)
        kinds = dict.fromkeys(name for values in measured for name in values)
        columns = {name: np.array([values.get(name, np.nan) for values in measured]) for name in kinds}
        groups = Groups.of(one.group for one in examples)
        sizes = {name: int(np.isfinite(column).sum()) for name, column in columns.items()}
        found = bootstrap(groups, defined_means(groups, columns), kinds=kinds_of(RESPONSES), n=sizes)
        rows = ({"id": one.id, **values} for one, values in zip(examples, measured, strict=True))
        write_jsonl(run.path / "scores" / f"{task}.jsonl", rows)
    else:
        predictions = []
        for example, one, (label, probability) in zip(examples, samples, verdicts, strict=True):
            text = one.output.completion
            words = [word for word in LABELS if word in text.casefold()]
            label = label or (words[0] if len(words) == 1 else UNPARSED)
            predictions.append(Prediction(id=example.id, label=label, score=probability, text=text))
        outcomes = join_outcomes(examples, {one.id: one for one in predictions})
        found = classification_metrics(outcomes)
    lines = (to_line(one, row, generated=is_generated) for row, one in zip(examples, predictions, strict=True))
    write_jsonl(run.predictions / f"{task}.jsonl", lines)
    config: dict[str, Any] = {"benchmark": {"name": task}, "model": read.eval.model, "scorer": scorer}
    write_config(run.config, config)
    write_results(run.metrics, full_names("test", task, found.metrics), {"config": config})
    return run.path


def _read_example(sample: EvalSample, task: str, context: str) -> Example:
    """Reads a sample; its epochs are one group, and an output without a reference is its own."""
    turns = [("user", sample.input)] if isinstance(sample.input, str) else [(m.role, m.text) for m in sample.input]
    passages = read_context(sample.metadata.get(context))
    target = sample.target if isinstance(sample.target, str) else " | ".join(sample.target)
    label = target.strip().casefold() if target.strip().casefold() in LABELS else None
    return Example(
        id=str(sample.id) if sample.epoch == 1 else f"{sample.id}:{sample.epoch}",
        source=task,
        split="test",
        group=str(sample.id),
        knowledge=join_passages(read_passages(context, passages, f"sample {sample.id}")) if passages else "",
        history=tuple(Turn(speaker=speaker, text=text) for speaker, text in turns),
        response="" if label else target,
        label=label,
    )
