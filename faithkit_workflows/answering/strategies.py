"""Strategies of answering: a generator's first answer, the best of several by a detector, or resampling by features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import Any, Protocol

from data_modules.encoding.sequence_layout import CONTROL_TOKENS
from faithkit.detector import Detector, Entailment
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder, read_config, write_config
from faithkit.inference.text import NUCLEUS, Decoding
from faithkit.records import FAITHFUL, Example, Prediction
from generation.control import ENTAILED, OVERLAP, Ctrl, Terciles, check_controlled, control_tokens, levels
from generation.generator import Advance, Candidate, Generator
from generation.weights import AUTO, EngineChoice, Settings, check_engine, choose_engine, load_checkpoint

Features = Callable[[Sequence[Example]], Sequence[Sequence[str]]]  # gives the control tokens of each response


@dataclass(eq=False)
class FeatureReader:
    """Reads the control tokens of each example's response.

    Args:
        ctrl: Measures the features.
        terciles: Boundaries of the lexical overlap that training fitted.
    """

    ctrl: Ctrl
    terciles: Terciles | None

    @classmethod
    def of(cls, settings: Settings, *, entailment: str | None, load: Callable[[str], Entailment]) -> "FeatureReader":
        """Makes the reader for a trained generator.

        Args:
            entailment: A critic or an NLI model; None takes the one that it was trained with.
            load: Loads the model of that name.
        """
        groups, terciles = settings.layout.control, settings.thresholds.get(OVERLAP)
        check_controlled(groups)
        if OVERLAP in groups and terciles is None:
            problem = "this model's sidecar lacks the terciles of lexical overlap, so responses cannot be measured"
            raise UserError(problem, hint="leave resample out, or train it with control.source=measured")
        trained = settings.origin.get("config", {}).get("control") or {}
        if entailment is None and ENTAILED in groups:
            entailment = trained.get("entailment")
            if entailment is None:
                problem = "nothing says which model of entailment this one was trained with"
                raise UserError(problem, hint="give entailment=PATH of a critic or an NLI model")
        entailment_levels = trained.get("entailment_levels", 3)
        ctrl = Ctrl(groups=groups, entailment=entailment, load=load, entailment_levels=entailment_levels)
        return cls(ctrl, (terciles[0], terciles[1]) if terciles else None)

    def __call__(self, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        groups, found = self.ctrl.groups, levels(self.ctrl.measure(examples), self.terciles)
        return [tuple(CONTROL_TOKENS[group][level] for group, level in zip(groups, row, strict=True)) for row in found]


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
        """Returns the first answers with all wanted features, or else those that lack the fewest, without labels."""
        wanted = control_tokens(self.generator.encoder.layout.control, self.control)
        kept: dict[int, tuple[int, str]] = {}  # missing features and text by example
        places = list(range(len(examples)))
        for number in range(self.max_draws):
            # The id seeds the random stream: each draw needs a different one.
            asked = [replace(examples[place], id=f"{examples[place].id}\n{number}") for place in places]
            found = self.generator.candidates(asked, decoding=self.decoding, control=self.control)
            texts = [samples[0].text for samples in found]
            answered = [replace(e, response=text, label=None, spans=None) for e, text in zip(asked, texts, strict=True)]
            for place, text, tokens in zip(places, texts, self.features(answered), strict=True):
                missing = sum(token not in tokens for token in wanted)
                if place not in kept or missing < kept[place][0]:
                    kept[place] = (missing, text)
            unfinished = [place for place in places if kept[place][0] and number + 1 < self.max_draws]
            if advance and len(unfinished) < len(places):
                advance(len(places) - len(unfinished))
            if not (places := unfinished):
                break
        return [Prediction(id=example.id, text=kept[place][1]) for place, example in enumerate(examples)]


class Answerer(Protocol):
    """Answers examples in their order; `advance` is called with the number of examples that were answered since."""

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]: ...


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """Takes the generator's first answer.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
    """

    generator: Generator
    decoding: Decoding
    control: Sequence[str] | None = None

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        """Answers each example as `Generator.predict_examples` does."""
        options: Any = {"decoding": self.decoding, "control": self.control}
        return list(self.generator.predict_examples(examples, advance=advance, **options))


@dataclass(frozen=True, slots=True)
class BestOf:
    """Chooses the answer with the lowest hallucination score among `decoding.num_samples` (best of N).

    Unlike a threshold on a single answer this always answers, and needs no training; it costs N times the decoding.
    Equal texts are judged once; of equal scores the answer with the higher likelihood is chosen.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
    """

    generator: Generator
    detector: Detector
    decoding: Decoding
    control: Sequence[str] | None = None

    def answer(self, examples: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        """Returns the chosen answers with the detector's predictions."""
        samples = self.generator.candidates(examples, decoding=self.decoding, control=self.control, advance=advance)
        candidates: list[list[Candidate]] = []
        for of_example in samples:  # each text once, with its highest likelihood
            best: dict[str, Candidate] = {}
            for one in of_example:
                if one.text not in best or one.logprob > best[one.text].logprob:
                    best[one.text] = one
            candidates.append(list(best.values()))
        rows = [
            replace(example, id=f"{example.id}\n{number}", response=candidate.text, label=None, spans=None)
            for example, of_example in zip(examples, candidates, strict=True)
            for number, candidate in enumerate(of_example)
        ]
        found = {one.id: one for one in self.detector.predict_examples([row for row in rows if row.response])}
        judged = (found.get(row.id, Prediction(id=row.id)) for row in rows)
        chosen = []
        for example, of_example in zip(examples, candidates, strict=True):
            ranked = []
            for candidate, prediction in zip(of_example, islice(judged, len(of_example)), strict=True):
                score = float(prediction.label != FAITHFUL) if prediction.score is None else prediction.score
                rank = 2.0 if prediction.label is None else score  # an empty answer is not judged, and comes last
                ranked.append((rank, -candidate.logprob, candidate.text, prediction))
            _, _, text, prediction = min(ranked, key=itemgetter(0, 1))
            chosen.append(replace(prediction, id=example.id, text=text))
        return chosen


