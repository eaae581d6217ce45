"""Resampling (Rashkin et al. 2021): draws an answer again while it lacks features that its control tokens ask for.

Control tokens only make features likelier. As in the paper an answer is drawn again until it has them all, up to a
number of times; where none does, the one that lacks the fewest is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from faithkit.errors import UserError
from faithkit.inference.decoding import NUCLEUS, Decoding
from faithkit.records import Example, Prediction
from generation.control.names import check_controlled, control_tokens
from generation.generator import Advance, Candidate, Generator

Features = Callable[[Sequence[Example]], Sequence[Sequence[str]]]  # gives the control tokens of each response


@dataclass(frozen=True, slots=True)
class Drawn:
    """The answer that is kept for an example.

    Args:
        num_draws: Number of the draw that gave it, from 1.
        num_missing: Wanted features that it lacks.
    """

    candidate: Candidate
    num_draws: int
    num_missing: int


@dataclass(frozen=True, slots=True)
class Resampling:
    """Answers examples, drawing again while a wanted feature is missing; needs nucleus sampling.

    Args:
        features: Reads the control tokens off responses.
        max_draws: Answers drawn of an example, at most.
        control: Names of the wanted control tokens; None for those of a faithful answer.
    """

    generator: Generator
    features: Features
    decoding: Decoding
    max_draws: int = 10
    control: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.decoding.strategy != NUCLEUS:
            raise UserError(f"{self.decoding.strategy} decoding writes the same again", hint="use decoding=nucleus")
        if self.max_draws < 1:
            raise UserError(f"resample is {self.max_draws}", hint="use 1 or more")
        check_controlled(self.generator.encoder.layout.control)

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        """Returns the accepted answers, without labels."""
        drawn = self.draw(examples, advance)
        return [Prediction(id=e.id, text=kept.candidate.text) for e, kept in zip(examples, drawn, strict=True)]

    def draw(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Drawn]:
        """Gives the kept answers with their draws and missing features."""
        wanted = control_tokens(self.generator.encoder.layout.control, self.control)
        kept: dict[int, Drawn] = {}
        places = list(range(len(examples)))
        for number in range(self.max_draws):
            # The id seeds the random stream: each draw needs a different one.
            asked = [replace(examples[place], id=f"{examples[place].id}\n{number}") for place in places]
            found = self.generator.candidates(asked, decoding=self.decoding, control=self.control)
            first = [samples[0] for samples in found]
            answered = [
                replace(e, response=drawn.text, label=None, spans=None) for e, drawn in zip(asked, first, strict=True)
            ]
            for place, drawn, tokens in zip(places, first, self.features(answered), strict=True):
                missing = sum(token not in tokens for token in wanted)
                best = kept.get(place)
                if best is None or missing < best.num_missing:
                    kept[place] = Drawn(drawn, number + 1, missing)
            done = [place for place in places if not kept[place].num_missing or number + 1 == self.max_draws]
            places = [place for place in places if kept[place].num_missing]
            if advance and done:
                advance(len(done))
            if not places:
                break
        return [kept[place] for place in range(len(examples))]
