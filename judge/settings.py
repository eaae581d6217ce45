"""The options of training a judge, and the settings that are stored with its weights."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from faithkit.arguments import check_mapping, check_names, check_number, check_text
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.detector import JUDGE
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar
from faithkit.records import LABELS
from faithkit.settings.check import check_fields
from faithkit.settings.types import Hint, OneOf, PartialShare, Switch, Text, Tokens
from faithkit.training.training_options import Aim
from faithkit.weights.adapters import ALL_LINEAR, MAX_ALPHA, MAX_RANK
from judge.asking import TRAINABLE
from judge.prompt import PromptTemplate

Rank = Annotated[int, Field(ge=1, le=MAX_RANK)]
Modules = Annotated[
    Annotated[str, OneOf((ALL_LINEAR,))] | Annotated[list[Text], Field(min_length=1)],
    Hint("use all-linear, or a list of layers' names: [q_proj,v_proj]"),
]
PROMPT = ("text", "system", "name")  # stored fields of a template, without few-shot examples
MAX_LENGTH = 1_000_000  # tokens; more than any model reads


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Options of `model=judge`.

    Args:
        weights: A causal model: a folder, hub name or local name.
        ask: The reply that it is trained for: verdict, judgement or spans.
        prompts: A folder with another prompt, `<ask>.txt`; None takes the built-in prompt.
        max_length: Tokens of prompt and reply; the oldest turns are removed if they do not fit.
        packed: Packs sequences without padding.
        share_beginnings: Batches rows with the same knowledge and history together, and encodes this prefix once.
        dropout: Dropout of the model; None keeps its default.
        gradient_checkpointing: Trades time for memory.
        threshold_aim: Metric that the threshold of P(hallucinated) maximises on validation.
        lora_rank: Trains only LoRA adapters of this rank; None trains all weights.
        lora_alpha: Scales the adapters' output, divided by the rank.
        lora_dropout: Dropout of the adapters' input.
        lora_modules: Layers with an adapter: all-linear, or suffixes of their names.
    """

    weights: Text
    max_length: Tokens
    ask: Annotated[str, OneOf(TRAINABLE)] = "judgement"
    prompts: Text | None = None
    packed: Switch = True
    share_beginnings: Switch = True
    dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False
    threshold_aim: Aim = "macro_f1"
    lora_rank: Annotated[
        Rank | None, Hint(f"use a whole number from 1 to {MAX_RANK}, or null to train all weights")
    ] = None
    lora_alpha: Annotated[int, Field(ge=1, le=MAX_ALPHA), Hint(f"use a whole number from 1 to {MAX_ALPHA}")] = 32
    lora_dropout: PartialShare = 0.0
    lora_modules: Modules = ALL_LINEAR

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that a judge was trained and calibrated with.

    Args:
        ask: The kind of reply.
        template: The prompt of its training.
        max_length: Tokens of prompt and reply in training.
        origin: Base weights, data with their fingerprint, and versions.
    """

    ask: str
    template: PromptTemplate
    max_length: int
    calibration: ScoreCalibration
    origin: dict[str, Any]

    def __post_init__(self) -> None:
        check_text("layout.ask", self.ask, TRAINABLE)
        check_number("layout.max_length", self.max_length, 1, MAX_LENGTH, whole=True)
        check_mapping("origin", self.origin)

    def to_sidecar(self) -> Sidecar:
        """Converts the settings to the form of `faithkit.json`."""
        layout = {
            "ask": self.ask,
            "max_length": self.max_length,
            "prompt": {name: getattr(self.template, name) for name in PROMPT},
        }
        thresholds = asdict(self.calibration)
        return Sidecar(kind=JUDGE, labels=list(LABELS), layout=layout, thresholds=thresholds, origin=self.origin)

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        """Reads the settings of `faithkit.json`."""
        if tuple(sidecar.labels) != LABELS:
            raise UserError(f"labels are {shorten(sidecar.labels)}, and a judge's are {', '.join(LABELS)}")
        check_names("thresholds", sidecar.thresholds, ScoreCalibration)
        prompt = sidecar.layout["prompt"]
        check_mapping("layout.prompt", prompt)
        if prompt.keys() != set(PROMPT):
            raise UserError(f"layout.prompt has {shorten(', '.join(prompt))}, and not {', '.join(PROMPT)}")
        for name, text in prompt.items():
            if not isinstance(text, str):
                raise UserError(f"layout.prompt.{name} is {shorten(text)}, and no text")
        return cls(
            ask=sidecar.layout["ask"],
            template=PromptTemplate(**prompt),
            max_length=sidecar.layout["max_length"],
            calibration=ScoreCalibration(**sidecar.thresholds),
            origin=sidecar.origin,
        )