def load_answerer(config: Mapping[str, Any], engine: str, num_gpus: int = 1) -> tuple[Generator, Answerer]:
    """Loads the generator of `generate.py`, and the models and strategy that answer with it.

    Args:
        num_gpus: GPUs that the model is divided over in vLLM.
    """
    detector = features = None
    # vLLM leaves a part of the GPU to a detector or an entailment model.
    memory_fraction = 0.6 if config["detector"] or config["resample"] is not None else None
    generator = Generator.load(
        config["checkpoint"],
        engine=engine,
        precision=config["precision"],
        batch_size=config["batch_size"],
        max_length=config["max_length"],
        memory_fraction=memory_fraction,
        num_gpus=num_gpus,
    )
    if config["detector"]:
        from faithkit_workflows.detectors.loading import load_detector

        detector = load_detector(config["detector"], precision="32-true", batch_tokens=None)
    if config["resample"] is not None:
        from faithkit_workflows.detectors.entailment import load_entailment

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
    """Builds the strategy that the settings select.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
        features: Reads the control tokens of responses, for resampling.
        resample: Maximum number of answers sampled per example; None does not resample.
    """
    if resample is not None:
        assert features is not None, "resampling reads features"
        return Resampling(generator, features, decoding, resample, control)
    if detector is not None:
        return BestOf(generator, detector, decoding, control)
    return OwnAnswer(generator, decoding, control)


def choose_run_engine(run: RunFolder, config: dict[str, Any]) -> EngineChoice:
    """Chooses the engine that a run of generate.py decodes with, and writes it into the run's configuration.

    Engines draw different samples and may differ at near ties, so all answers of a file come from one engine: a resumed
    run keeps the engine that it began with.

    Raises:
        UserError: The engine does not exist.
    """
    name = config["engine"]["name"]
    check_engine(name)
    if name != AUTO:
        return EngineChoice(name, "as the run began" if run.has_work() else "is set")
    strategy = config["decoding"]["strategy"]
    choice = choose_engine(lambda: load_checkpoint(config["checkpoint"], config["max_length"]), strategy=strategy)
    config["engine"] = {"name": choice.name}
    write_config(run.config, {**read_config(run.config), "engine": config["engine"]})
    return choice
