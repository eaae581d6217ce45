"""The turns of a self-dialogue: asking either side for the next one, and telling when a dialogue is at its end.

A row holds its turns in a list: A's stand at the even places, B's at the odd ones. Each side sees the conversation as a
chat of its own: what it said is the assistant's part, what the other said the user's, under a system prompt that tells
its role and topic.

A dialogue ends before its rounds are full where

- `said goodbye`: A takes leave, and B has replied to it;
- `repeats itself`: a turn says again what its speaker said before, or goes in circles within itself;
- `refusal`: A declines to go on, or B declines twice in a row: once is an answer, and a right one where nobody can know;
- a turn is empty, in another language, over the limit, cut off, or repeats the prompt (construction/replies.py).

Its whole rounds stay where they are enough, and `ended` says why it ended; else the row becomes a hole.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from construction.ask import Ask, Said
from construction.replies import CUT, TOO_LONG, ReplyRules, cut_turns, is_refusal
from construction.rows import KEY, TRIES, Row, hole
from faithkit.inference.text import ASSISTANT, SYSTEM, USER, Message
from faithkit.words import unicode_words

SIDES = A, B = ("A", "B")
GOODBYE, REPEATS = "said goodbye", "repeats itself"
RUN = 3  # words in a row by which two turns are compared
SAME = 0.8  # of these runs, by which two turns say the same
LEAST_WORDS = 4  # of a turn that can repeat another: "Yes, please." may stand twice
CIRCLE = 4  # times that a run stands in a turn that goes in circles
_SPEAKER = r"(?i:\[?(?:human|user|assistant|customer|system|person [ab]|speaker [ab])\]?)|[AB][ \t]*\d{0,4}"
_MARK = re.compile(rf"(?:^|\n)[ \t*]*(?:{_SPEAKER})[ \t*]*[:：][ \t*]*")
_GOODBYE = re.compile(
    r"\b(?:good ?bye|bye(?: bye)?|farewell|see you|take care|talk to you (?:later|soon)|good night|"
    r"have an? (?:\w+ )?(?:day|evening|night|week|weekend|time|trip|journey|stay)|"
    r"that(?:'s| is) (?:all|everything)|nothing else|no(?:thing)? more questions)\b",
    re.IGNORECASE,
)


def side_of(place: int) -> str:
    """Names who says the turn at a place."""
    return SIDES[place % 2]


def turn_name(place: int) -> str:
    """Names a turn as DiaHalu does: A1, B1, A2, ..."""
    return f"{side_of(place)}{place // 2 + 1}"


def own_turn(text: str) -> tuple[str, bool]:
    """Cuts what a model wrote to one turn in one line; tells whether it wrote further ones.

    >>> own_turn("A2: How deep is it?\\nB2: Very deep.")
    ('How deep is it?', True)
    """
    said, was_cut = cut_turns(text)
    if (found := _MARK.match(said)) is not None:
        said = said[found.end() :]
    if (found := _MARK.search(said)) is not None:
        said, was_cut = said[: found.start()], True
    return " ".join(said.split()), was_cut


def says_goodbye(text: str) -> bool:
    """Tells whether a turn takes leave; one that asks something does not."""
    return "?" not in text and bool(_GOODBYE.search(text.replace("’", "'")))


def repeats(text: str, earlier: Sequence[str]) -> bool:
    """Tells whether a turn says again what one of the earlier ones says, or goes in circles."""
    words = unicode_words(text)
    if len(words) < LEAST_WORDS:
        return False
    runs = _runs(words)
    if max(runs.values()) >= CIRCLE:
        return True
    others = (_runs(unicode_words(other)) for other in earlier)
    return any(len(runs.keys() & other.keys()) >= SAME * len(runs.keys() | other.keys()) for other in others)


def _runs(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + RUN]) for i in range(max(1, len(words) - RUN + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkRules:
    """What a dialogue must not do, and how long it lasts.

    Args:
        by_domain: The rules of single turns.
        min_rounds: Whole rounds of a dialogue that is kept though it ended early.
    """

    by_domain: Mapping[str, ReplyRules]
    min_rounds: int

    def add(self, row: Row, said: Said, step: str) -> Row:
        """Adds a turn to a dialogue, or ends it; a dialogue that ends too early is a hole."""
        turns: list[str] = row["turns"]
        place = len(turns)
        text, was_cut = own_turn(said.text)
        fault = self._fault(row, text, said.finished or was_cut)
        if fault is not None:
            return self._end(row, fault, said.text, step)
        added = {**row, "turns": [*turns, text]}
        if was_cut:
            added["cut"] = [*row.get("cut", []), turn_name(place)]
        if side_of(place) == A:
            whole = place // 2 + 1
            early = says_goodbye(text) and whole < self.min_rounds
            return hole(row[KEY], step, GOODBYE, text) if early else added
        if is_refusal(text):
            added["refused"] = [*row.get("refused", []), turn_name(place)]
        if says_goodbye(turns[-1]):
            added["ended"] = {"turn": turn_name(place - 1), "why": GOODBYE}
        return added

    def _fault(self, row: Row, text: str, finished: bool) -> str | None:
        turns: list[str] = row["turns"]
        own = turns[len(turns) % 2 :: 2]
        again = side_of(len(turns)) == A or (bool(own) and is_refusal(own[-1]))
        last = turns[-1] if turns else ""
        rules = self.by_domain[row["domain"]]
        fault = rules.fault(text, finished=finished, last_turn=last, may_decline=not again)
        # A turn that goes in circles does not end either: the circle is the reason.
        return REPEATS if fault in (None, TOO_LONG, CUT) and repeats(text, own) else fault

    def _end(self, row: Row, why: str, said: str, step: str) -> Row:
        place = len(row["turns"])
        whole = place // 2
        if whole < self.min_rounds:
            return hole(row[KEY], step, why, said)
        return {**row, "turns": row["turns"][: 2 * whole], "ended": {"turn": turn_name(place), "why": why, "said": said}}


@dataclass(kw_only=True)
class AskTurn(Ask):
    """Asks one side of each dialogue for the turn at a place; dialogues that have it, or are at their end, pass.

    Args:
        place: Of the turn, from 0.
        begin: Said to A in the place of the turn before the first.
    """

    place: int
    begin: str

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Tells the conversation as this side sees it."""
        own = side_of(self.place)
        prompt = self.prompts[row["domain"]]
        said = [
            Message(ASSISTANT if side_of(place) == own else USER, text) for place, text in enumerate(row["turns"])
        ]
        first = [Message(USER, self.begin)] if own == A else []
        return (Message(SYSTEM, prompt.fill(**self.values(row))), *first, *said)

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields the dialogues that pass, then the others as the replies come."""
        due = [row for row in rows if self.is_due(row)]
        for row in rows:
            if not self.is_due(row):
                yield {name: value for name, value in row.items() if name != TRIES}
        if due:
            yield from super().run(due)

    def is_due(self, row: Row) -> bool:
        """Tells whether a dialogue waits for this turn."""
        return len(row["turns"]) == self.place and "ended" not in row
