"""Strategies of answering: the generator's own answer, the best of several by a detector, or resampling by features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from faithkit.inference.decoding import Decoding
from faithkit.records import Example, Prediction
from faithkit_workflows.answering.best_of import BestOf, Detector
from generation.generator import Advance, Generator
from generation.resample import Features, Resampling

SHARED_MEMORY = 0.6  # of a GPU, for vLLM, where a detector or an entailment model runs beside it


class Answerer(Protocol):
    """Answers examples in their order; `advance` is told how many more are done."""

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]: ...


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """Takes the generator's first answer, which nobody judges.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
    """

    generator: Generator
    decoding: Decoding
    control: Sequence[str] | None = None

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        """Answers each example as `Generator.predict_examples` does."""
        options = {"decoding": self.decoding, "control": self.control}
        return list(self.generator.predict_examples(examples, advance=advance, **options))  # type: ignore[arg-type]


def load_answerer(config: Mapping[str, Any], engine: str, num_gpus: int = 1) -> tuple[Generator, Answerer]:
    """Loads the models of `generate.py` and builds its strategy; gives the generator and what answers with it.

    Args:
        num_gpus: That share the model in vLLM.
    """
    detector = features = None
    generator = Generator.load(
        config["checkpoint"],
        engine=engine,
        precision=config["precision"],
        batch_size=config["batch_size"],
        max_length=config["max_length"],
        memory_fraction=SHARED_MEMORY if config["detector"] or config["resample"] is not None else None,
        num_gpus=num_gpus,
    )
    if config["detector"]:
        from faithkit_workflows.detectors.loading import load_detector

        detector = load_detector(config["detector"], precision="32-true", batch_tokens=None)
    if config["resample"] is not None:
        from faithkit_workflows.detectors.entailment import load_entailment
        from generation.control.reader import FeatureReader

        features = FeatureReader.of(generator.settings, entailment=config["entailment"], load=load_entailment)
    decoding, options = Decoding(**config["decoding"]), {"detector": detector, "features": features}
    control, resample = config["control_tokens"], config["resample"]
    return generator, build_answerer(generator, decoding, control, resample=resample, **options)  # type: ignore[arg-type]


def build_answerer(
    generator: Generator,
    decoding: Decoding,
    control: Sequence[str] | None,
    *,
    detector: Detector | None = None,
    features: Features | None = None,
    resample: int | None = None,
) -> Answerer:
    """Builds the strategy that the settings ask for: own answer, best of N (a detector), or resampling.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
        features: Reads the control tokens off responses, for resampling.
        resample: Answers drawn of an example at most; None does not resample.
    """
    if resample is not None:
        assert features is not None, "resampling reads features"
        return Resampling(generator, features, decoding, resample, control)
    if detector is not None:
        return BestOf(generator, detector, decoding, control)
    return OwnAnswer(generator, decoding, control)
