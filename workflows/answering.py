"""Ways to answer many examples: as the generator decodes, or by choosing among what it wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from faithkit.inference.decoding import Decoding
from faithkit.records import Example, Prediction
from generation.generator import Advance, Generator


class Answerer(Protocol):
    """Answers examples, in their order."""

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]: ...


@dataclass(frozen=True, slots=True)
class Plain:
    """The generator's own answer; what nobody has judged.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
    """

    generator: Generator
    decoding: Decoding
    control: Sequence[str] | None = None

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        found = self.generator.candidates(examples, decoding=self.decoding, control=self.control, advance=advance)
        return [Prediction(id=e.id, text=samples[0].text) for e, samples in zip(examples, found, strict=True)]
