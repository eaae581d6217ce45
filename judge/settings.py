"""The settings of a judge that are stored with its weights."""

from dataclasses import asdict
from typing import Annotated, Any

from faithkit.calibration import ScoreCalibration
from faithkit.detector import JUDGE
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar, read_settings
from faithkit.records import LABELS
from faithkit.settings.check import check_value, options, read_stored
from faithkit.settings.types import OneOf, Tokens
from faithkit.weights.resolve import fetch_folder
from judge.options import TRAINABLE
from judge.prompt import PromptTemplate

PROMPT = ("text", "system", "name")  # stored fields of a template, without few-shot examples


@options("layout")
class Settings:
    """The settings that a judge was trained and calibrated with.

    Args:
        ask: The kind of reply.
        template: The prompt of its training.
        max_length: Tokens of prompt and reply in training.
        origin: Base weights, data with their fingerprint, and versions.
    """

    ask: Annotated[str, OneOf(TRAINABLE)]
    template: PromptTemplate
    max_length: Tokens
    calibration: ScoreCalibration
    origin: dict[str, Any]

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
        layout = sidecar.layout
        prompt = layout["prompt"]
        check_value("layout.prompt", prompt, dict[str, str])
        if prompt.keys() != set(PROMPT):
            raise UserError(f"layout.prompt has {shorten(', '.join(prompt))}, and not {', '.join(PROMPT)}")
        calibration = read_stored(ScoreCalibration, sidecar.thresholds, "thresholds")
        return cls(
            ask=layout["ask"],
            template=PromptTemplate(**prompt),
            max_length=layout["max_length"],
            calibration=calibration,
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
