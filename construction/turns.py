"""Asks the two sides of a self-dialogue for their turns, and decides when a dialogue ends.

A row holds its turns in a list: those of A at the even places, those of B at the odd ones. A system prompt gives each
side its role and topic. An assistant under test is prompted as in use: in a chat, with A as the user. A model that
plays a person reads the conversation as one text with names, and is asked for this person's next turn: in a chat it
would act as the assistant it was trained to be.

A dialogue ends early if

- `said goodbye`: A says goodbye, and B has replied to it;
- `repeats itself`: a turn repeats an earlier one, or itself;
- `refusal`: A declines to go on, or B declines twice in a row (once can be the right answer);
- a turn is empty, in another language, over the limit, cut off, or repeats the prompt (construction/ask.py).

Its complete rounds are kept if there are enough, and `ended` says why it ended; otherwise the row fails.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from construction.ask import CUT, ECHO, TOO_LONG, Ask, ModelReply, ReplyRules, cut_turns, is_refusal
from construction.steps import KEY, Row, RowFailed, Step
from data_modules.build import build_source
from data_modules.datasets.diahalu import CHAT, KNOWLEDGE, ONLY_B_JUDGED, REASONING, TASK
from data_modules.reading.dataset import Source, content_hash, read_examples, resolve_split
from data_modules.reading.dialogues import write_history
from data_modules.reading.fields import WIZARD
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import ASSISTANT, SYSTEM, USER, Message
from faithkit.records import Example, Turn
from faithkit.words import unicode_words

SIDES = A, B = ("A", "B")
# The names of A and B in the conversation that a model playing a person reads; the prompts use them too.
SPEAKER_NAMES = {
    KNOWLEDGE: ("Person", "Assistant"),
    TASK: ("Customer", "Assistant"),
    CHAT: ("Sam", "Kim"),
    REASONING: ("Ann", "Ben"),
}
GOODBYE, REPEATS = "said goodbye", "repeats itself"
RUN_LENGTH = 3  # words; two turns are compared by their runs
MIN_SHARED_RUNS = 0.8  # share of runs by which two turns are the same
MIN_WORDS = 4  # of a repetition: "Yes, please." may occur twice
MIN_CONTAINED_RUNS = 10  # of an earlier turn that may not be repeated within a longer one
MAX_SAME_RUNS = 3  # times that a run may occur in one turn
_NAMED = "|".join(sorted({name for names in SPEAKER_NAMES.values() for name in names}))
_SPEAKER = rf"(?i:(?:the )?\[?(?:human|user|system|{_NAMED})\]?)|[AB][ \t]*\d{{0,4}}"
_MARK = re.compile(rf"(?:^|\n)[ \t*]*(?:{_SPEAKER})[ \t*]*[:：][ \t*]*")
ROLES = {A: USER, B: ASSISTANT}
QUOTES = ('""', "“”")
_GOODBYE = re.compile(
    r"\b(?:good ?bye|bye(?: bye)?|farewell|see you|take care|talk to you (?:later|soon)|good night|"
    r"have an? (?:\w+ )?(?:day|evening|night|week|weekend|time|trip|journey|stay)|"
    r"that(?:'s| is) (?:all|everything)|nothing else|no(?:thing)? more questions)\b",
    re.IGNORECASE,
)
log = logging.getLogger("faithkit")


def side_of(place: int) -> str:
    """Names the speaker of the turn at a place."""
    return SIDES[place % 2]


def turn_name(place: int) -> str:
    """Names a turn as DiaHalu does: A1, B1, A2, ..."""
    return f"{side_of(place)}{place // 2 + 1}"


def read_turn(text: str) -> tuple[str, bool]:
    """Cuts a reply to one turn in one line.

    Returns:
        The turn, and whether further ones were cut off.

    >>> read_turn("A2: How deep is it?\\nB2: Very deep.")
    ('How deep is it?', True)
    """
    turn, was_cut = cut_turns(text)
    if (found := _MARK.match(turn)) is not None:
        turn = turn[found.end() :]
    if (found := _MARK.search(turn)) is not None:
        turn, was_cut = turn[: found.start()], True
    turn = " ".join(turn.split())
    is_quoted = len(turn) > 2 and turn[0] + turn[-1] in QUOTES and not any(mark in turn[1:-1] for mark in '"“”')
    return (turn[1:-1].strip() if is_quoted else turn), was_cut


def says_goodbye(text: str) -> bool:
    """Checks whether a turn says goodbye; one with a question does not."""
    return "?" not in text and bool(_GOODBYE.search(text.replace("’", "'")))


def repeats(text: str, earlier: Sequence[str], same_speaker: Sequence[str] = ()) -> bool:
    """Checks whether a turn repeats an earlier one, or itself.

    Args:
        same_speaker: The earlier turns of its speaker: a long one that it contains nearly whole is repeated too.
    """
    words = unicode_words(text)
    if len(words) < MIN_WORDS:
        return False
    runs = _runs(words)
    if max(runs.values()) > MAX_SAME_RUNS:
        return True
    for other in (_runs(unicode_words(turn)) for turn in earlier):
        if len(runs.keys() & other.keys()) >= MIN_SHARED_RUNS * len(runs.keys() | other.keys()):
            return True
    for other in (_runs(unicode_words(turn)) for turn in same_speaker):
        if len(other) >= MIN_CONTAINED_RUNS and len(runs.keys() & other.keys()) >= MIN_SHARED_RUNS * len(other):
            return True
    return False


def _runs(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + RUN_LENGTH]) for i in range(max(1, len(words) - RUN_LENGTH + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueRules:
    """Rules for the turns and the length of a dialogue.

    Args:
        by_domain: The rules for single turns.
        min_rounds: The complete rounds of a dialogue that is kept though it ended early.
        heading: The prompt's text before the conversation: a turn that contains it repeats the prompt.
    """

    by_domain: Mapping[str, ReplyRules]
    min_rounds: int
    heading: str = ""

    def add_turn(self, row: Row, reply: ModelReply) -> Row:
        """Adds a turn to a dialogue, or ends it.

        Raises:
            RowFailed: It ends too early.
        """
        turns: list[str] = row["turns"]
        place = len(turns)
        text, was_cut = read_turn(reply.text)
        same_speaker = turns[place % 2 :: 2]
        may_decline = side_of(place) == B and not (same_speaker and is_refusal(same_speaker[-1]))
        last, rules = turns[-1] if turns else "", self.by_domain[row["domain"]]
        finished = reply.finished or was_cut
        fault = rules.fault(text, finished=finished, last_turn=last, may_decline=may_decline)
        # A turn that repeats itself is often also too long: the repetition is the reason.
        if fault in (None, TOO_LONG, CUT) and repeats(text, turns, same_speaker):
            fault = REPEATS
        elif fault is None and self.heading and self.heading in text:
            fault = ECHO
        if fault is not None:
            num_rounds = place // 2  # complete ones
            if num_rounds < self.min_rounds:
                raise RowFailed(fault, reply.text)
            ended = {"turn": turn_name(place), "why": fault, "said": reply.text}
            return {**row, "turns": turns[: 2 * num_rounds], "ended": ended}
        added = {**row, "turns": [*turns, text]}
        if was_cut:
            added["cut"] = [*row.get("cut", []), turn_name(place)]
        if side_of(place) == A:
            if says_goodbye(text) and place // 2 + 1 < self.min_rounds:
                raise RowFailed(GOODBYE, text)
            return added
        if is_refusal(text):
            added["refused"] = [*row.get("refused", []), turn_name(place)]
        if says_goodbye(turns[-1]):
            added["ended"] = {"turn": turn_name(place - 1), "why": GOODBYE}
        return added


@dataclass(kw_only=True)
class AskTurn(Ask):
    """Asks one side of each dialogue for the turn at a place; dialogues that have it, or have ended, pass through.

    Args:
        place: Of the turn, from 0.
        next_turn: The prompt for a model that plays a person.
    """

    place: int
    next_turn: TextPrompt

    def settings(self) -> dict[str, Any]:
        """Collects what the replies depend on."""
        return {**super().settings(), "next_turn": self.next_turn.fingerprint}

    def pretend(self, row: Row) -> Row:
        """Adds a turn as if the model had replied."""
        return {**row, "turns": [*row["turns"], f"(what {side_of(self.place)} says)"]}

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Writes the conversation as this side sees it."""
        side, domain, turns = side_of(self.place), row["domain"], row["turns"]
        system = Message(SYSTEM, self.prompts[domain].fill(**self.values(row)))
        if side == B and domain in ONLY_B_JUDGED:
            return (system, *(Message(ROLES[side_of(place)], text) for place, text in enumerate(turns)))
        names = dict(zip(SIDES, SPEAKER_NAMES[domain], strict=True))
        history = "\n".join(f"{names[side_of(place)]}: {text}" for place, text in enumerate(turns))
        return (system, Message(USER, self.next_turn.fill(history=history, name=names[side])))

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields the dialogues that pass through, then the others in the order of the replies."""
        due = []
        for row in rows:
            if len(row["turns"]) == self.place and "ended" not in row:
                due.append(row)
            else:
                yield row
        if due:
            yield from super().run(due)


class DialogueTurns:
    """Reads the turns of a block `{dataset, path, split, options}`, one row each.

    Args:
        limit: Reads only the first turns.
        make_row: Makes the row of a turn.
        tags: Reads only turns with one of these tags.
    """

    def __init__(
        self,
        block: Mapping[str, Any],
        limit: int | None = None,
        *,
        make_row: Callable[[Example], Row] | None = None,
        tags: Collection[str] = (),
    ):
        self.block, self.limit, self.make_row, self.tags = block, limit, make_row or turn_row, tags
        self.dataset: Source = build_source(
            block["dataset"], block["path"], embedded_rows=block["embedded_rows"], **block["options"]
        )
        self.split = resolve_split(self.dataset, block["split"])

    def as_step(self, name: str) -> Step:
        """Makes the first step of a chain; its settings have the options, and the files' content."""
        content = content_hash(self.dataset, self.split)
        settings = {"dataset": self.dataset.name, "split": self.split, "limit": self.limit, "content": content}
        return Step(name=name, read=self.rows, settings={**settings, "tags": list(self.tags)})

    def rows(self) -> Iterator[Row]:
        """Reads the rows.

        Raises:
            UserError: No turn has one of the tags.
        """
        report = ReadReport(self.block["on_bad_row"])
        number = 0
        for example in read_examples(self.dataset, self.split, report):
            if self.tags and not {tag.strip().lower() for tag in example.tags} & {*self.tags}:
                report.count("not tagged as hallucinated" if example.tags else "without tags")
                continue
            yield self.make_row(example)
            number += 1
            if number == self.limit:
                break
        log.info("%s: %s", self.dataset.name, ", ".join(f"{name} {count:,}" for name, count in report.counts.items()))
        if self.tags and not number:
            hint = "pipeline.which=detector pipeline.detector=runs/..., or a dataset with BEGIN tags"
            raise UserError("no reply is tagged as hallucinated", place=self.dataset.name, hint=hint)


def turn_row(example: Example) -> Row:
    """Makes the row of a turn; its reference is the response that the dataset calls correct."""
    return {
        KEY: example.id,
        "dialogue": example.group,
        "turn": sum(turn.speaker == WIZARD for turn in example.history),
        "knowledge": example.knowledge,
        "history": [[turn.speaker, turn.text] for turn in example.history],
        "reference": example.reference or example.response,
    }


def history_of(row: Row, between: str = "\n") -> str:
    """Writes the history of a row."""
    return write_history([Turn(speaker=speaker, text=text) for speaker, text in row["history"]], between)


def turn_values(row: Row, **others: str) -> dict[str, str]:
    """Gives the texts of a row for a prompt, and further values."""
    texts: dict[str, str] = {name: row[name] for name in ("knowledge", "reference", "response") if name in row}
    return {**texts, "history": history_of(row), **others}


def last_turn(row: Row) -> str:
    """Gives the text of the last turn."""
    return str(row["history"][-1][1]) if row["history"] else ""
