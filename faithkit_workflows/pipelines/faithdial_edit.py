"""Faithful edits of hallucinated replies (FaithDial, Dziri et al. 2022, section 2.2), proposed for people to accept.

Steps: select the replies that the dataset's tags, or the critic, call hallucinated; sample several candidate edits from
each model; check each candidate with the critic and against copying. The best candidate of each reply goes into
`proposals.csv`. A person fills in `accept` and `edit`, and the next run writes what was accepted in FaithDial's layout.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from construction.chain.ask import Ask, Build, ModelReply
from construction.chain.chain import Chain
from construction.chain.replies import ReplyRules, cut_turns, is_refusal
from construction.chain.steps import (
    FAILURE,
    KEY,
    NO_VERDICT,
    AnyStep,
    Each,
    Row,
    Source,
    Step,
    failed_row,
    is_failed,
    usable_rows,
)
from construction.dialogues.dialogue_turns import DialogueTurns, last_turn, turn_row, turn_values
from construction.dialogues.proposals import (
    FAILED,
    Answer,
    accepted_texts,
    best_proposals,
    check_candidate,
    join_proposals,
    read_answers,
    write_proposals,
)
from construction.official_layouts import write_faithdial
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import NUCLEUS, Decoding
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.words import apostrophe_content_words
from faithkit_workflows.pipelines.judgements import Detect
from faithkit_workflows.pipelines.run_chain import OUTPUT, print_counts, run_chain, writers_of

TURNS, FIND, PROPOSE, CHECK = "turns", "find", "propose", "check"
TAGS, DETECTOR = "tags", "detector"  # values of `which`
SHEET, PREDICTIONS = "proposals.csv", "proposals.jsonl"
TAGGED = ("hallucination", "partial hallucination")
NOT_HALLUCINATED = "not hallucinated"
MIN_SHARED = 2  # content words of the knowledge that an edit which declines must contain
log = logging.getLogger("faithkit")


def run_faithdial_edit(run: RunFolder, config: Mapping[str, Any], build: Build = build_text_engine) -> None:
    """Proposes edits, reads what people accepted, and writes both."""
    turns = HallucinatedTurns(config)
    steps = faithdial_edit_steps(config, turns, build)
    chain = run_chain(run, config, steps)
    if chain is None:
        return
    first = FIND if config["pipeline"]["which"] == DETECTOR else TURNS
    branches = [step.branch for step in steps if step.branch]

    def rows() -> Iterator[Row]:
        return join_proposals(chain.rows(first), best_proposals(chain.rows(CHECK), branches))

    sheet, answers = run.path / SHEET, dict[str, Answer]()
    if sheet.exists():
        answers, num_unknown = read_answers(sheet, {row[KEY]: row["response"] for row in rows()})
        if num_unknown:
            log.warning("%s: %d answers are about other turns, and are left out", sheet, num_unknown)
        accepted = accepted_texts(answers.values())
        counts = write_faithdial(run.path / OUTPUT, turns.turns.split, usable_rows(chain.rows(first)), accepted)
        if counts:
            log.info("%s: %s", run.path / OUTPUT, ", ".join(f"{number:,} {name}" for name, number in counts.items()))
    num_proposals = write_proposals(sheet, rows(), answers)
    # As predictions, so that the annotation pipeline can suggest them as edits.
    predictions = ({"id": row[KEY], "text": row["proposal"]} for row in rows() if "proposal" in row)
    write_jsonl(run.predictions / PREDICTIONS, predictions)
    chain.manifest.result = _summarize(rows(), answers.values(), chain, first)
    chain.manifest.write()
    log.info("written: %s, %s replies to review", sheet, f"{num_proposals - len(answers):,}")


class HallucinatedTurns:
    """The replies of a dataset that are to be edited.

    With `which=tags` those that FaithDial's BEGIN tags call hallucinated, partly or fully; otherwise all, and a step of
    the chain asks the critic. The tags are about the text of Wizard of Wikipedia, which is the reply that is edited.
    """

    def __init__(self, config: Mapping[str, Any]):
        self.block, self.limit = config["pipeline"], config["limit"]
        self.turns = DialogueTurns(self.block)

    def settings(self) -> dict[str, Any]:
        """Collects what the rows depend on."""
        return {**self.turns.settings(), "limit": self.limit, "tagged_only": self.block["which"] == TAGS}

    def rows(self) -> Iterator[Row]:
        """Reads the rows."""
        report, number = ReadReport(self.block["on_bad_row"]), 0
        for example in read_examples(self.turns.dataset, self.turns.split, report):
            if self.block["which"] == TAGS and not {tag.strip().lower() for tag in example.tags} & {*TAGGED}:
                report.count("not tagged as hallucinated" if example.tags else "without tags")
                continue
            yield edit_row(example)
            number += 1
            if number == self.limit:
                break
        counts = ", ".join(f"{name} {count:,}" for name, count in report.counts.items())
        log.info("%s: %s", self.turns.dataset.name, counts)
        if not number:
            hint = "pipeline.which=detector pipeline.detector=runs/..., or a dataset with BEGIN tags"
            raise UserError("no reply is tagged as hallucinated", place=self.turns.dataset.name, hint=hint)


def edit_row(example: Example) -> Row:
    """Makes the row of a reply; of an edited reply that of its original."""
    given = {"begin": list(example.tags), "vrm": list(example.meta.get("vrm", ()))}
    return {**turn_row(example), "response": example.original or example.response, **given}


def faithdial_edit_steps(config: Mapping[str, Any], turns: HallucinatedTurns, build: Build) -> list[AnyStep]:
    """Makes the steps: a branch for each model and candidate."""
    block, after = config["pipeline"], TURNS
    steps: list[AnyStep] = [Source(name=TURNS, read=turns.rows, settings=turns.settings())]
    if block["which"] == DETECTOR:
        steps.append(_detect_step(config, FIND, [TURNS], "response", _find_hallucinated))
        after = FIND
    fields = ("max_words", "knowledge", "history", "response")
    prompt = read_text_prompt("construction", "faithdial_edit", *fields, folder=config["prompts"])
    candidates = [
        _propose_step(config, f"{name}-{number + 1}", options, prompt, config["seed"] + number, after, build)
        for name, options in writers_of(config).items()
        for number in range(block["candidates"])
    ]
    max_copied = block["max_copied_words"]

    def check(row: Row, prediction: Prediction | None) -> Row:
        return check_candidate(row, max_copied, prediction)

    names = [step.name for step in candidates]
    return [*steps, *candidates, _detect_step(config, CHECK, names, "proposal", check, max_copied_words=max_copied)]


def _detect_step(
    config: Mapping[str, Any],
    name: str,
    after: Sequence[str],
    text: str,
    read: Callable[[Row, Any], Row],
    **settings: Any,
) -> Step:
    """Makes a step of the critic; a dry run and `detector=null` load none."""
    path = config["pipeline"]["detector"]
    if config["dry_run"] or path is None:
        work = Each((lambda row: row) if config["dry_run"] else (lambda row: read(row, None)))
        return Step(name=name, work=work, after=tuple(after), settings=settings)
    detect = Detect(path=path, text=text, read=read, labels=config["labels"])
    return Step(name=name, work=detect, after=tuple(after), settings={**settings, **detect.settings()})


def _find_hallucinated(row: Row, prediction: Prediction) -> Row:
    if prediction.label != HALLUCINATED:
        return failed_row(row[KEY], FIND, NOT_HALLUCINATED if prediction.label is not None else NO_VERDICT)
    return {**row, "original_score": prediction.score}


def _propose_step(
    config: Mapping[str, Any],
    branch: str,
    options: EngineOptions,
    prompt: TextPrompt,
    seed: int,
    after: str,
    build: Build,
) -> Step:
    """Asks for an edit. Admitting ignorance is a good edit if the reply continues with what is known."""
    block, step = config["pipeline"], f"{PROPOSE}-{branch}"
    limits = {"max_words": block["max_words"], "language": block["language"]}
    rules = ReplyRules(**limits, instruction=prompt.text)

    def read(row: Row, reply: ModelReply) -> Row:
        text, was_cut = cut_turns(reply.text)
        text = " ".join(text.split())
        shared = {*apostrophe_content_words(text)} & {*apostrophe_content_words(row["knowledge"])}
        may_decline = is_refusal(text) and len(shared) >= MIN_SHARED
        finished = reply.finished or was_cut
        fault = rules.fault(text, finished=finished, last_turn=last_turn(row), may_decline=may_decline)
        return failed_row(row[KEY], step, fault, reply.text) if fault is not None else {**row, "proposal": text}

    return Ask(
        step=step,
        options=options,
        prompts={prompt.name: prompt},
        values=partial(turn_values, max_words=str(block["max_words"])),
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
    ).as_step(after=[after], branch=branch, **limits)


def _summarize(rows: Iterator[Row], answers: Iterable[Answer], chain: Chain, first: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in chain.rows(first):
        counts.update([f"replies left out: {row[FAILURE]['why']}"] if is_failed(row) else [])
    for row in chain.rows(CHECK):
        if is_failed(row):
            counts[f"candidates that failed: {row[FAILURE]['why']}"] += row[FAILURE]["step"] != FIND
        else:
            counts["candidates"] += 1
            counts.update(f"candidates with the fault: {fault}" for fault in row["faults"])
            counts["candidates without fault"] += not row["faults"]
    for row in rows:
        counts["replies to edit"] += 1
        counts["replies without a proposal"] += FAILED in row
        counts["replies whose proposal has no fault"] += FAILED not in row and not row["faults"]
    for answer in answers:
        counts["accepted" if answer.text is not None else "turned down"] += 1
    result = {name: number for name, number in sorted(counts.items()) if number}
    print_counts("proposals of edits", "", result)
    return result
