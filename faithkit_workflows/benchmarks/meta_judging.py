"""Meta-judging: a second judge, human annotators or both assess a judge's judgements, and their agreement is measured.

Follows HalluDial's section 3.2 and appendix D: annotators (two humans and a language model in the paper) decide for
each judgement whether its verdict, its location and its reason are correct.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_modules.build import read_benchmark
from faithkit.embedded_name import EMBEDDED
from faithkit.environment import environment
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import ACCURATE, INACCURATE, read_annotations, read_predictions, write_annotations
from faithkit.files.run_folder import RunFolder
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.judging_report import meta_report
from faithkit.reports.write_reports import EvaluationResult, write_run_results
from faithkit_workflows.detectors.llm_judge import load_asker
from judge.questions import META
from judge.reply import NO, YES

SECOND_JUDGE, BY_LABEL = "second_judge", "verdict_against_label"  # names of annotators, besides the files'
VERDICTS = {YES: ACCURATE, NO: INACCURATE, None: UNPARSED}
log = logging.getLogger("faithkit")


def run_meta_judging(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the judgements, assesses them, and writes rates and agreement."""
    block = config["benchmark"]
    benchmark = read_benchmark({**block, "num_rows": None}, labelled=False)
    given = read_predictions(block["judgements"])
    chosen, notes = choose_judged(benchmark.examples, given, only_hallucinated=block["only_hallucinated"])
    chosen = chosen[: block["num_rows"]]
    if not chosen:
        hint = "name the predictions of a judge with judge.ask=judgement on these rows"
        raise UserError("no judgement belongs to these rows", place=block["judgements"], hint=hint)
    judgements = {example.id: given[example.id].text for example in chosen}
    annotators = {
        name: _read_annotator(path, {example.id for example in benchmark.examples}, judgements)
        for name, path in _name_files(block["labels"]).items()
    }
    if config["engine"]["name"]:
        annotators[SECOND_JUDGE] = _judge(run, config, chosen, judgements)
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
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    return EvaluationResult(write_run_results(run, {name: [report]}, meta=meta))


def choose_judged(
    examples: Sequence[Example], given: Mapping[str, Prediction], *, only_hallucinated: bool
) -> tuple[list[Example], list[str]]:
    """Chooses the examples whose judgement has a text, and returns notes on the others.

    Args:
        only_hallucinated: Leaves out judgements with the verdict faithful, as the paper does.
    """
    found = [example for example in examples if example.id in given]
    with_text = [example for example in found if given[example.id].text.strip()]
    parsed = [example for example in with_text if given[example.id].label != UNPARSED]
    chosen = [example for example in parsed if given[example.id].label == HALLUCINATED or not only_hallucinated]
    counts = {
        "rows of the data have no judgement": len(examples) - len(found),
        "judgements belong to no row of the data": len(given) - len(found),
        "judgements have no text": len(found) - len(with_text),
        "judgements have no verdict that can be parsed": len(with_text) - len(parsed),
        "judgements have the verdict faithful": len(parsed) - len(chosen),
    }
    return chosen, [f"{number:,} {what}: left out" for what, number in counts.items() if number]


def _name_files(paths: Sequence[str]) -> dict[str, str]:
    """Names annotators after their files, with the folder where two files have the same name."""
    stems = [Path(path).stem for path in paths]
    names = [
        stem if stems.count(stem) == 1 else f"{Path(path).parent.name}/{stem}"
        for stem, path in zip(stems, paths, strict=True)
    ]
    if len(set(names)) < len(names):
        raise UserError("two files of labels have the same name", place="benchmark.labels", hint="rename one of them")
    return {name.replace("/", "-"): path for name, path in zip(names, paths, strict=True)}


def _read_annotator(path: str, known_ids: set[str], judged: Mapping[str, str]) -> dict[str, str]:
    """Reads the labels of one annotator for the judged rows.

    Raises:
        UserError: An id is not in the data, or no row is judged.
    """
    labels = read_annotations(path)
    if unknown := [id_ for id_ in labels if id_ not in known_ids]:
        problem = f"{len(unknown):,} of {len(labels):,} ids are not in the data ({shorten(unknown[0], 40)}, ...)"
        raise UserError(problem, place=path, hint="label rows of the same data, by the ids in the file of judgements")
    found = {id_: label for id_, label in labels.items() if id_ in judged}
    if not found:
        raise UserError("none of these labels belongs to a judged row", place=path, hint="raise benchmark.num_rows")
    return found


def _judge(
    run: RunFolder, config: Mapping[str, Any], examples: Sequence[Example], judgements: Mapping[str, str]
) -> dict[str, str]:
    """Runs the second judge, and writes its answers in the format of the annotators' files."""
    asker, log_usage = load_asker(config, META)
    rows = [(one, {"response": one.response, "judgement": judgements[one.id]}) for one in examples]
    answers = list(asker.answers(rows, progress=True))
    log_usage()
    labels = {example.id: VERDICTS[answer.choice] for example, answer in zip(examples, answers, strict=True)}
    path = run.predictions / f"{config['benchmark']['name']}.jsonl"
    write_annotations(path, labels, [{"score": answer.probability, "text": answer.text} for answer in answers])
    return labels
