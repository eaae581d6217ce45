"""Comparative judging: which of two replies to the same turn is hallucinated, asked in both orders."""

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
from faithkit.reports.judging import comparison_report
from faithkit.reports.write_reports import EvaluationResult, write_run_results
from faithkit_workflows.detectors.judging import describe_judge, load_asker
from faithkit_workflows.detectors.loading import Loaded
from faithkit_workflows.detectors.origins import judge_examples, origin_of_file
from judge.choosing import COMPARATIVE, FIRST, Asker

log = logging.getLogger("faithkit")


class ComparingJudge:
    """A language model that is shown two replies, in the place of a detector.

    Of an example it reads the response, which stands first, and the other reply in `meta`. It calls the response
    hallucinated where it names the first, and faithful where it names the second.
    """

    def __init__(self, asker: Asker):
        self.asker = asker

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """One prediction for each example, in their order; the score is the probability of the first reply."""
        rows = [(one, {"first": one.response, "second": str(one.meta[OTHER])}) for one in examples]
        for example, answer in zip(examples, self.asker.answers(rows, progress=progress), strict=True):
            label = UNPARSED if answer.choice is None else HALLUCINATED if answer.choice == FIRST else FAITHFUL
            yield Prediction(id=example.id, label=label, score=answer.probability, text=answer.text)


def run_comparative(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Pairs the examples, asks about each pair in both orders, and writes the metrics."""
    block = config["benchmark"]
    benchmark = read_benchmark({**block, "num_rows": None})
    rows, notes = pair_up(benchmark.examples, block["num_rows"])
    if not rows:
        hint = "use data whose turns have both: benchmark.options.scenario=induced of HalluDial, or HaluEval's pairs"
        raise UserError("no response has a counterpart with the other label", place=block["path"], hint=hint)
    if config["predictions"]:
        given = read_predictions(config["predictions"])
        origin = origin_of_file(config["predictions"], benchmark.name, rows, checkpoint=None)
    else:
        asker, tell = load_asker(config, COMPARATIVE)
        loaded = Loaded(ComparingJudge(asker), [describe_judge(config)], tell)
        path, portion = run.predictions / f"{benchmark.name}.jsonl", config["save_every_num_rows"]
        texts = config.get("save_texts", True)
        given, origin = judge_examples(path, benchmark.name, rows, loaded, at_a_time=portion, texts=texts)
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
    """Pairs each hallucinated response with a right one to the same turn; gives both orders of each, and notes.

    Where a turn has several right ones they take turns.
    """
    right: dict[tuple[Any, ...], list[Example]] = {}
    for example in examples:
        if example.label == FAITHFUL:
            right.setdefault(_turn(example), []).append(example)
    used: dict[tuple[Any, ...], int] = {}
    rows: list[Example] = []
    alone = equal = 0
    for example in examples:
        if example.label != HALLUCINATED:
            continue
        turn = _turn(example)
        if turn not in right:
            alone += 1
            continue
        partner = right[turn][used.get(turn, 0) % len(right[turn])]
        used[turn] = used.get(turn, 0) + 1
        if partner.response == example.response:
            equal += 1
        elif num_pairs is None or len(rows) < 2 * num_pairs:
            rows += make_both_orders(partner, example)
    notes = {"have no right one to the same turn": alone, "equal the right one": equal}
    return rows, [f"{number:,} hallucinated responses {what}: left out" for what, number in notes.items() if number]


def _turn(example: Example) -> tuple[Any, ...]:
    """Gives what two responses to the same turn have in common."""
    return example.group, example.meta.get(PAIR), example.knowledge, example.history
