"""The settings of a judge that are stored with its weights."""

from dataclasses import asdict, dataclass
from typing import Any

from faithkit.arguments import check_mapping, check_names, check_number, check_text
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.detector import JUDGE
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar, read_settings
from faithkit.records import LABELS
from faithkit.weights.resolve import fetch_folder
from judge.options import TRAINABLE
from judge.prompt import PromptTemplate

PROMPT = ("text", "system", "name")  # stored fields of a template, without few-shot examples
MAX_LENGTH = 1_000_000  # tokens; more than any model reads


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


def stored_judge(path: str) -> tuple[str, Settings | None]:
    """Finds a trained judge by its run or hf/ folder, or any model by folder, local or hub name.

    Returns:
        A folder or a name for an engine, and the settings of its training; None for an external model.
    """
    folder = fetch_folder(path)
    settings = read_settings(folder, JUDGE, Settings.from_sidecar) if folder else None
    return str(folder or path), settings
