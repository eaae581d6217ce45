"""The protocol of every hallucination detector, and the declaration of each kind.

A kind of detector is declared once, here or by an entry point of the group `faithkit.detectors` in another package:

    [project.entry-points."faithkit.detectors"]
    overlap = "my_package.overlap:KIND"

    KIND = DetectorKind(name="overlap", target="my_package.overlap:OverlapDetector")

Its class then works wherever a detector is named: as `checkpoint=FOLDER` of a folder whose `faithkit.json` has this
kind, or as `checkpoint=overlap:ARGUMENT`, which calls
`OverlapDetector.load("ARGUMENT", precision=..., batch_tokens=...)`. Without an entry point a command names the class:
`checkpoint=my_package.overlap:OverlapDetector:ARGUMENT`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from faithkit.errors import UserError
from faithkit.packages import DETECTORS as ENTRY_POINTS
from faithkit.packages import load_object, load_plugins, object_name
from faithkit.published.known_detectors import known_detectors
from faithkit.records import Example, Prediction

if TYPE_CHECKING:  # numpy is imported later
    from numpy.typing import NDArray

CRITIC, TAGGER, GENERATOR, JUDGE = "critic", "tagger", "generator", "judge"
DEFAULT, THOROUGH = "default", "thorough"  # the detectors that come with faithkit
DETECTORS = (CRITIC, TAGGER, JUDGE)
TRAINED = frozenset({CRITIC, TAGGER, GENERATOR, JUDGE})  # the kinds of models trained here
ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2  # columns of an entailment model's probabilities


class Detector(Protocol):
    """Judges responses by their knowledge and history.

    A detector whose labels come from a threshold also has `set_threshold(threshold: float)`. One that reads other
    languages than English has `languages`: ISO 639 codes, or `("any",)`.
    """

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example, in their order: label, score (P(hallucinated)), spans and text.

        The prediction for an example does not depend on the other examples. Fields that a detector does not produce
        keep the default of `Prediction`; a reply that cannot be parsed has the label `unparsed`.

        Args:
            examples: Their id, knowledge, history and response are read; label and spans are not.
            progress: Shows a progress bar.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorKind:
    """Declares a kind of detector.

    Args:
        name: The `kind` in faithkit.json, and the prefix of `checkpoint=NAME:ARGUMENT`.
        target: `module:Class`; its `load(path, *, precision, batch_tokens, **options)` returns a `Detector`.
        options: Further options that `load` takes: `labels`, `max_windows`.
        architectures: Endings of the architectures in config.json that are loaded as this kind without a faithkit.json.
        threshold_key: The key of the response threshold in faithkit.json.
        numbers_passages: Lists of passages are numbered when they are joined to one text, as in its training data.
        marks_spans: Predictions have spans.
        is_packaged: Its name alone is a checkpoint; an argument is optional.
        passes_name: `load` and `describe` get `name=`: one class serves several names.
    """

    name: str
    target: str
    options: frozenset[str] = frozenset()
    architectures: tuple[str, ...] = ()
    threshold_key: str | None = None
    numbers_passages: bool = False
    marks_spans: bool = True
    is_packaged: bool = False
    passes_name: bool = False

    def load(self, argument: str, **options: Any) -> Detector:
        """Loads a detector of this kind."""
        detector: Detector = resolve_name(self.target).load(argument, **options, **self._named)
        return detector

    def describe(self, argument: str, role: str) -> Any:
        """Describes a packaged detector as a `UsedModel`."""
        return resolve_name(self.target).describe(argument, role, **self._named)

    @property
    def _named(self) -> dict[str, str]:
        return {"name": self.name} if self.passes_name else {}


BUILT_IN = {
    kind.name: kind
    for kind in (
        DetectorKind(
            name=CRITIC,
            target="critic.sequence.scorer:Critic",
            options=frozenset({"labels", "max_windows"}),
            threshold_key="threshold",
            marks_spans=False,
        ),
        DetectorKind(
            name=TAGGER,
            target="critic.tagger.predictor:Tagger",
            options=frozenset({"max_windows"}),
            architectures=("ForTokenClassification",),
            threshold_key="response_threshold",
            numbers_passages=True,
        ),
        DetectorKind(name=DEFAULT, target="critic.support.detector:SupportDetector", is_packaged=True),
        DetectorKind(name=THOROUGH, target="critic.reader.detector:ThoroughDetector", is_packaged=True),
        DetectorKind(name=JUDGE, target="judge.judge:Judge", architectures=("ForCausalLM", "LMHeadModel")),
    )
}


@cache
def detector_kinds() -> Mapping[str, DetectorKind]:
    """Returns every kind by its name: those of this project, those of `known_detectors`, then installed packages'."""
    own = dict(BUILT_IN)
    for name, known in known_detectors().items():
        own[name] = DetectorKind(
            name=name,
            target="faithkit_workflows.detectors.known:KnownLoader",
            numbers_passages=known.marks_spans,
            marks_spans=known.marks_spans,
            is_packaged=True,
            passes_name=True,
        )
    return own | {kind.name: kind for kind in load_plugins(ENTRY_POINTS, DetectorKind).values() if kind.name not in own}


def kind_in_name(checkpoint: str) -> tuple[DetectorKind, str] | None:
    """Splits `NAME:ARGUMENT`, `module:Class:ARGUMENT` or a packaged kind's name into kind and argument; else None.

    Models that are trained here are named by their folder alone, which records what they were trained on.
    """
    name, separator, argument = checkpoint.partition(":")
    if name in TRAINED:
        return None
    if (kind := detector_kinds().get(name)) and (separator or kind.is_packaged):
        return kind, argument
    if not separator or (target := object_name(checkpoint)) is None:
        return None
    found = load_object(target)
    if not isinstance(found, DetectorKind):
        if missing := [method for method in ("load", "predict_examples") if not hasattr(found, method)]:
            raise UserError(f"{target} is no detector: it has no {missing[0]}", hint="see docs/project/extending.md")
        found = DetectorKind(name=target, target=target)
    return found, checkpoint[len(target) + 1 :]


def name_others(checkpoint: str) -> str:
    """Names other detectors than the one that was used: the last line of `faithkit check` and `faithkit score`."""
    if checkpoint == DEFAULT:
        return f"checkpoint={THOROUGH} finds more, in a second an answer; other detectors: faithkit models"
    return "other detectors: faithkit models"


class Entailment(Protocol):
    """Scores pairs of texts: any model of natural language inference."""

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> "NDArray[Any]":
        """Returns the probabilities [N, 3] of entailment, neutral and contradiction, independent of the batch."""
        ...
