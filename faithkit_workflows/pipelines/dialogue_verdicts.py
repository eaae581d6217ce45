"""Verdicts of a model on self-dialogues: hallucinated or not, and on request the first round and its type.

The output has them in fields that name the model, next to the empty fields of human labels. Their chain is in
`verdicts/`; it reads the current dialogues, so that edited ones are judged again.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from construction.chain.ask import Ask, Build, ModelReply, sampling
from construction.chain.chain import sign
from construction.chain.steps import KEY, NO_VERDICT, AnyStep, Row, RowFailed, Source, Step, is_failed, usable_rows
from construction.official_layouts import VERDICT, dialogue_text
from data_modules.datasets.diahalu import ONLY_B_JUDGED, TYPES
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.records import HALLUCINATED, UNPARSED, Prediction
from faithkit_workflows.pipelines.judgements import Detect, require_verdict
from faithkit_workflows.pipelines.run_chain import annotator_of, run_chain
from judge.reply import CHOICES, read_verdict

FOLDER, DIALOGUES, JUDGE = "verdicts", "dialogues", "judge"
ONLY_B, BOTH = "Only the turns of B are checked: A stands for a person.", "The turns of A and of B are checked."
_ROUND = re.compile(r"\bround\s*[AB]?\s*(\d{1,3})\b", re.IGNORECASE)
_TYPE = re.compile("|".join(name.replace(" ", "[ _-]?").replace("-", "[ _-]?") for name in TYPES), re.IGNORECASE)
_TYPE_BY_LETTERS = {re.sub("[^a-z]", "", name): name for name in TYPES}


def is_judged(block: Mapping[str, Any]) -> bool:
    """Checks whether a configuration has the dialogues judged."""
    return bool(block["judge"] or block["detector"])


def verdict_step(config: Mapping[str, Any], build: Build, *after: str) -> Step:
    """Makes the step in which a language model, or a detector, judges each dialogue."""
    path = config["pipeline"]["detector"]

    def read(row: Row, prediction: Prediction) -> Row:
        require_verdict(prediction)
        verdict = {"label": prediction.label, "by": f"detector {path}", "why": prediction.text}
        return {**row, VERDICT: verdict | ({} if prediction.score is None else {"score": prediction.score})}

    detect = Detect(path=path, text="text", read=read, labels=config["labels"]) if path else None
    return Step(name=JUDGE, work=detect or _ask_for_verdict(config, build), after=after)


def judge_dialogues(
    run: RunFolder, config: Mapping[str, Any], rows: Callable[[], Iterator[Row]], build: Build
) -> Callable[[], Iterator[Row]]:
    """Judges the dialogues; returns a reader of the same rows with their verdicts.

    Args:
        rows: Reads the dialogues, failed ones included.
    """

    def inputs() -> Iterator[Row]:
        for row in usable_rows(rows()):  # with the fields of an example, for a detector
            yield {**row, "dialogue": row[KEY], "knowledge": "", "history": [], "text": dialogue_text(row)}

    digest = sign([[row[KEY], row["text"]] for row in inputs()])
    source = Source(name=DIALOGUES, read=inputs, settings={"dialogues": digest})
    chain = run_chain(run.stage(FOLDER), config, [source, verdict_step(config, build, DIALOGUES)])
    assert chain is not None, "a dry run has no dialogues"

    def with_verdicts() -> Iterator[Row]:
        judged = chain.rows(JUDGE)
        for row in rows():
            found = row if is_failed(row) else next(judged)
            yield {**row, VERDICT: found[VERDICT]} if VERDICT in found else row

    return with_verdicts


def _ask_for_verdict(config: Mapping[str, Any], build: Build) -> Ask:
    block = config["pipeline"]
    name = "self_verdict_types" if block["judge_types"] else "self_verdict"
    prompt = read_text_prompt("construction", name, "judged", "dialogue", folder=config["prompts"])

    def values(row: Row) -> dict[str, str]:
        return {"judged": ONLY_B if row["domain"] in ONLY_B_JUDGED else BOTH, "dialogue": dialogue_text(row)}

    def read(row: Row, reply: ModelReply) -> Row:
        label, added = read_verdict(reply.text), {}
        if label == UNPARSED and reply.likeliest:
            label, added = read_verdict(reply.likeliest), {"weighed": True, "score": reply.probabilities[CHOICES[0]]}
        if label == UNPARSED:
            raise RowFailed(NO_VERDICT, reply.text)
        verdict = {"label": label, "by": f"model {block['judge']}", "why": reply.text.strip(), **added}
        if label == HALLUCINATED and block["judge_types"]:
            verdict |= read_place(reply.text, len(row["turns"]) // 2)
        return {**row, VERDICT: verdict}

    return Ask(
        options=replace(annotator_of(config), model=block["judge"]),
        prompts={"": prompt},
        values=values,
        read=read,
        decoding=sampling(0, block["max_judgement_tokens"], 0),
        build=build,
        choices=CHOICES if block["weigh_verdicts"] else (),
    )


def read_place(text: str, num_rounds: int) -> dict[str, Any]:
    """Reads round and type of the first hallucination, each only if it is named and valid.

    >>> read_place("Yes. Round 2, Non-factual: the lake is deeper.", num_rounds=6)
    {'round': 2, 'type': 'non-factual'}
    """
    found: dict[str, Any] = {}
    if (number := _ROUND.search(text)) and 1 <= int(number[1]) <= num_rounds:
        found["round"] = int(number[1])
    if kind := _TYPE.search(text):
        found["type"] = _TYPE_BY_LETTERS[re.sub("[^a-z]", "", kind[0].lower())]
    return found


def steps_to_show(config: Mapping[str, Any], steps: list[AnyStep], build: Build, last: list[str]) -> list[AnyStep]:
    """Adds the judging of whole dialogues to the steps that a dry run shows."""
    shown = config["dry_run"] and is_judged(config["pipeline"])
    return [*steps, verdict_step(config, build, *last)] if shown else steps
