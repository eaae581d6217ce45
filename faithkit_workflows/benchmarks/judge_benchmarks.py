"""Benchmarks of judges: comparing two replies in both orders, and agreement with the verdicts of people or models."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_modules.build import read_benchmark
from data_modules.reading.dataset import draw_examples
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import ACCURATE, INACCURATE, read_annotations, read_predictions, write_annotations
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.judging import OTHER, PAIR, make_both_orders
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.judging_report import comparison_report, meta_report
from faithkit.reports.write_reports import EvaluationResult, write_benchmark_results
from faithkit.settings.config_files import EMBEDDED
from faithkit_workflows.answering.write_answers import predict_and_write, read_provenance
from faithkit_workflows.benchmarks.configured import read_untested_rows
from faithkit_workflows.detectors.loading import LoadedDetector, describe_judge, load_asker
from judge.options import VERDICT, AskOptions
from judge.prompt import draw_shots, find_shots, shots_file
from judge.questions import COMPARATIVE, FIRST, META, RIGHT, SECOND, WRONG, Asker

BY_LABEL = "verdict_against_label"  # an annotator, besides the files' and the second judge
VERDICTS = {RIGHT: ACCURATE, WRONG: INACCURATE, None: UNPARSED}
log = logging.getLogger("faithkit")


@dataclass(eq=False)
class ComparingJudge:
    """A detector that shows a language model two replies.

    The first reply is the response of the example, the second is in its `meta`. The response is labelled hallucinated
    if the model chooses the first reply, and faithful if it chooses the second.
    """

    asker: Asker

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
    rows, notes = pair_up(benchmark.examples, block["num_rows"], seed=config["seed"])
    if not rows:
        hint = (
            "use data with both labels per turn: benchmark.options.scenario=induced of HalluDial, or HaluEval's pairs"
        )
        raise UserError("no response has a counterpart with the other label", place=block["path"], hint=hint)
    if config["predictions"]:
        given = read_predictions(config["predictions"])
        origin = read_provenance(config["predictions"], benchmark.name, rows, checkpoint=None)
    else:
        options, fields = AskOptions(**config["judge"]), COMPARATIVE.fields
        if not isinstance(options.examples, int) or shots_file(COMPARATIVE.prompt, options.prompts):
            shots = find_shots(COMPARATIVE.prompt, options, fields)
        else:  # pairs of the training split
            paired, _ = pair_up(read_untested_rows(replace(benchmark, examples=rows), block))
            one_order = [paired[place + place // 2 % 2] for place in range(0, len(paired), 2)]
            drawn = draw_shots(one_order, VERDICT, options.examples, seed=config["seed"])
            chosen = {HALLUCINATED: FIRST, FAITHFUL: SECOND}
            shots = [replace(one, target=chosen[str(one.label)], meta={fields[1]: one.meta[OTHER]}) for one in drawn]
        asker, log_usage = load_asker(config, COMPARATIVE, shots)
        loaded = LoadedDetector(ComparingJudge(asker), [describe_judge(config)], log_usage)
        given, origin = predict_and_write(run, config, benchmark.name, rows, loaded)
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
    return write_benchmark_results(run, {benchmark.name: [report]}, config, benchmark.summary)


def pair_up(
    examples: Sequence[Example], num_pairs: int | None = None, *, seed: int = 0
) -> tuple[list[Example], list[str]]:
    """Pairs each hallucinated response with a faithful one to the same turn, and returns both orders, and notes.

    If a turn has several faithful responses, they are used in turn.

    Args:
        num_pairs: The largest number of pairs, drawn by the seed.
    """
    faithful: dict[tuple[Any, ...], list[Example]] = {}
    for example in examples:
        if example.label == FAITHFUL:
            faithful.setdefault(_turn_key(example), []).append(example)
    used: dict[tuple[Any, ...], int] = {}
    paired: list[Example] = []
    partners: dict[str, Example] = {}
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
        else:
            paired.append(example)
            partners[example.id] = partner
    drawn = paired if num_pairs is None else draw_examples(paired, num_pairs, seed)
    counts = {"have no faithful response to the same turn": unpaired, "equal the faithful response": equal}
    counts[f"are not drawn (num_rows={num_pairs}, seed={seed})"] = len(paired) - len(drawn)
    notes = [f"{number:,} hallucinated responses {what}: left out" for what, number in counts.items() if number]
    return [row for example in drawn for row in make_both_orders(partners[example.id], example)], notes


def _turn_key(example: Example) -> tuple[Any, ...]:
    """Returns the key that all responses to the same turn share."""
    return example.group, example.meta.get(PAIR), example.knowledge, example.history


def run_meta_judging(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the judgements, assesses them, and writes rates and agreement."""
    block = config["benchmark"]
    benchmark = read_benchmark({**block, "num_rows": None}, labelled=False)
    given = read_predictions(block["judgements"])
    found = [example for example in benchmark.examples if example.id in given]
    with_text = [example for example in found if given[example.id].text.strip()]
    parsed = [example for example in with_text if given[example.id].label != UNPARSED]
    # The paper leaves out judgements with the verdict faithful.
    is_limited = block["only_hallucinated"]
    chosen = [example for example in parsed if given[example.id].label == HALLUCINATED or not is_limited]
    counts = {
        "rows of the data have no judgement": len(benchmark.examples) - len(found),
        "judgements belong to no row of the data": len(given) - len(found),
        "judgements have no text": len(found) - len(with_text),
        "judgements have no verdict that can be parsed": len(with_text) - len(parsed),
        "judgements have the verdict faithful": len(parsed) - len(chosen),
    }
    if (num_rows := block["num_rows"]) is not None:
        drawn = draw_examples(chosen, num_rows, config["seed"])
        counts[f"judgements are not drawn (num_rows={num_rows}, seed={config['seed']})"] = len(chosen) - len(drawn)
        chosen = drawn
    notes = [f"{number:,} {what}: left out" for what, number in counts.items() if number]
    if not chosen:
        hint = "name the predictions of a judge with judge.ask=judgement on these rows"
        raise UserError("no judgement belongs to these rows", place=block["judgements"], hint=hint)
    judgements = {example.id: given[example.id].text for example in chosen}
    annotators = _read_annotators(block["labels"], {example.id for example in benchmark.examples}, judgements)
    if config["engine"]["name"]:
        options = AskOptions(**config["judge"])
        asker, log_usage = load_asker(config, META, find_shots(META.prompt, options, META.fields))
        rows = [(one, {"response": one.response, "judgement": judgements[one.id]}) for one in chosen]
        answers = list(asker.answers(rows, progress=True))
        log_usage()
        labels = {example.id: VERDICTS[answer.choice] for example, answer in zip(chosen, answers, strict=True)}
        path = run.predictions / f"{block['name']}.jsonl"  # in the format of the annotators' files
        write_annotations(path, labels, [{"score": answer.probability, "text": answer.text} for answer in answers])
        annotators["second_judge"] = labels
    if all(example.label for example in chosen):
        is_correct = {example.id: given[example.id].label == example.label for example in chosen}
        annotators[BY_LABEL] = {id_: ACCURATE if correct else INACCURATE for id_, correct in is_correct.items()}
    name = benchmark.name
    report = meta_report(
        chosen,
        judgements,
        annotators,
        reference=BY_LABEL,
        title=f"test/{name}",
        dataset="" if block["path"] == EMBEDDED else block["dataset"] or "",
        notes=notes,
        num_resamples=config["num_resamples"],
        num_examples=config["num_examples"],
    )
    return write_benchmark_results(run, {name: [report]}, config, benchmark.summary)


