"""Judges the judgements of a judge: by a second judge, by people, or by both, and how far they agree.

As in HalluDial's section 3.2 and appendix D: annotators, two people and a language model there, say of each judgement
whether verdict, place and reason are right.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_modules.build import read_benchmark
from faithkit.embedded_name import EMBEDDED
from faithkit.environment import environment
from faithkit.errors import UserError, shorten
from faithkit.files.annotations import ACCURATE, INACCURATE, read_annotations, write_annotations
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.judging import meta_report
from faithkit.reports.write_reports import EvaluationResult, write_run_results
from faithkit_workflows.detectors.judging import load_asker
from judge.choosing import META
from judge.reply import NO, YES

JUDGE, BY_LABEL = "second_judge", "verdict_against_label"  # names of annotators, beside those of the files
VERDICTS = {YES: ACCURATE, NO: INACCURATE, None: UNPARSED}
log = logging.getLogger("faithkit")


def run_meta_judging(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the judgements, has them judged, and writes rates and agreement."""
    block = config["benchmark"]
    benchmark = read_benchmark({**block, "num_rows": None}, labelled=False)
    given = read_predictions(block["judgements"])
    chosen, notes = choose_judged(benchmark.examples, given, only_hallucinated=block["only_hallucinated"])
    chosen = chosen[: block["num_rows"]]
    if not chosen:
        hint = "name the predictions of a judge that was asked with judge.ask=judgement, on these rows"
        raise UserError("no judgement is of these rows", place=block["judgements"], hint=hint)
    judgements = {example.id: given[example.id].text for example in chosen}
    annotators = {
        name: _read_people(path, {example.id for example in benchmark.examples}, judgements)
        for name, path in _named(block["labels"]).items()
    }
    if config["engine"]["name"]:
        annotators[JUDGE] = _ask(run, config, chosen, judgements)
    if all(example.label for example in chosen):
        right = {example.id: given[example.id].label == example.label for example in chosen}
        annotators[BY_LABEL] = {id_: ACCURATE if one else INACCURATE for id_, one in right.items()}
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
    """Chooses the examples that have a judgement in words; gives notes on the others.

    Args:
        only_hallucinated: Leaves out judgements that call a response faithful, as the paper does.
    """
    found = [example for example in examples if example.id in given]
    with_words = [example for example in found if given[example.id].text.strip()]
    read = [example for example in with_words if given[example.id].label != UNPARSED]
    chosen = [example for example in read if given[example.id].label == HALLUCINATED or not only_hallucinated]
    left = {
        "rows of the data have no judgement": len(examples) - len(found),
        "judgements belong to no row of the data": len(given) - len(found),
        "judgements have no words": len(found) - len(with_words),
        "judgements have no readable verdict": len(with_words) - len(read),
        "judgements say faithful": len(read) - len(chosen),
    }
    return chosen, [f"{number:,} {what}: left out" for what, number in left.items() if number]


def _named(paths: Sequence[str]) -> dict[str, str]:
    """Names the files of people: a file's own, with its folder's where two have the same."""
    stems = [Path(path).stem for path in paths]
    names = [
        stem if stems.count(stem) == 1 else f"{Path(path).parent.name}/{stem}"
        for stem, path in zip(stems, paths, strict=True)
    ]
    if len(set(names)) < len(names):
        raise UserError("two files of labels have one name", place="benchmark.labels", hint="rename one of them")
    return {name.replace("/", "-"): path for name, path in zip(names, paths, strict=True)}


def _read_people(path: str, known: set[str], judged: Mapping[str, str]) -> dict[str, str]:
    """Reads the labels of one annotator for the rows that are judged.

    Raises:
        UserError: An id that the data do not have, or none that is judged.
    """
    labels = read_annotations(path)
    if unknown := [id_ for id_ in labels if id_ not in known]:
        problem = f"{len(unknown):,} of {len(labels):,} ids are of no row of the data ({shorten(unknown[0], 40)}, ...)"
        raise UserError(
            problem, place=path, hint="label rows of the same data: their ids stand in the judgements' file"
        )
    found = {id_: label for id_, label in labels.items() if id_ in judged}
    if not found:
        raise UserError("none of these labels is of a row that is judged", place=path, hint="raise benchmark.num_rows")
    return found


def _ask(
    run: RunFolder, config: Mapping[str, Any], examples: Sequence[Example], judgements: Mapping[str, str]
) -> dict[str, str]:
    """Has the second judge judge, and writes what it said in the form that people's labels have."""
    asker, tell = load_asker(config, META)
    rows = [(one, {"response": one.response, "judgement": judgements[one.id]}) for one in examples]
    answers = list(asker.answers(rows, progress=True))
    tell()
    labels = {example.id: VERDICTS[answer.choice] for example, answer in zip(examples, answers, strict=True)}
    path = run.predictions / f"{config['benchmark']['name']}.jsonl"
    write_annotations(path, labels, [{"score": answer.probability, "text": answer.text} for answer in answers])
    return labels
