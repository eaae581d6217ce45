"""Proposals of faithful edits (FaithDial, section 2.2), chosen among candidates and put before people.

A candidate has a fault where

- it is `unchanged`: it has the words of the original reply;
- it `copies`: more than `max_copied_words` words in a row stand in the knowledge too;
- the critic calls it `hallucinated`, or cannot tell (`unparsed`, `no verdict`).

The best one has the fewest faults, then the lowest score of the critic (P(hallucinated)), then the shortest copied run,
then the lowest number. One with faults is proposed too where there is none without: the table names them, and a person
decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from construction.chain.chain_rows import AT, KEY, NO_VERDICT, Row, hole_name, is_hole
from construction.dialogues.turn_rows import history_of
from construction.sheet import plain, read_sheet, write_sheet
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.records import FAITHFUL, Prediction
from faithkit.token_overlap import longest_run
from faithkit.words import apostrophe_words, unicode_words

UNCHANGED, COPIES, HALLUCINATED = "unchanged", "copies", "hallucinated"
FAILED = "failed"  # what became of candidates that are holes
COLUMNS = (
    *("turn", "knowledge", "history", "original", "proposal", "candidate"),
    *("score", "copied_words", "faults", "accept", "edit"),
)
ANSWERS = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}


def copied_words(text: str, knowledge: str) -> int:
    """Counts the words of the longest run that a text shares with its knowledge; case and punctuation do not count.

    >>> copied_words("I hear that oats hold more water.", "Oats hold more water, so the bread keeps.")
    4
    """
    return longest_run(apostrophe_words(text), apostrophe_words(knowledge))


def checked(row: Row, max_copied_words: int, said: Prediction | None) -> Row:
    """Adds to a candidate what was found about it: its copied run, the critic's verdict, and its faults."""
    copied = copied_words(row["proposal"], row["knowledge"])
    faults = [UNCHANGED] if unicode_words(row["proposal"]) == unicode_words(row["response"]) else []
    faults += [COPIES] if copied > max_copied_words else []
    added: dict[str, Any] = {"copied_words": copied}
    if said is not None:
        faults += [said.label or NO_VERDICT] if said.label != FAITHFUL else []
        added |= {"score": said.score, "verdict": said.label}
    return {**row, **added, "faults": faults}


def best_proposals(rows: Iterable[Row], branches: Sequence[str]) -> Iterator[Row]:
    """Chooses the best candidate of each turn; a turn whose candidates all failed has none, and says why.

    Args:
        rows: As a chain joins branches: the candidates of a turn follow each other, in the order of the branches.
        branches: The names of the candidates.
    """
    rest = iter(rows)
    while candidates := list(islice(rest, len(branches))):
        first = str(candidates[0][KEY])
        key = first.rpartition(AT)[0] if len(branches) > 1 else first  # a single branch is not joined
        usable = [(number, row) for number, row in enumerate(candidates) if not is_hole(row)]
        if usable:
            number, best = min(usable, key=lambda pair: _order(*pair))
            yield {**best, KEY: key, "candidate": branches[number], "candidates": len(usable)}
        else:
            yield {KEY: key, FAILED: list(dict.fromkeys(map(hole_name, candidates)))}


def _order(number: int, row: Row) -> tuple[int, float, int, int]:
    score = row.get("score")
    if score is None:  # of a judge that only says yes or no
        score = float(row.get("verdict", FAITHFUL) != FAITHFUL)
    return len(row["faults"]), score, row["copied_words"], number


class Answer(NamedTuple):
    """A person's answer about a turn: the text that stands from now on, or None where the proposal was turned down."""

    turn: str
    text: str | None


def write_proposals(path: Path, rows: Iterable[Row], known: Mapping[str, Answer]) -> int:
    """Writes the table, and what was answered before into it; counts its rows.

    Args:
        rows: Turns with or without a proposal, with the turn's own fields.
        known: Answers by turn.
    """
    return write_sheet(path, COLUMNS, (_line(row, known.get(row[KEY])) for row in rows))


def _line(row: Row, answer: Answer | None) -> dict[str, object]:
    line: dict[str, object] = {
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
        return line
    same = answer.text is not None and plain(answer.text) == plain(str(row.get("proposal") or ""))
    edit = "" if answer.text is None or same else answer.text
    return {**line, "accept": "no" if answer.text is None else "yes", "edit": edit}


def read_answers(path: Path, originals: Mapping[str, str]) -> tuple[dict[str, Answer], int]:
    """Reads what people answered; gives the answers by turn, and how many lines are about no turn of this run.

    `accept` is yes or no; an `edit` is accepted as it stands, also without a yes. A proposal that was changed in its
    own place counts as it stands in the table.

    Args:
        originals: The original reply of each turn: a line that has another one is about something else.

    Raises:
        UserError: An answer is neither yes nor no, a yes has no text, or a turn is answered twice.
    """
    found: dict[str, Answer] = {}
    strange = 0
    for place, cells in read_sheet(path, ("turn", "original", "proposal", "accept", "edit")):
        said, edit = cells["accept"].strip().lower(), plain(cells["edit"])
        if not said and not edit:
            continue
        if said and said not in ANSWERS:
            raise UserError(f"accept is {shorten(said)}", place=place, hint=choice_hint(said, ("yes", "no")))
        turn = cells["turn"]
        if turn not in originals or plain(cells["original"]) != plain(originals[turn]):
            strange += 1
            continue
        if turn in found:
            raise UserError(f"{shorten(turn)} is answered twice", place=place, hint="keep one of the lines")
        accepted = ANSWERS.get(said, True)
        text = edit or plain(cells["proposal"])
        if accepted and not text:
            raise UserError("accepted, and there is no proposal", place=place, hint="write one into edit")
        if accepted and text == plain(originals[turn]):
            raise UserError("the accepted text is the original reply", place=place, hint="edit it, or accept=no")
        found[turn] = Answer(turn, text if accepted else None)
    return found, strange


def accepted_texts(answers: Iterable[Answer]) -> dict[str, str]:
    """Collects the texts that stand from now on, by turn."""
    return {answer.turn: answer.text for answer in answers if answer.text is not None}


def beside_turns(turns: Iterable[Row], proposals: Iterable[Row]) -> Iterator[Row]:
    """Puts each turn's own fields beside its proposal, or beside the reasons why it has none."""
    for turn, proposal in zip(turns, proposals, strict=True):
        assert turn[KEY] == proposal[KEY], "both have the same turns in the same order"
        if not is_hole(turn):
            yield {**turn, **proposal}