def _read_annotators(paths: Sequence[str], known: set[str], judged: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Reads each annotator's labels of the judged rows; annotators are named after their files.

    Raises:
        UserError: Two names are the same, an id is not in the data, or no row is judged.
    """
    stems = [Path(path).stem for path in paths]
    names = [
        stem if stems.count(stem) == 1 else f"{Path(path).parent.name}/{stem}"
        for stem, path in zip(stems, paths, strict=True)
    ]
    if len(set(names)) < len(names):
        raise UserError("two files of labels have the same name", place="benchmark.labels", hint="rename one of them")
    annotators: dict[str, dict[str, str]] = {}
    for name, path in zip(names, paths, strict=True):
        labels = read_annotations(path)
        if unknown := [id_ for id_ in labels if id_ not in known]:
            problem = f"{len(unknown):,} of {len(labels):,} ids are not in the data ({shorten(unknown[0], 40)}, ...)"
            hint = "label rows of the same data, by the ids in the file of judgements"
            raise UserError(problem, place=path, hint=hint)
        found = {id_: label for id_, label in labels.items() if id_ in judged}
        if not found:
            raise UserError("none of these labels belongs to a judged row", place=path, hint="raise benchmark.num_rows")
        annotators[name.replace("/", "-")] = found
    return annotators
