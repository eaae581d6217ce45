"""The protocol of every hallucination detector: a critic, a tagger, a language model as judge."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from faithkit.records import Example, Prediction


class Detector(Protocol):
    """Judges responses by their knowledge and history.

    A new kind of detector is a class with this method and one line in the table of
    `faithkit_workflows.detectors.loading`.
    """

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """One prediction for each example, in their order: label, score (P(hallucinated)), spans and text.

        An example is judged the same, whichever others stand beside it. What a detector does not give stays at the
        default of `Prediction`; a reply that cannot be read has the label `unparsed`.

        Args:
            examples: Their id, knowledge, history and response are read; label and spans are not.
            progress: Shows a bar.
        """
        ...
