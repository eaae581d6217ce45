"""The settings of a generator that are stored with its weights."""

from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from data_modules.encoding.sequence_layout import CONTROL_TOKENS, KNOWLEDGE, SEEKER, WIZARD, TurnLayout
from faithkit.detector import GENERATOR
from faithkit.files.model_folder import Sidecar
from faithkit.settings.check import options, read_stored
from faithkit.settings.types import Conflict, OneOf, Share
from generation.weights import ARCHITECTURES


@options()
class Settings:
    """The settings that a generator was trained with.

    Args:
        layout: How an example becomes a sequence.
        architecture: A key of `generation.weights.ARCHITECTURES`.
        thresholds: The boundaries of control features that training fitted, by group.
        origin: Base weights, data with their fingerprint, and versions.
    """

    layout: TurnLayout
    architecture: Annotated[str, OneOf(tuple(ARCHITECTURES))]
    thresholds: dict[Annotated[str, OneOf(tuple(CONTROL_TOKENS))], list[Share]]
    origin: dict[str, Any]

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.layout.kind != ARCHITECTURES[s.architecture].kind,
            "layout.kind is {s.layout.kind!r}",
            "{s.architecture} models read another layout",
        ),
        Conflict(
            lambda s: s.wrong_group,
            "thresholds.{s.wrong_group} has not a boundary between each two levels",
            "train the generator again",
        ),
    )

    @property
    def wrong_group(self) -> str | None:
        """The first control group with the wrong number of thresholds."""
        for group, boundaries in self.thresholds.items():
            if len(boundaries) != len(CONTROL_TOKENS[group]) - 1:
                return group
        return None

    def to_sidecar(self) -> Sidecar:
        """Gives the settings in the form that `faithkit.json` stores."""
        layout = asdict(self.layout) | {"control": list(self.layout.control), "architecture": self.architecture}
        layout["markers"] = {"knowledge": KNOWLEDGE, "seeker": SEEKER, "wizard": WIZARD}
        return Sidecar(kind=GENERATOR, labels=[], layout=layout, thresholds=self.thresholds, origin=self.origin)

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        """Reads the settings back from a stored sidecar."""
        layout = {name: value for name, value in sidecar.layout.items() if name not in ("architecture", "markers")}
        return cls(
            layout=read_stored(TurnLayout, layout, "layout"),
            architecture=sidecar.layout["architecture"],
            thresholds=sidecar.thresholds,
            origin=sidecar.origin,
        )
