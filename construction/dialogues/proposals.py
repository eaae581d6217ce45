"""Proposals of faithful edits (FaithDial, section 2.2), chosen among candidates and reviewed by people.

A candidate has a fault if

- it is `unchanged`: it has the words of the original reply;
- it `copies`: it shares more than `max_copied_words` consecutive words with the knowledge;
- the critic calls it `hallucinated`, or gives no verdict (`unparsed`, `no verdict`).

The best one has the fewest faults, then the lowest score of the critic (P(hallucinated)), then the shortest copied run,
then the lowest number. Without a faultless candidate the best one is proposed too: the table lists its faults, and a
person decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from construction.chain.steps import AT, KEY, NO_VERDICT, Row, failure_name, is_failed
from construction.dialogues.dialogue_turns import history_of
from construction.sheet import normalize_spaces, read_sheet, write_sheet
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.records import FAITHFUL, Prediction
from faithkit.token_overlap import longest_run
from faithkit.words import apostrophe_words, unicode_words

UNCHANGED, COPIES = "unchanged", "copies"
FAILED = "failed"  # field of a turn without a proposal: why its candidates failed
COLUMNS = (
    *("turn", "knowledge", "history", "original", "proposal", "candidate"),
    *("score", "copied_words", "faults", "accept", "edit"),
)
ANSWERS = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}


def copied_words(text: str, knowledge: str) -> int:
    """Counts the words of the longest run that a text shares with its knowledge, ignoring case and punctuation.

    >>> copied_words("I hear that oats hold more water.", "Oats hold more water, so the bread keeps.")
    4
    """
    return longest_run(apostrophe_words(text), apostrophe_words(knowledge))


def check_candidate(row: Row, prediction: Prediction | None, *, max_copied_words: int) -> Row:
    """Adds to a candidate its copied run, the critic's verdict, and its faults."""
    copied = copied_words(row["proposal"], row["knowledge"])
    faults = [UNCHANGED] if unicode_words(row["proposal"]) == unicode_words(row["response"]) else []
    faults += [COPIES] if copied > max_copied_words else []
    added: dict[str, Any] = {"copied_words": copied}
    if prediction is not None:
        faults += [prediction.label or NO_VERDICT] if prediction.label != FAITHFUL else []
        added |= {"score": prediction.score, "verdict": prediction.label}
    return {**row, **added, "faults": faults}


def best_proposals(rows: Iterable[Row], branches: Sequence[str]) -> Iterator[Row]:
    """Chooses the best candidate of each turn; a turn whose candidates all failed gets the reasons.

    Args:
        rows: As a chain joins branches: the candidates of a turn follow each other, in the order of the branches.
        branches: The names of the candidates.
    """
    rest = iter(rows)
    while candidates := list(islice(rest, len(branches))):
        first = str(candidates[0][KEY])
        key = first.rpartition(AT)[0] if len(branches) > 1 else first  # a single branch has plain keys
        usable = [(number, row) for number, row in enumerate(candidates) if not is_failed(row)]
        if usable:
            number, best = min(usable, key=lambda pair: _sort_key(*pair))
            yield {**best, KEY: key, "candidate": branches[number], "candidates": len(usable)}
        else:
            yield {KEY: key, FAILED: list(dict.fromkeys(map(failure_name, candidates)))}


def _sort_key(number: int, row: Row) -> tuple[int, float, int, int]:
    score = row.get("score")
    if score is None:  # of a judge that gives labels only
        score = float(row.get("verdict", FAITHFUL) != FAITHFUL)
    return len(row["faults"]), score, row["copied_words"], number


def join_proposals(turns: Iterable[Row], proposals: Iterable[Row]) -> Iterator[Row]:
    """Joins each usable turn with its proposal, or with the reasons why it has none."""
    for turn, proposal in zip(turns, proposals, strict=True):
        assert turn[KEY] == proposal[KEY], "both have the same turns in the same order"
        if not is_failed(turn):
            yield {**turn, **proposal}


class Answer(NamedTuple):
    """A person's answer about a turn: the accepted text, or None if the proposal was rejected."""

    turn: str
    text: str | None


def write_proposals(path: Path, rows: Iterable[Row], answers: Mapping[str, Answer]) -> int:
    """Writes the table with the answers so far, and counts its rows.

    Args:
        rows: Turns with or without a proposal.
        answers: By turn.
    """
    return write_sheet(path, COLUMNS, (_cells(row, answers.get(row[KEY])) for row in rows))


def _cells(row: Row, answer: Answer | None) -> dict[str, object]:
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
    if answer is None:
        return cells
    if answer.text is None:
        return {**cells, "accept": "no", "edit": ""}
    is_proposal = normalize_spaces(answer.text) == normalize_spaces(str(row.get("proposal") or ""))
    return {**cells, "accept": "yes", "edit": "" if is_proposal else answer.text}


def read_answers(path: Path, originals: Mapping[str, str]) -> tuple[dict[str, Answer], int]:
    """Reads the answers by turn, and counts the lines that are about no turn of this run.

    `accept` is yes or no. An `edit` is accepted, also without a yes. A proposal that was changed in the table counts as
    changed.

    Args:
        originals: The original reply of each turn; a line with another original is about another turn.

    Raises:
        UserError: An answer is neither yes nor no, a yes has no text, or a turn is answered twice.
    """
    answers: dict[str, Answer] = {}
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
        answers[turn] = Answer(turn, text if accepted else None)
    return answers, num_unknown


def accepted_texts(answers: Iterable[Answer]) -> dict[str, str]:
    """Collects the accepted texts by turn."""
    return {answer.turn: answer.text for answer in answers if answer.text is not None}
