"""The embedded corpus: a generator of our own, so that every part runs without any download."""

from data_modules.embedded.corpus import Embedded, generate

__all__ = ["Embedded", "generate"]
