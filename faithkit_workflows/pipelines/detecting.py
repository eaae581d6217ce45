"""The step that has a detector of ours judge texts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from construction.chain.chain_rows import KEY, TRIES, Row
from faithkit.detector import Detector
from faithkit.records import Example, Prediction, Turn

AUTO = "auto"


@dataclass(kw_only=True)
class Detect:
    """Judges a text of each row by its knowledge and history.

    Args:
        path: A run, a folder or a hub name, as `detector=` of generate.py.
        text: The field that is judged.
        read: Makes a row, or a hole, of a row and its prediction.
        precision: In which the detector computes.
        labels: Of a critic from elsewhere, what its classes mean.
    """

    path: str
    text: str
    read: Callable[[Row, Prediction], Row]
    precision: str = AUTO
    labels: Mapping[int | str, str] | None = None
    _detector: Detector | None = field(default=None, repr=False)

    def settings(self) -> dict[str, Any]:
        """Collects what the verdicts depend on: the weights, not where they lie."""
        from faithkit_workflows.detectors.loading import describe_detector

        described = [[one.kind, one.weights or one.path, one.threshold] for one in describe_detector(self.path)]
        labels = {"labels": {str(name): label for name, label in self.labels.items()}} if self.labels else {}
        return {"detector": described, **labels}

    def open(self) -> str:
        """Loads the detector; gives its weights, or the file that names several."""
        from faithkit.weights.used_model import describe_model
        from faithkit_workflows.detectors.loading import load_detector
        from faithkit_workflows.settings.engines import is_detector_file

        self._detector = load_detector(self.path, precision=self.precision, batch_tokens=None, labels=self.labels)
        weights = None if is_detector_file(self.path) else describe_model(self.path).weights
        return f"detector {weights or self.path}"

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields the rows as they are judged."""
        assert self._detector is not None, "it is opened first"
        examples = [example_of(row, str(row[self.text])) for row in rows]
        for row, said in zip(rows, self._detector.predict_examples(examples), strict=True):
            yield {name: value for name, value in self.read(row, said).items() if name != TRIES}

    def close(self) -> str:
        """Lets the detector go."""
        self._detector = None
        return ""


def example_of(row: Mapping[str, Any], response: str) -> Example:
    """Makes the example that a detector judges."""
    return Example(
        id=row[KEY],
        source="construction",
        split="construction",
        group=row["dialogue"],
        knowledge=row["knowledge"],
        history=tuple(Turn(speaker=speaker, text=text) for speaker, text in row["history"]),
        response=response,
    )
