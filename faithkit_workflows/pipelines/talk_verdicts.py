"""Verdicts of a model on self-dialogues: hallucinated or not, and where it is asked the first round and its type.

They are a model's: the file has them in fields of their own, beside the empty ones of people. The chain of them stands
under `verdicts/` and reads the dialogues as they are now, so that edited ones are judged anew.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from construction.chain.ask import Ask, Said, sampling
from construction.chain.chain_rows import KEY, NO_VERDICT, Row, hole, is_hole, without_verdict
from construction.chain.engine_pool import Build
from construction.chain.manifest import sign
from construction.chain.runner import AnyStep, Chain, Source, Step
from construction.diahalu import VERDICT, dialogue_text
from data_modules.datasets.diahalu import ONLY_B_JUDGED, TYPES
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.records import HALLUCINATED, UNPARSED, Prediction
from faithkit_workflows.pipelines.detecting import Detect
from faithkit_workflows.pipelines.models import annotator_of
from faithkit_workflows.pipelines.run_chain import ask_step, run_chain
from judge.reply import CHOICES, read_verdict

FOLDER, DIALOGUES, JUDGE = "verdicts", "dialogues", "judge"
# What the configurations of older runs do not have.
DEFAULTS = {"judge": None, "judge_types": False, "weigh_verdicts": False, "max_judgement_tokens": 100, "detector": None}
ONLY_B, BOTH = "Only the turns of B are checked: A stands for a person.", "The turns of A and of B are checked."
_ROUND = re.compile(r"\bround\s*[AB]?\s*(\d{1,3})\b", re.IGNORECASE)
_TYPE = re.compile("|".join(name.replace(" ", "[ _-]?").replace("-", "[ _-]?") for name in TYPES), re.IGNORECASE)
_BY_LETTERS = {re.sub("[^a-z]", "", name): name for name in TYPES}


def is_judged(block: Mapping[str, Any]) -> bool:
    """Tells whether a configuration has the dialogues judged."""
    return bool(block.get("judge") or block.get("detector"))


def verdict_step(config: Mapping[str, Any], build: Build, *after: str) -> Step:
    """The step that has a language model, or a detector of ours, judge each dialogue."""
    block = {**DEFAULTS, **config["pipeline"]}
    if block["detector"]:
        path, labels = block["detector"], config["labels"]
        work = Detect(path=path, text="text", read=lambda row, said: _detected(row, said, path), labels=labels)
        return Step(name=JUDGE, work=work, settings={} if config["dry_run"] else work.settings(), after=after)
    return ask_step(_asking(config, block, build), after=after)


def judge_talks(
    run: RunFolder, config: Mapping[str, Any], rows: Callable[[], Iterator[Row]], build: Build
) -> Callable[[], Iterator[Row]]:
    """Judges the dialogues; gives a reader of the same rows, those with a verdict carrying it.

    Args:
        rows: Reads the dialogues, holes among them.
    """

    def told() -> Iterator[Row]:
        for row in rows():
            if not is_hole(row):
                own = {"dialogue": row[KEY], "knowledge": "", "history": []}  # as a detector reads an example
                yield {**row, **own, "text": dialogue_text(row)}

    digest = sign([[row[KEY], row["text"]] for row in told()])
    source = Source(name=DIALOGUES, read=told, settings={"dialogues": digest})
    chain = run_chain(run.stage(FOLDER), config, [source, verdict_step(config, build, DIALOGUES)])
    assert isinstance(chain, Chain), "a dry run has no dialogues"

    def with_verdicts() -> Iterator[Row]:
        judged = chain.rows(JUDGE)
        for row in rows():
            found = row if is_hole(row) else next(judged)
            yield {**row, VERDICT: found[VERDICT]} if VERDICT in found else row

    return with_verdicts


def _asking(config: Mapping[str, Any], block: Mapping[str, Any], build: Build) -> Ask:
    name = "self_verdict_types" if block["judge_types"] else "self_verdict"
    prompt = read_text_prompt("construction", name, "judged", "dialogue", folder=config["prompts"])

    def values(row: Row) -> dict[str, str]:
        return {"judged": ONLY_B if row["domain"] in ONLY_B_JUDGED else BOTH, "dialogue": dialogue_text(row)}

    def read(row: Row, said: Said) -> Row:
        label, added = read_verdict(said.text), {}
        if label == UNPARSED and said.likeliest:
            label, added = read_verdict(said.likeliest), {"weighed": True, "score": said.probabilities[CHOICES[0]]}
        if label == UNPARSED:
            return hole(row[KEY], JUDGE, NO_VERDICT, said.text)
        found = {"label": label, "by": f"model {block['judge']}", "why": said.text.strip(), **added}
        if label == HALLUCINATED and block["judge_types"]:
            found |= first_place(said.text, len(row["turns"]) // 2)
        return {**row, VERDICT: found}

    return Ask(
        step=JUDGE,
        options=replace(annotator_of(config), model=block["judge"]),
        prompts={prompt.name: prompt},
        values=values,
        read=read,
        pretend=lambda row: row,
        decoding=sampling(0, block["max_judgement_tokens"], 0),
        build=build,
        choices=CHOICES if block["weigh_verdicts"] else (),
    )


def first_place(text: str, rounds: int) -> dict[str, Any]:
    """Reads round and type of the first hallucination; what is not named, or is no round of the dialogue, is left out.

    >>> first_place("Yes. Round 2, Non-factual: the lake is deeper.", rounds=6)
    {'round': 2, 'type': 'non-factual'}
    """
    found: dict[str, Any] = {}
    if (number := _ROUND.search(text)) and 1 <= int(number[1]) <= rounds:
        found["round"] = int(number[1])
    if kind := _TYPE.search(text):
        found["type"] = _BY_LETTERS[re.sub("[^a-z]", "", kind[0].lower())]
    return found


def _detected(row: Row, found: Prediction, path: str) -> Row:
    if found.label in (None, UNPARSED):
        return without_verdict(row, JUDGE, found)
    verdict = {"label": found.label, "by": f"detector {path}", "why": found.text}
    return {**row, VERDICT: verdict | ({} if found.score is None else {"score": found.score})}


def steps_to_show(config: Mapping[str, Any], steps: list[AnyStep], build: Build, last: list[str]) -> list[AnyStep]:
    """Adds the judging of whole dialogues to the steps that a dry run shows."""
    shown = config["dry_run"] and is_judged(config["pipeline"])
    return [*steps, verdict_step(config, build, *last)] if shown else steps
