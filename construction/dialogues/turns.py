"""The turns of a self-dialogue: asking either side for the next one, and telling when a dialogue is at its end.

A row holds its turns in a list: A's stand at the even places, B's at the odd ones. A system prompt tells each side its
role and topic. An assistant under test is asked as in use: by a chat, in which A is the user. Whoever plays a person
reads the conversation as one text with names, and is asked for this person's next turn: in a chat it would go on as
the assistant that it was trained to be.

A dialogue ends before its rounds are full where

- `said goodbye`: A takes leave, and B has replied to it;
- `repeats itself`: a turn says again what was said before, or goes in circles within itself;
- `refusal`: A declines to go on, or B declines twice in a row: once is an answer, and right where nobody can know;
- a turn is empty, in another language, over the limit, cut off, or repeats the prompt (construction/chain/replies.py).

Its whole rounds stay where they are enough, and `ended` says why it ended; else the row becomes a hole.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from construction.chain.ask import Ask, Said
from construction.chain.chain_rows import KEY, TRIES, Row, hole
from construction.chain.replies import CUT, ECHO, TOO_LONG, ReplyRules, cut_turns, is_refusal
from data_modules.datasets.diahalu import CHAT, KNOWLEDGE, ONLY_B_JUDGED, REASONING, TASK
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text import ASSISTANT, SYSTEM, USER, Message
from faithkit.words import unicode_words

SIDES = A, B = ("A", "B")
# Of A and B, in the conversation that those read who play a person; the prompts speak of the same ones.
NAMES = {
    KNOWLEDGE: ("Person", "Assistant"),
    TASK: ("Customer", "Assistant"),
    CHAT: ("Sam", "Kim"),
    REASONING: ("Ann", "Ben"),
}
GOODBYE, REPEATS = "said goodbye", "repeats itself"
RUN = 3  # words in a row by which two turns are compared
SAME = 0.8  # of these runs, by which two turns say the same
LEAST_WORDS = 4  # of a turn that can repeat another: "Yes, please." may stand twice
LONG_TURN = 10  # runs of a turn that its speaker would not say again within another one
CIRCLE = 4  # times that a run stands in a turn that goes in circles
_NAMED = "|".join(sorted({name for names in NAMES.values() for name in names}))
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
    said = " ".join(said.split())
    quoted = len(said) > 2 and said[0] + said[-1] in QUOTES and not any(mark in said[1:-1] for mark in '"“”')
    return (said[1:-1].strip() if quoted else said), was_cut


def says_goodbye(text: str) -> bool:
    """Tells whether a turn takes leave; one that asks something does not."""
    return "?" not in text and bool(_GOODBYE.search(text.replace("’", "'")))


def repeats(text: str, earlier: Sequence[str], own: Sequence[str] = ()) -> bool:
    """Tells whether a turn says again what an earlier one says, or goes in circles.

    Args:
        own: The earlier turns of its speaker: a long one that stands in it nearly whole is said again too.
    """
    words = unicode_words(text)
    if len(words) < LEAST_WORDS:
        return False
    runs = _runs(words)
    if max(runs.values()) >= CIRCLE:
        return True
    for others, wholly in ((earlier, False), (own, True)):
        for other in (_runs(unicode_words(one)) for one in others):
            every = len(other) if wholly else len(runs.keys() | other.keys())
            if len(runs.keys() & other.keys()) >= SAME * every and (not wholly or every >= LONG_TURN):
                return True
    return False


def _runs(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + RUN]) for i in range(max(1, len(words) - RUN + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkRules:
    """Rules that a dialogue has to keep, and how long it lasts.

    Args:
        by_domain: The rules of single turns.
        min_rounds: Whole rounds of a dialogue that is kept though it ended early.
        heading: Stands before the conversation in the prompt: a turn with it in it repeats the prompt.
    """

    by_domain: Mapping[str, ReplyRules]
    min_rounds: int
    heading: str = ""

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
        if fault in (None, TOO_LONG, CUT) and repeats(text, turns, own):
            return REPEATS
        return ECHO if fault is None and self.heading and self.heading in text else fault

    def _end(self, row: Row, why: str, said: str, step: str) -> Row:
        place = len(row["turns"])
        whole = place // 2
        if whole < self.min_rounds:
            return hole(row[KEY], step, why, said)
        ended = {"turn": turn_name(place), "why": why, "said": said}
        return {**row, "turns": row["turns"][: 2 * whole], "ended": ended}


@dataclass(kw_only=True)
class AskTurn(Ask):
    """Asks one side of each dialogue for the turn at a place; dialogues that have it, or are at their end, pass.

    Args:
        place: Of the turn, from 0.
        next_turn: Asks who plays a person for the next turn.
    """

    place: int
    next_turn: TextPrompt

    def settings(self, **others: Any) -> dict[str, Any]:
        """Collects what the replies depend on."""
        return super().settings(next_turn=self.next_turn.fingerprint, **others)

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Tells the conversation as this side sees it."""
        own, domain, turns = side_of(self.place), row["domain"], row["turns"]
        system = Message(SYSTEM, self.prompts[domain].fill(**self.values(row)))
        if own == B and domain in ONLY_B_JUDGED:
            return (system, *(Message(ROLES[side_of(place)], text) for place, text in enumerate(turns)))
        names = dict(zip(SIDES, NAMES[domain], strict=True))
        history = "\n".join(f"{names[side_of(place)]}: {text}" for place, text in enumerate(turns))
        return (system, Message(USER, self.next_turn.fill(history=history, name=names[own])))

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
