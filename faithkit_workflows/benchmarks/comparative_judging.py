"""Comparative judging: a language model decides which of two replies to a turn is hallucinated, in both orders."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from data_modules.build import read_benchmark
from faithkit.embedded_name import EMBEDDED
from faithkit.environment import environment
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.judging import OTHER, PAIR, make_both_orders
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.judging_report import comparison_report
from faithkit.reports.write_reports import EvaluationResult, write_run_results
from faithkit_workflows.answering.prediction_files import predict_and_write, read_provenance
from faithkit_workflows.detectors.llm_judge import describe_judge, load_asker
from faithkit_workflows.detectors.loading import LoadedDetector
from judge.questions import COMPARATIVE, FIRST, Asker

log = logging.getLogger("faithkit")


class ComparingJudge:
    """A detector that shows a language model two replies.

    The first reply is the response of the example, the second is in its `meta`. The response is labelled hallucinated
    if the model chooses the first reply, and faithful if it chooses the second.
    """

    def __init__(self, asker: Asker):
        self.asker = asker

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example, in their order; the score is the probability of the first reply."""
        rows = [(one, {"first": one.response, "second": str(one.meta[OTHER])}) for one in examples]
        for example, answer in zip(examples, self.asker.answers(rows, progress=progress), strict=True):
            label = UNPARSED if answer.choice is None else HALLUCINATED if answer.choice == FIRST else FAITHFUL
            yield Prediction(id=example.id, label=label, score=answer.probability, text=answer.text)


def run_comparative(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Pairs the examples, judges each pair in both orders, and writes the metrics."""
    block = config["benchmark"]
    benchmark = read_benchmark({**block, "num_rows": None})
    rows, notes = pair_up(benchmark.examples, block["num_rows"])
    if not rows:
        hint = (
            "use data with both labels per turn: benchmark.options.scenario=induced of HalluDial, or HaluEval's pairs"
        )
        raise UserError("no response has a counterpart with the other label", place=block["path"], hint=hint)
    if config["predictions"]:
        given = read_predictions(config["predictions"])
        origin = read_provenance(config["predictions"], benchmark.name, rows, checkpoint=None)
    else:
        asker, log_usage = load_asker(config, COMPARATIVE)
        loaded = LoadedDetector(ComparingJudge(asker), [describe_judge(config)], log_usage)
        path, chunk_size = run.predictions / f"{benchmark.name}.jsonl", config["save_every_num_rows"]
        texts = config["save_texts"]
        given, origin = predict_and_write(path, benchmark.name, rows, loaded, chunk_size=chunk_size, texts=texts)
    report = comparison_report(
        rows,
        given,
        title=f"test/{benchmark.name}",
        dataset="" if block["path"] == EMBEDDED else block["dataset"],
        notes=notes,
        num_resamples=config["num_resamples"],
        num_examples=config["num_examples"],
        origin=origin,
    )
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    return EvaluationResult(write_run_results(run, {benchmark.name: [report]}, meta=meta))


def pair_up(examples: Sequence[Example], num_pairs: int | None = None) -> tuple[list[Example], list[str]]:
    """Pairs each hallucinated response with a faithful one to the same turn, and returns both orders, and notes.

    If a turn has several faithful responses, they are used in turn.
    """
    faithful: dict[tuple[Any, ...], list[Example]] = {}
    for example in examples:
        if example.label == FAITHFUL:
            faithful.setdefault(_turn_key(example), []).append(example)
    used: dict[tuple[Any, ...], int] = {}
    rows: list[Example] = []
    unpaired = equal = 0
    for example in examples:
        if example.label != HALLUCINATED:
            continue
        turn = _turn_key(example)
        if turn not in faithful:
            unpaired += 1
            continue
        partner = faithful[turn][used.get(turn, 0) % len(faithful[turn])]
        used[turn] = used.get(turn, 0) + 1
        if partner.response == example.response:
            equal += 1
        elif num_pairs is None or len(rows) < 2 * num_pairs:
            rows += make_both_orders(partner, example)
    counts = {"have no faithful response to the same turn": unpaired, "equal the faithful response": equal}
    notes = [f"{number:,} hallucinated responses {what}: left out" for what, number in counts.items() if number]
    return rows, notes


def _turn_key(example: Example) -> tuple[Any, ...]:
    """Returns the key that all responses to the same turn share."""
    return example.group, example.meta.get(PAIR), example.knowledge, example.history
