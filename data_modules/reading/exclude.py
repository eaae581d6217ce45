"""Knowledge of test sets that training must not touch.

A zero-shot score means little where training has seen the same source texts. Only the knowledge of a test set is used;
its responses and labels are not.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from faithkit.records import Example
from faithkit.row_keys import WHOLE_KNOWLEDGE, text_key

DROPPED = "dropped: knowledge stands in an excluded test set"


@dataclass(frozen=True)
class Excluded:
    """The knowledge texts that must not be trained on.

    Args:
        keys: Their `text_key`s.
    """

    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "Excluded":
        """The knowledge of these examples."""
        keys = frozenset(text_key(example.knowledge) for example in examples)
        return cls(keys - {""})  # a text without letters and digits would match every other one

    def covers(self, example: Example) -> bool:
        """True if the example must not be trained on: its knowledge, before any cut, is excluded."""
        knowledge = example.meta.get(WHOLE_KNOWLEDGE, example.knowledge)
        return text_key(knowledge) in self.keys

    @property
    def digest(self) -> str:
        """A hash of the texts, for a cache's key."""
        return hashlib.blake2b("\n".join(sorted(self.keys)).encode(), digest_size=16).hexdigest()
