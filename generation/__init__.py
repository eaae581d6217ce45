"""Generators that answer from knowledge: training, decoding, and ways to keep answers faithful.

from faithkit import Generator  # `from generation import Generator` works too
Generator.load("runs/...").reply(knowledge="...", history=["..."])
"""

from typing import Any


def __getattr__(name: str) -> Any:  # torch loads only when a generator is really used
    if name == "Generator":
        from generation.generator import Generator

        return Generator
    raise AttributeError(f"module 'generation' has no attribute {name!r}")
