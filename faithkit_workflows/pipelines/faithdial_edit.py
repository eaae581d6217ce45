"""Faithful edits of hallucinated replies (FaithDial, Dziri et al. 2022, section 2.2), proposed for people to accept.

Steps: the replies that the dataset's tags, or the critic, call hallucinated; for each model several candidates of an
edit, sampled with seeds of their own; each candidate checked by the critic and against copying and standing still. The
best of each reply goes into `proposals.csv`. A person fills in `accept` and `edit`, and the next run writes what was
accepted in FaithDial's layout.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from construction.chain.ask import Ask, Said
from construction.chain.chain_rows import HOLE, KEY, Row, hole, is_hole, without_holes
from construction.chain.replies import ReplyRules, cut_turns, is_refusal
from construction.chain.runner import AnyStep, Chain, Each, Source, Step
from construction.dialogues.turn_rows import DialogueTurns, history_of, last_turn
from construction.faithdial import write_faithdial
from construction.proposals import (
    FAILED,
    Answer,
    accepted_texts,
    beside_turns,
    best_proposals,
    checked,
    read_answers,
    write_proposals,
)
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import NUCLEUS, Decoding
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.pages.tables import escape_terminal, new_number_table, print_tables
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.words import apostrophe_content_words
from faithkit_workflows.pipelines.detecting import Detect
from faithkit_workflows.pipelines.models import writers_of
from faithkit_workflows.pipelines.run_chain import ask_step, run_chain
from faithkit_workflows.pipelines.written import OUTPUT

TURNS, FIND, PROPOSE, CHECK = "turns", "find", "propose", "check"
TAGS, DETECTOR, ALL = SELECTIONS = ("tags", "detector", "all")
SHEET, PREDICTIONS = "proposals.csv", "proposals.jsonl"
TAGGED = ("hallucination", "partial hallucination")
NOT_HALLUCINATED = "not hallucinated"
LEAST_SHARED = 2  # content words of the knowledge by which an edit that declines still says something
log = logging.getLogger("faithkit")


def run_faithdial_edit(run: RunFolder, config: Mapping[str, Any], build: Any = build_text_engine) -> None:
    """Proposes edits, takes in what people accepted, and writes both."""
    turns = HallucinatedTurns(config)
    steps = faithdial_edit_steps(config, turns, build)
    chain = run_chain(run, config, steps)
    if chain is None:
        return
    first = FIND if config["pipeline"]["which"] == DETECTOR else TURNS
    branches = [step.branch for step in steps if step.branch]

    def rows() -> Iterator[Row]:
        return beside_turns(chain.rows(first), best_proposals(chain.rows(CHECK), branches))

    sheet, answers = run.path / SHEET, {}
    if sheet.exists():
        answers = _answers(sheet, rows())
        accepted = accepted_texts(answers.values())
        counts = write_faithdial(run.path / OUTPUT, turns.turns.split, without_holes(chain.rows(first)), accepted)
        if counts:
            log.info("%s: %s", run.path / OUTPUT, ", ".join(f"{number:,} {name}" for name, number in counts.items()))
    listed = write_proposals(sheet, rows(), answers)
    # Proposals as predictions: the annotation pipeline shows their texts as edits to begin with.
    write_jsonl(
        run.predictions / PREDICTIONS, ({"id": r[KEY], "text": r["proposal"]} for r in rows() if "proposal" in r)
    )
    chain.manifest.result = _told(rows(), answers, chain, first)
    chain.manifest.write()
    log.info("written: %s, %s replies to look at", sheet, f"{listed - len(answers):,}")


class HallucinatedTurns:
    """The replies of a dataset that are to be edited.

    With `which=tags` those that FaithDial's BEGIN tags call hallucinated, in part or in full; otherwise all, and a step
    of the chain asks the critic. The tags speak of Wizard of Wikipedia's text, which is the reply that is edited.
    """

    def __init__(self, config: Mapping[str, Any]):
        self.block, self.limit = config["pipeline"], config["limit"]
        self.turns = DialogueTurns(self.block)

    def settings(self) -> dict[str, Any]:
        """Collects what the rows depend on."""
        by_tags = self.block["which"] == TAGS
        return {**self.turns.settings(), "limit": self.limit, "tagged_only": by_tags}

    def rows(self) -> Iterator[Row]:
        """Reads the rows."""
        report, number = ReadReport(self.block["on_bad_row"]), 0
        for example in read_examples(self.turns.dataset, self.turns.split, report):
            tagged = bool({tag.strip().lower() for tag in example.tags} & {*TAGGED})
            if self.block["which"] == TAGS and not tagged:
                report.count("not tagged as hallucinated" if example.tags else "without tags")
                continue
            yield edit_row(example)
            number += 1
            if number == self.limit:
                break
        counts = ", ".join(f"{name} {count:,}" for name, count in report.counts.items())
        log.info("%s: %s", self.turns.dataset.name, counts)
        if not number:
            from faithkit.errors import UserError

            hint = "pipeline.which=detector pipeline.detector=runs/..., or a dataset with BEGIN tags"
            raise UserError("no reply is tagged as hallucinated", place=self.turns.dataset.name, hint=hint)


def edit_row(example: Example) -> Row:
    """Makes the row of a reply: of the one that was there before people edited it, where they did."""
    return {
        KEY: example.id,
        "dialogue": example.group,
        "knowledge": example.knowledge,
        "history": [[turn.speaker, turn.text] for turn in example.history],
        "response": example.original or example.response,
        "begin": list(example.tags),
        "vrm": list(example.meta.get("vrm", ())),
    }


def faithdial_edit_steps(config: Mapping[str, Any], turns: HallucinatedTurns, build: Any) -> list[AnyStep]:
    """The steps: a branch for each model and candidate."""
    block, after = config["pipeline"], TURNS
    steps: list[AnyStep] = [Source(name=TURNS, read=turns.rows, settings=turns.settings())]
    if block["which"] == DETECTOR:
        steps.append(_detect(config, FIND, [TURNS], "response", _found))
        after = FIND
    fields = ("max_words", "knowledge", "history", "response")
    prompt = read_text_prompt("construction", "faithdial_edit", *fields, folder=config["prompts"])
    rules = {"max_words": block["max_words"], "language": block["language"]}
    branches = []
    for name, options in writers_of(config).items():
        for number in range(block["candidates"]):
            branch = f"{name}-{number + 1}"
            ask = propose(f"{PROPOSE}-{branch}", options, prompt, block, config["seed"] + number, build)
            branches.append(ask_step(ask, after=[after], branch=branch, **rules))
    most = block["max_copied_words"]
    check = _detect(
        config, CHECK, [step.name for step in branches], "proposal", lambda row, said: checked(row, most, said)
    )
    return [*steps, *branches, check]


def _detect(config: Mapping[str, Any], name: str, after: list[str], text: str, read: Any) -> Step:
    """Makes a step of the critic's; a dry run loads none, and neither does `detector=null`."""
    block = config["pipeline"]
    settings = {"max_copied_words": block["max_copied_words"]} if name == CHECK else {}
    if config["dry_run"]:
        return Step(name=name, work=Each(lambda row: row), after=tuple(after), settings=settings)
    if block["detector"] is None:
        return Step(name=name, work=Each(lambda row: read(row, None)), after=tuple(after), settings=settings)
    detect = Detect(path=block["detector"], text=text, read=read, labels=config["labels"])
    return Step(name=name, work=detect, after=tuple(after), settings={**settings, **detect.settings()})


