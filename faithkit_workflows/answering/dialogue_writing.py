"""Has a language model write the replies of whole dialogues, with the data's own histories or with its own.

With its own histories the turns are written one after another, all dialogues at a time: what it said before stands in
the place of the data's replies, and what the seeker said stays.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tqdm.auto import tqdm

from data_modules.reading.fields import SEEKER, SPEAKER_MARKS, WIZARD
from faithkit import signals
from faithkit.inference.decoding import Decoding
from faithkit.inference.text import Message, Request, TextEngine
from faithkit.records import Example, Turn
from judge.prompt import write_history
from judge.questions import read_text_prompt

PROMPT, FIELDS = "reply", ("knowledge", "history")
_MARKS = re.compile("|".join(re.escape(f"{SPEAKER_MARKS[who]}:") for who in (SEEKER, WIZARD)))
Replies = dict[str, str]  # by the example's id; empty where the model wrote nothing
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class Dialogues:
    """One example for each turn of each dialogue, in the dialogues' order, and notes on what was left out."""

    turns: tuple[Example, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, examples: Sequence[Example], limit: int | None = None) -> "Dialogues":
        """Takes the first example of each turn, since several may answer one, of the first `limit` dialogues."""
        first: dict[tuple[str, int], Example] = {}
        for example in examples:
            first.setdefault((example.group, place_of(example)), example)
        kept = list(dict.fromkeys(example.group for example in examples))[:limit]
        by_group: dict[str, list[Example]] = {group: [] for group in kept}
        for (group, _), example in sorted(first.items(), key=lambda item: item[0][1]):
            if group in by_group:
                by_group[group].append(example)
        turns = tuple(example for group in kept for example in by_group[group])
        have = {(turn.group, place_of(turn)) for turn in turns}
        said = [(t.group, place) for t in turns for place, one in enumerate(t.history) if one.speaker == WIZARD]
        missing = len(set(said) - have)
        note = f"{missing:,} turns stand in histories alone, without their knowledge: the data's own reply stays there"
        return cls(turns, (note,) if missing else ())

    def by_place(self) -> dict[int, list[Example]]:
        """The turns that are written at a time, the earliest first."""
        found: dict[int, list[Example]] = {}
        for turn in self.turns:
            found.setdefault(place_of(turn), []).append(turn)
        return dict(sorted(found.items()))

    def places(self) -> dict[str, dict[int, str]]:
        """The id of the turn at each place of each dialogue."""
        found: dict[str, dict[int, str]] = {}
        for turn in self.turns:
            found.setdefault(turn.group, {})[place_of(turn)] = turn.id
        return found

    def with_own_histories(self, replies: Mapping[str, str], turns: Sequence[Example] | None = None) -> list[Example]:
        """Puts what a model wrote in the place of the data's replies in the histories, as far as it has written them.

        Args:
            turns: Some of the turns; None for all.
        """
        places = self.places()
        return [_with_own(turn, places[turn.group], replies) for turn in (self.turns if turns is None else turns)]


def place_of(example: Example) -> int:
    """The place of an example's response in its dialogue: as many turns stand before it."""
    return len(example.history)


def _with_own(example: Example, by_place: Mapping[int, str], replies: Mapping[str, str]) -> Example:
    history = list(example.history)
    for place, turn in enumerate(history):
        if turn.speaker == WIZARD and (said := replies.get(by_place.get(place, ""), "")):
            history[place] = Turn(speaker=WIZARD, text=said)
    return replace(example, history=tuple(history))


class DialogueWriter:
    """A language model that writes replies.

    Args:
        prompts: A folder with a prompt of one's own, reply.txt.
    """

    def __init__(self, engine: TextEngine, *, prompts: str | None = None):
        self.engine = engine
        self.prompt = read_text_prompt(PROMPT, *FIELDS, folder=prompts)

    def write(self, dialogues: Dialogues, decoding: Decoding, *, own_history: bool, title: str = "") -> Replies:
        """Writes a reply to every turn; the same ones whatever else is written beside them."""
        replies: Replies = {}
        failed: dict[str, str] = {}
        with tqdm(total=len(dialogues.turns), desc=title or PROMPT, unit="reply", mininterval=0.5, disable=None) as bar:
            rounds = dialogues.by_place().values() if own_history else [list(dialogues.turns)]
            for turns in rounds:
                signals.check()
                examples = dialogues.with_own_histories(replies, turns) if own_history else turns
                requests = [Request(one.id, self._messages(one)) for one in examples]
                for reply in self.engine.generate(requests, decoding):
                    replies[reply.id] = own_turn(reply.texts[0]) if reply.texts else ""
                    failed |= {} if reply.texts else {reply.id: reply.problem}
                    bar.update()
        if failed:
            log.warning("%s: %d requests failed, the first: %s", title, len(failed), next(iter(failed.values())))
        return {turn.id: replies[turn.id] for turn in dialogues.turns}

    def _messages(self, example: Example) -> tuple[Message, ...]:
        return self.prompt.messages(knowledge=example.knowledge, history=write_history(example.history))


def own_turn(text: str) -> str:
    """Cuts what a model wrote to its own turn: without a speaker's mark before it and further turns behind it.

    >>> own_turn("[Assistant]: It is red. [Human]: Really?")
    'It is red.'
    """
    said = text.strip().removeprefix(f"{SPEAKER_MARKS[WIZARD]}:")
    return _MARKS.split(said, maxsplit=1)[0].strip()
