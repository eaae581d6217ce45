"""SelfCheckGPT (Manakul et al. 2023): what a model made up, it says differently each time.

Each sentence of a response is compared with samples; the response's score is the mean over its sentences. Nothing is
trained, and the knowledge is read by nobody but the model that the samples come from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp

from tqdm.auto import tqdm

from faithkit.arguments import read_examples
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction, Span
from faithkit.sentences import sentence_places
from faithkit.span_types import UNTYPED
from judge.samples import Drawn
from judge.selfcheck_measures import Checked, Measure

AT_A_TIME = 64  # responses whose sentences are compared together
NO_SAMPLES = "there are no samples to compare with"


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """A detector by samples.

    Args:
        threshold: A response is called hallucinated from this score on; sentences that reach it are marked.
        unbounded: The measure has no upper end, as -log p; x is told as 1 - exp(-x).
    """

    measure: Measure
    samples: Drawn
    threshold: float = 0.5
    unbounded: bool = False

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """One prediction for each example, in their order; one without samples is unparsed."""
        examples = read_examples(examples)
        for begin in tqdm(range(0, len(examples), AT_A_TIME), "comparing", disable=not progress, unit="portion"):
            yield from self._portion(examples[begin : begin + AT_A_TIME])

    def _portion(self, examples: Sequence[Example]) -> Iterator[Prediction]:
        drawn = self.samples.draw(examples)
        places = [sentence_places(example.response) for example in examples]
        compared = [place for place in range(len(examples)) if drawn[place] and places[place]]
        checked = [
            Checked([examples[i].response[a:b] for a, b in places[i]], examples[i].response, drawn[i]) for i in compared
        ]
        scores = dict(zip(compared, self.measure.score(checked) if checked else [], strict=True))
        for number, example in enumerate(examples):
            if number not in scores:
                yield Prediction(id=example.id, label=UNPARSED, text=NO_SAMPLES)
                continue
            own = scores[number]
            score = self._share(sum(own) / len(own))
            spans = [
                Span(start=begin, end=end, label=UNTYPED, score=share)
                for (begin, end), share in zip(places[number], map(self._share, own), strict=True)
                if share >= self.threshold
            ]
            label = HALLUCINATED if score >= self.threshold else FAITHFUL
            yield Prediction(id=example.id, label=label, score=score, spans=tuple(spans))

    def _share(self, score: float) -> float:
        return 1 - exp(-score) if self.unbounded else min(1.0, max(0.0, score))