def _found(row: Row, said: Prediction) -> Row:
    if said.label != HALLUCINATED:
        return hole(row[KEY], FIND, NOT_HALLUCINATED if said.label is not None else "no verdict")
    return {**row, "original_score": said.score}


def propose(
    step: str, options: EngineOptions, prompt: TextPrompt, block: Mapping[str, Any], seed: int, build: Any
) -> Ask:
    """Asks for an edit. To own that one does not know is a good edit where it goes on with what is known."""
    rules = ReplyRules(max_words=block["max_words"], language=block["language"], instruction=prompt.text)

    def values(row: Row) -> dict[str, str]:
        texts = {"knowledge": row["knowledge"], "history": history_of(row), "response": row["response"]}
        return {"max_words": str(block["max_words"]), **texts}

    def read(row: Row, said: Said) -> Row:
        text, was_cut = cut_turns(said.text)
        text = " ".join(text.split())
        shared = {*apostrophe_content_words(text)} & {*apostrophe_content_words(row["knowledge"])}
        may_decline = is_refusal(text) and len(shared) >= LEAST_SHARED
        finished = said.finished or was_cut
        fault = rules.fault(text, finished=finished, last_turn=last_turn(row), may_decline=may_decline)
        return hole(row[KEY], step, fault, said.text) if fault is not None else {**row, "proposal": text}

    return Ask(
        step=step,
        options=options,
        prompts={prompt.name: prompt},
        values=values,
        read=read,
        pretend=lambda row: {**row, "proposal": "(an edit)"},
        decoding=Decoding(
            strategy=NUCLEUS,
            top_p=block["top_p"],
            temperature=block["temperature"],
            max_new_tokens=block["max_new_tokens"],
            seed=seed,
        ),
        build=build,
    )


def _answers(sheet: Any, rows: Iterator[Row]) -> dict[str, Answer]:
    answers, strange = read_answers(sheet, {row[KEY]: row["response"] for row in rows})
    if strange:
        log.warning("%s: %d answers are about other turns, and are left out", sheet, strange)
    return answers


def _told(rows: Iterator[Row], answers: Mapping[str, Answer], chain: Chain, first: str) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    for row in chain.rows(first):
        kinds.update([f"replies left out: {row[HOLE]['why']}"] if is_hole(row) else [])
    for row in chain.rows(CHECK):
        if is_hole(row):
            kinds[f"candidates that failed: {row[HOLE]['why']}"] += row[HOLE]["step"] != FIND
        else:
            kinds["candidates"] += 1
            kinds.update(f"candidates with the fault: {fault}" for fault in row["faults"])
            kinds["candidates without fault"] += not row["faults"]
    for row in rows:
        kinds["replies to edit"] += 1
        kinds["replies without a proposal"] += FAILED in row
        kinds["replies whose proposal has no fault"] += FAILED not in row and not row["faults"]
    kinds["accepted"] = len(accepted_texts(answers.values()))
    kinds["turned down"] = len(answers) - kinds["accepted"]
    result = {name: number for name, number in sorted(kinds.items()) if number}
    table = new_number_table("proposals of edits", "", ["number"], show_edge=True)
    for name, number in result.items():
        table.add_row(Text(escape_terminal(name)), f"{number:,}")
    print_tables(table)
    return result
