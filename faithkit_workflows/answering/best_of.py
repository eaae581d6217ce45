"""Best of N: the model writes several answers, and a detector chooses the one with the lowest score.

Unlike a threshold on one answer this always answers, and needs no training; the price is N times the decoding. Answers
that are the same text are judged once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from faithkit.detector import Detector
from faithkit.inference.decoding import Decoding
from faithkit.records import FAITHFUL, Example, Prediction
from generation.generator import Advance, Candidate, Generator


@dataclass(frozen=True, slots=True)
class BestOf:
    """Chooses the answer with the lowest score among `decoding.num_samples`; of equal ones the likelier.

    A single answer is judged too.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
    """

    generator: Generator
    detector: Detector
    decoding: Decoding
    control: Sequence[str] | None = None

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        """The chosen answers with what the detector said of them."""
        found = self.generator.candidates(examples, decoding=self.decoding, control=self.control, advance=advance)
        answers = [_distinct(samples) for samples in found]
        judged = self._judge(examples, answers)
        chosen = []
        for example, own in zip(examples, answers, strict=True):
            pairs = [(candidate, next(judged)) for candidate in own]
            candidate, said = min(pairs, key=lambda pair: _doubt(*pair))
            chosen.append(replace(said, id=example.id, text=candidate.text))
        return chosen

    def _judge(self, examples: Sequence[Example], answers: Sequence[Sequence[Candidate]]) -> Iterator[Prediction]:
        asked = [
            replace(example, id=f"{example.id}\n{number}", response=candidate.text, label=None, spans=None)
            for example, own in zip(examples, answers, strict=True)
            for number, candidate in enumerate(own)
        ]
        judgeable = [example for example in asked if example.response]  # an empty answer has nothing to judge
        said = {prediction.id: prediction for prediction in self.detector.predict_examples(judgeable)}
        return iter([said.get(example.id, Prediction(id=example.id)) for example in asked])


def _distinct(samples: Sequence[Candidate]) -> list[Candidate]:
    """Each text once, as its likeliest sample."""
    best: dict[str, Candidate] = {}
    for candidate in samples:
        if candidate.text not in best or candidate.logprob > best[candidate.text].logprob:
            best[candidate.text] = candidate
    return list(best.values())


def _doubt(candidate: Candidate, said: Prediction) -> tuple[float, float]:
    """The sort key of an answer: its score, then its likelihood; an empty answer comes last."""
    if said.label is None:
        return 2.0, -candidate.logprob
    score = said.score if said.score is not None else float(said.label != FAITHFUL)
    return score, -candidate.logprob
