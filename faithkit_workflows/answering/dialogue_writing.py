"""Lets a language model write the replies of whole dialogues, after the original history or after its earlier replies.

In the second case turns are written one after another, for all dialogues at the same time: the model's earlier replies
replace the original ones in the history, and the seeker's turns stay.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tqdm.auto import tqdm

from data_modules.reading.fields import SEEKER, SPEAKER_MARKS, WIZARD
from faithkit import signals
from faithkit.inference.decoding import Decoding
from faithkit.inference.prompts import read_text_prompt
from faithkit.inference.text import Request, TextEngine
from faithkit.records import Example, Turn
from judge.prompt import OPTIONAL_FIELDS
from judge.questions import messages_about

PROMPT = "reply"
_MARKS = re.compile("|".join(re.escape(f"{SPEAKER_MARKS[who]}:") for who in (SEEKER, WIZARD)))
Replies = dict[str, str]  # by example id; empty if the model wrote nothing
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class Dialogues:
    """One example for each turn of each dialogue, in order, and notes on what was left out."""

    turns: tuple[Example, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, examples: Sequence[Example], limit: int | None = None) -> "Dialogues":
        """Takes the first of the examples that answer a turn, for the first `limit` dialogues."""
        first: dict[tuple[str, int], Example] = {}
        for example in examples:
            first.setdefault((example.group, turn_number(example)), example)
        kept = list(dict.fromkeys(example.group for example in examples))[:limit]
        by_group: dict[str, list[Example]] = {group: [] for group in kept}
        for (group, _), example in sorted(first.items(), key=lambda item: item[0][1]):
            if group in by_group:
                by_group[group].append(example)
        turns = tuple(example for group in kept for example in by_group[group])
        known = {(turn.group, turn_number(turn)) for turn in turns}
        in_histories = {
            (turn.group, number) for turn in turns for number, one in enumerate(turn.history) if one.speaker == WIZARD
        }
        num_missing = len(in_histories - known)
        note = f"{num_missing:,} turns are only in histories, without knowledge: their original replies are kept"
        return cls(turns, (note,) if num_missing else ())

    def by_number(self) -> dict[int, list[Example]]:
        """Groups the turns by their number in the dialogue; the turns of a group are written together."""
        found: dict[int, list[Example]] = {}
        for turn in self.turns:
            found.setdefault(turn_number(turn), []).append(turn)
        return dict(sorted(found.items()))

    def turn_ids(self) -> dict[str, dict[int, str]]:
        """Returns the example id of each turn of each dialogue."""
        found: dict[str, dict[int, str]] = {}
        for turn in self.turns:
            found.setdefault(turn.group, {})[turn_number(turn)] = turn.id
        return found

    def with_replies(self, replies: Mapping[str, str], turns: Sequence[Example] | None = None) -> list[Example]:
        """Replaces the original replies in the histories by a model's replies, as far as they exist.

        Args:
            turns: Some of the turns; None for all.
        """
        ids = self.turn_ids()
        return [_replace_history(turn, ids[turn.group], replies) for turn in (self.turns if turns is None else turns)]


def turn_number(example: Example) -> int:
    """Returns the number of turns before an example's response."""
    return len(example.history)


def _replace_history(example: Example, ids: Mapping[int, str], replies: Mapping[str, str]) -> Example:
    history = list(example.history)
    for number, turn in enumerate(history):
        if turn.speaker == WIZARD and (reply := replies.get(ids.get(number, ""), "")):
            history[number] = Turn(speaker=WIZARD, text=reply)
    return replace(example, history=tuple(history))


class DialogueWriter:
    """Writes replies with a language model.

    Args:
        prompts: A folder with another prompt, reply.txt.
    """

    def __init__(self, engine: TextEngine, *, prompts: str | None = None):
        self.engine = engine
        self.prompt = read_text_prompt("judge", PROMPT, folder=prompts, optional=OPTIONAL_FIELDS)

    def write(self, dialogues: Dialogues, decoding: Decoding, *, own_history: bool, title: str = "") -> Replies:
        """Writes a reply to every turn; a reply does not depend on the other dialogues."""
        replies: Replies = {}
        failed: dict[str, str] = {}
        with tqdm(total=len(dialogues.turns), desc=title or PROMPT, unit="reply", mininterval=0.5, disable=None) as bar:
            rounds = dialogues.by_number().values() if own_history else [list(dialogues.turns)]
            for turns in rounds:
                signals.check()
                examples = dialogues.with_replies(replies, turns) if own_history else turns
                requests = [Request(one.id, messages_about(self.prompt, one)) for one in examples]
                for reply in self.engine.generate(requests, decoding):
                    replies[reply.id] = cut_to_first_turn(reply.texts[0]) if reply.texts else ""
                    failed |= {} if reply.texts else {reply.id: reply.problem}
                    bar.update()
        if failed:
            log.warning("%s: %d requests failed, the first: %s", title, len(failed), next(iter(failed.values())))
        return {turn.id: replies[turn.id] for turn in dialogues.turns}


def cut_to_first_turn(text: str) -> str:
    """Cuts a model's text to its first turn, without the speaker mark and without further turns.

    >>> cut_to_first_turn("[Assistant]: It is red. [Human]: Really?")
    'It is red.'
    """
    reply = text.strip().removeprefix(f"{SPEAKER_MARKS[WIZARD]}:")
    return _MARKS.split(reply, maxsplit=1)[0].strip()
