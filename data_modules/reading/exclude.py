"""Knowledge and dialogues of test sets that training must not touch.

A zero-shot score means little if training has seen the same source texts, or the turns that are judged. A test set's
texts are only compared with; its labels are not used.

Dialogues are identified by their utterances and not by their ids: corpora number the dialogues of each split from 0,
and the same dialogue has other ids in another corpus.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from faithkit.provenance.row_keys import text_key
from faithkit.records import WHOLE_KNOWLEDGE, Example

DROPPED = "dropped: knowledge occurs in an excluded test set"
DROPPED_DIALOGUE = "dropped: dialogue occurs in an excluded test set"
MIN_WORDS = 6  # of an utterance that identifies its dialogue; "Yes, I love that too!" occurs in many
# Scripts that put no spaces between words, and how many of their letters make one, roughly. If each letter were a word,
# a greeting would identify a dialogue: "สวัสดีครับ" has seven.
LETTERS_PER_WORD = {  # Han and kana, and the scripts from Thai to Khmer
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]": 2,
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]": 4,
}


def count_words(text: str) -> int:
    """Counts the words between spaces, and those that the letters of scripts without spaces would make."""
    if text.isascii():
        return len(text.split())
    num_words, rest = 0, text
    for script, num_letters in LETTERS_PER_WORD.items():
        num_words += sum(map(str.isalnum, re.findall(script, text))) // num_letters  # vowel signs are no letters
        rest = re.sub(script, "", rest)
    return max(num_words + len(rest.split()), len(text.split()))


def dialogue_keys(example: Example) -> Iterator[str]:
    """Yields the `text_key`s of the utterances of an example's dialogue that are long enough to identify it."""
    utterances = [turn.text for turn in example.history] + [example.response, example.reference or ""]
    return (text_key(text) for text in utterances if count_words(text) >= MIN_WORDS)


@dataclass(frozen=True)
class Excluded:
    """The knowledge texts and dialogues that must not be trained on.

    Args:
        keys: The `text_key`s of the knowledge.
        utterances: Those of the dialogues' utterances.
    """

    keys: frozenset[str] = frozenset()
    utterances: frozenset[str] = frozenset()

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "Excluded":
        """Returns the knowledge and the dialogues of these examples."""
        rows = list(examples)
        keys = frozenset(text_key(example.knowledge) for example in rows)
        utterances = frozenset(key for example in rows for key in dialogue_keys(example))
        return cls(keys - {""}, utterances - {""})  # a text without letters and digits would match every other one

    def reason(self, example: Example) -> str | None:
        """Returns the outcome under which an example must be dropped; None if it may be trained on.

        Its knowledge counts as it was before any cut.
        """
        knowledge = example.meta.get(WHOLE_KNOWLEDGE, example.knowledge)
        if text_key(knowledge) in self.keys:
            return DROPPED
        if self.utterances and any(key in self.utterances for key in dialogue_keys(example)):
            return DROPPED_DIALOGUE
        return None

    def covers(self, example: Example) -> bool:
        """Returns whether the example must not be trained on."""
        return self.reason(example) is not None

    @property
    def digest(self) -> str:
        """A hash of the texts, for a cache's key."""
        texts = [*sorted(self.keys), "", *sorted(self.utterances)] if self.utterances else sorted(self.keys)
        return hashlib.blake2b("\n".join(texts).encode(), digest_size=16).hexdigest()
