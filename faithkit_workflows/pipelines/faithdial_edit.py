"""Faithful edits of hallucinated replies (FaithDial, Dziri et al. 2022, section 2.2), proposed for people to accept.

Steps: select the replies that the dataset's tags, or the critic, call hallucinated; sample several candidate edits from
each model; check each candidate with the critic and against copying. The best candidate of each reply goes into
`proposals.csv`. A person fills in `accept` and `edit`, and the next run writes what was accepted in FaithDial's layout.

A candidate has a fault if

- it is `unchanged`: it has the words of the original reply;
- it `copies`: it shares more than `max_copied_words` consecutive words with the knowledge;
- the critic calls it `hallucinated`, or gives no verdict (`unparsed`, `no verdict`).

The best one has the fewest faults, then the lowest score of the critic (P(hallucinated)), then the shortest copied run,
then the lowest number. Without a faultless candidate the best one is proposed too: the table lists its faults, and a
person decides.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from construction.ask import Ask, ModelReply, ReplyRules, cut_turns, is_refusal
from construction.labels import normalize_spaces, read_sheet, write_sheet
from construction.official_layouts import write_faithdial
from construction.steps import (
    AT,
    FAILURE,
    KEY,
    NO_VERDICT,
    Each,
    Row,
    RowFailed,
    Step,
    Work,
    batched,
    failure_names,
    is_failed,
    usable_rows,
)
from construction.turns import DialogueTurns, history_of, last_turn, turn_row, turn_values
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.inference.text import NUCLEUS, Decoding
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.words import apostrophe_content_words, apostrophe_words, longest_run, unicode_words
from faithkit_workflows.pipelines.run_chain import OUTPUT, Detect, build_model, print_counts, run_chain, writers_of

UNCHANGED, COPIES = "unchanged", "copies"
FAILED = "failed"  # field of a turn without a proposal: why its candidates failed
COLUMNS = (
    *("turn", "knowledge", "history", "original", "proposal", "candidate"),
    *("score", "copied_words", "faults", "accept", "edit"),
)
ANSWERS = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}
TURNS, FIND, PROPOSE, CHECK = "turns", "find", "propose", "check"
TAGS, DETECTOR = "tags", "detector"  # values of `which`
SHEET, PREDICTIONS = "proposals.csv", "proposals.jsonl"
TAGGED = ("hallucination", "partial hallucination")
Answers = dict[str, str | None]  # by turn: the accepted text, or None if the proposal was rejected
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
        """Reads the usable turns, each with its proposal or with the reasons why it has none."""
        for turn, proposal in zip(chain.rows(first), best_proposals(chain.rows(CHECK), branches), strict=True):
            assert turn[KEY] == proposal[KEY], "both have the same turns in the same order"
            if not is_failed(turn):
                yield {**turn, **proposal}

    sheet, answers = run.path / SHEET, Answers()
    if sheet.exists():
        answers, num_unknown = read_answers(sheet, {row[KEY]: row["response"] for row in rows()})
        if num_unknown:
            log.warning("%s: %d answers are about other turns, and are left out", sheet, num_unknown)
        accepted = {turn: text for turn, text in answers.items() if text is not None}
        counts = write_faithdial(run.path / OUTPUT, turns.split, usable_rows(chain.rows(first)), accepted)
        if counts:
            log.info("%s: %s", run.path / OUTPUT, ", ".join(f"{number:,} {name}" for name, number in counts.items()))
    num_proposals = write_sheet(sheet, COLUMNS, (sheet_cells(row, answers) for row in rows()))
    # As predictions, so that the annotation pipeline can suggest them as edits.
    predictions = ({"id": row[KEY], "text": row["proposal"]} for row in rows() if "proposal" in row)
    write_jsonl(run.predictions / PREDICTIONS, predictions)
    counted: Counter[str] = Counter()
    for row in chain.rows(first):
        counted.update([f"replies left out: {row[FAILURE]['why']}"] if is_failed(row) else [])
    for row in chain.rows(CHECK):
        if is_failed(row):
            counted[f"candidates that failed: {row[FAILURE]['why']}"] += row[FAILURE]["step"] != FIND
        else:
            counted["candidates"] += 1
            counted.update(f"candidates with the fault: {fault}" for fault in row["faults"])
            counted["candidates without fault"] += not row["faults"]
    for row in rows():
        counted["replies to edit"] += 1
        counted["replies without a proposal"] += FAILED in row
        counted["replies whose proposal has no fault"] += FAILED not in row and not row["faults"]
    counted.update("turned down" if text is None else "accepted" for text in answers.values())
    chain.manifest.result = result = {name: number for name, number in sorted(counted.items()) if number}
    print_counts("proposals of edits", "", result)
    chain.manifest.write()
    log.info("written: %s, %s replies to review", sheet, f"{num_proposals - len(answers):,}")


def edit_row(example: Example) -> Row:
    """Makes the row of a reply; of an edited reply that of its original."""
    given = {"begin": list(example.tags), "vrm": list(example.meta.get("vrm", ()))}
    return {**turn_row(example), "response": example.original or example.response, **given}


def faithdial_edit_steps(config: Mapping[str, Any], turns: DialogueTurns) -> list[Step]:
    """Makes the steps: a branch for each model and candidate."""
    block, after = config["pipeline"], TURNS
    steps: list[Step] = [turns.as_step(TURNS)]
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
        raise RowFailed("not hallucinated" if prediction.label is not None else NO_VERDICT)
    return {**row, "original_score": prediction.score}


def _read_edit(row: Row, reply: ModelReply, rules: ReplyRules) -> Row:
    """Reads an edit. Admitting ignorance is a good edit if the reply continues with what is known, in two words."""
    text, was_cut = cut_turns(reply.text)
    text = " ".join(text.split())
    shared = {*apostrophe_content_words(text)} & {*apostrophe_content_words(row["knowledge"])}
    may_decline = is_refusal(text) and len(shared) >= 2
    finished = reply.finished or was_cut
    fault = rules.fault(text, finished=finished, last_turn=last_turn(row), may_decline=may_decline)
    if fault is not None:
        raise RowFailed(fault, reply.text)
    return {**row, "proposal": text}


def check_candidate(row: Row, prediction: Prediction | None, *, max_copied_words: int) -> Row:
    """Adds to a candidate the length of the run that it copies, the critic's verdict, and its faults."""
    copied = longest_run(apostrophe_words(row["proposal"]), apostrophe_words(row["knowledge"]))
    faults = [UNCHANGED] if unicode_words(row["proposal"]) == unicode_words(row["response"]) else []
    faults += [COPIES] if copied > max_copied_words else []
    added: dict[str, Any] = {"copied_words": copied}
    if prediction is not None:
        faults += [prediction.label or NO_VERDICT] if prediction.label != FAITHFUL else []
        added |= {"score": prediction.score, "verdict": prediction.label}
    return {**row, **added, "faults": faults}


