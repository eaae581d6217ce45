"""Memory for a model's answers: each thing is asked once, however often it is wanted."""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Once(Generic[Key, Value]):
    """Answers from memory, and from the model, in one batch, what it has not been asked before.

    Args:
        ask: From distinct keys to their values, in the same order.
    """

    def __init__(self, ask: Callable[[Sequence[Key]], Sequence[Value]]):
        self._ask = ask
        self._known: dict[Key, Value] = {}

    def __call__(self, keys: Sequence[Key]) -> list[Value]:
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))
        return [self._known[key] for key in keys]
