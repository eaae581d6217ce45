"""Faithful edits of hallucinated replies (FaithDial, Dziri et al. 2022, section 2.2), proposed for people to accept.

Steps: select the replies that the dataset's tags, or the critic, call hallucinated; sample several candidate edits from
each model; check each candidate with the critic and against copying. The best candidate of each reply goes into
`proposals.csv`. A person fills in `accept` and `edit`, and the next run writes what was accepted in FaithDial's layout.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from construction.chain.ask import Ask, ModelReply
from construction.chain.chain import Chain
from construction.chain.replies import ReplyRules, cut_turns, is_refusal
from construction.chain.steps import (
    FAILURE,
    KEY,
    NO_VERDICT,
    AnyStep,
    Each,
    Row,
    RowFailed,
    Step,
    Work,
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
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import NUCLEUS, Decoding
from faithkit.inference.prompts import read_text_prompt
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.words import apostrophe_content_words
from faithkit_workflows.pipelines.judgements import Detect
from faithkit_workflows.pipelines.run_chain import OUTPUT, build_model, print_counts, run_chain, writers_of

TURNS, FIND, PROPOSE, CHECK = "turns", "find", "propose", "check"
TAGS, DETECTOR = "tags", "detector"  # values of `which`
SHEET, PREDICTIONS = "proposals.csv", "proposals.jsonl"
TAGGED = ("hallucination", "partial hallucination")
NOT_HALLUCINATED = "not hallucinated"
MIN_SHARED = 2  # content words of the knowledge that an edit which declines must contain
log = logging.getLogger("faithkit")


def run_faithdial_edit(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Proposes edits, reads what people accepted, and writes both."""
    # The tags are about the text of Wizard of Wikipedia, which is the reply that is edited.
    tags = TAGGED if config["pipeline"]["which"] == TAGS else ()
    turns = DialogueTurns(config["pipeline"], config["limit"], make_row=edit_row, tags=tags)
    steps = faithdial_edit_steps(config, turns)
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
        counts = write_faithdial(run.path / OUTPUT, turns.split, usable_rows(chain.rows(first)), accepted)
        if counts:
            log.info("%s: %s", run.path / OUTPUT, ", ".join(f"{number:,} {name}" for name, number in counts.items()))
    num_proposals = write_proposals(sheet, rows(), answers)
    # As predictions, so that the annotation pipeline can suggest them as edits.
    predictions = ({"id": row[KEY], "text": row["proposal"]} for row in rows() if "proposal" in row)
    write_jsonl(run.predictions / PREDICTIONS, predictions)
    chain.manifest.result = _summarize(rows(), answers.values(), chain, first)
    chain.manifest.write()
    log.info("written: %s, %s replies to review", sheet, f"{num_proposals - len(answers):,}")


def edit_row(example: Example) -> Row:
    """Makes the row of a reply; of an edited reply that of its original."""
    given = {"begin": list(example.tags), "vrm": list(example.meta.get("vrm", ()))}
    return {**turn_row(example), "response": example.original or example.response, **given}


def faithdial_edit_steps(config: Mapping[str, Any], turns: DialogueTurns) -> list[AnyStep]:
    """Makes the steps: a branch for each model and candidate."""
    block, after = config["pipeline"], TURNS
    steps: list[AnyStep] = [turns.as_source(TURNS)]
    if block["which"] == DETECTOR:
        steps.append(Step(name=FIND, work=_detector(config, "response", _find_hallucinated), after=(TURNS,)))
        after = FIND
    fields = ("max_words", "knowledge", "history", "response")
    prompt = read_text_prompt("construction", "faithdial_edit", *fields, folder=config["prompts"])
    limits = {"max_words": block["max_words"], "language": block["language"]}
    rules = ReplyRules(**limits, instruction=prompt.text)
    candidates = []
    for name, options in writers_of(config).items():
        for number in range(block["candidates"]):
            decoding = Decoding(
                strategy=NUCLEUS,
                top_p=block["top_p"],
                temperature=block["temperature"],
                max_new_tokens=block["max_new_tokens"],
                seed=config["seed"] + number,
            )
            work = Ask(
                options=options,
                prompts={"": prompt},
                values=partial(turn_values, max_words=str(block["max_words"])),
                read=partial(_read_edit, rules=rules),
                pretended={"proposal": "(an edit)"},
                decoding=decoding,
                build=build_model,
            )
            branch = f"{name}-{number + 1}"
            step = Step(name=f"{PROPOSE}-{branch}", work=work, after=(after,), branch=branch, settings=limits)
            candidates.append(step)
    max_copied = block["max_copied_words"]
    check = _detector(config, "proposal", partial(check_candidate, max_copied_words=max_copied))
    names = tuple(step.name for step in candidates)
    settings = {"max_copied_words": max_copied}
    return [*steps, *candidates, Step(name=CHECK, work=check, after=names, settings=settings)]


def _detector(config: Mapping[str, Any], text: str, read: Callable[..., Row]) -> Work:
    """Makes the work of the critic; a dry run and `detector=null` load none."""
    path = config["pipeline"]["detector"]
    if config["dry_run"] or path is None:
        return Each((lambda row: row) if config["dry_run"] else (lambda row: read(row, None)))
    return Detect(path=path, text=text, read=read, labels=config["labels"])


def _find_hallucinated(row: Row, prediction: Prediction) -> Row:
    if prediction.label != HALLUCINATED:
        raise RowFailed(NOT_HALLUCINATED if prediction.label is not None else NO_VERDICT)
    return {**row, "original_score": prediction.score}


def _read_edit(row: Row, reply: ModelReply, rules: ReplyRules) -> Row:
    """Reads an edit. Admitting ignorance is a good edit if the reply continues with what is known."""
    text, was_cut = cut_turns(reply.text)
    text = " ".join(text.split())
    shared = {*apostrophe_content_words(text)} & {*apostrophe_content_words(row["knowledge"])}
    may_decline = is_refusal(text) and len(shared) >= MIN_SHARED
    finished = reply.finished or was_cut
    fault = rules.fault(text, finished=finished, last_turn=last_turn(row), may_decline=may_decline)
    if fault is not None:
        raise RowFailed(fault, reply.text)
    return {**row, "proposal": text}


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