def best_proposals(rows: Iterable[Row], branches: Sequence[str]) -> Iterator[Row]:
    """Chooses the best candidate of each turn; a turn without a valid candidate gets the reasons.

    Args:
        rows: As a chain joins branches: the candidates of a turn follow each other, in the order of the branches.
        branches: The names of the candidates.
    """
    for candidates in batched(rows, len(branches)):
        first = str(candidates[0][KEY])
        key = first.rpartition(AT)[0] if len(branches) > 1 else first  # a single branch has plain keys
        ranks = []
        for number, row in enumerate(candidates):
            if not is_failed(row):
                score = row.get("score")
                if score is None:  # of a judge that gives labels only
                    score = float(row.get("verdict", FAITHFUL) != FAITHFUL)
                ranks.append((len(row["faults"]), score, row["copied_words"], number))
        if ranks:
            best = min(ranks)[-1]
            yield {**candidates[best], KEY: key, "candidate": branches[best], "candidates": len(ranks)}
        else:
            yield {KEY: key, FAILED: list(dict.fromkeys(name for row in candidates for name in failure_names(row)))}


def sheet_cells(row: Row, answers: Answers) -> dict[str, object]:
    """Makes the cells of a turn, with or without a proposal, and with the answer so far."""
    cells: dict[str, object] = {
        "turn": row[KEY],
        "knowledge": row["knowledge"],
        "history": history_of(row),
        "original": row["response"],
        "proposal": row.get("proposal"),
        "candidate": row.get("candidate"),
        "score": None if row.get("score") is None else f"{row['score']:.3f}",
        "copied_words": row.get("copied_words"),
        "faults": ", ".join(row[FAILED] if FAILED in row else row["faults"]),
    }
    if row[KEY] not in answers:
        return cells
    if (text := answers[row[KEY]]) is None:
        return {**cells, "accept": "no", "edit": ""}
    is_proposal = normalize_spaces(text) == normalize_spaces(str(row.get("proposal") or ""))
    return {**cells, "accept": "yes", "edit": "" if is_proposal else text}


def read_answers(path: Path, originals: Mapping[str, str]) -> tuple[Answers, int]:
    """Reads the answers by turn, and counts the lines that are about no turn of this run.

    `accept` is yes or no. An `edit` is accepted, also without a yes. A proposal that was changed in the table counts as
    changed.

    Args:
        originals: The original reply of each turn; a line with another original is about another turn.

    Raises:
        UserError: An answer is neither yes nor no, a yes has no text, or a turn is answered twice.
    """
    answers: Answers = {}
    num_unknown = 0
    for place, cells in read_sheet(path, ("turn", "original", "proposal", "accept", "edit")):
        accept, edit = cells["accept"].strip().lower(), normalize_spaces(cells["edit"])
        if not accept and not edit:
            continue
        if accept and accept not in ANSWERS:
            raise UserError(f"accept is {shorten(accept)}", place=place, hint=choice_hint(accept, ("yes", "no")))
        turn = cells["turn"]
        if turn not in originals or normalize_spaces(cells["original"]) != normalize_spaces(originals[turn]):
            num_unknown += 1
            continue
        if turn in answers:
            raise UserError(f"{shorten(turn)} is answered twice", place=place, hint="keep one of the lines")
        accepted = ANSWERS.get(accept, True)
        text = edit or normalize_spaces(cells["proposal"])
        if accepted and not text:
            raise UserError("accepted, and there is no proposal", place=place, hint="write one into edit")
        if accepted and text == normalize_spaces(originals[turn]):
            raise UserError("the accepted text is the original reply", place=place, hint="edit it, or accept=no")
        answers[turn] = text if accepted else None
    return answers, num_unknown
