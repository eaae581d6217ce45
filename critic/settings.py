"""What a sequence critic needs beside its weights."""

from dataclasses import asdict, dataclass
from typing import Any

from common.model_folder import CRITIC, Sidecar
from common.records import LABELS
from critic.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What must be known to use the weights as they were trained.

    Args:
        max_length: Tokens of a sequence.
        order: Which text stands first.
        origin: Where this came from: base weights, data and its fingerprint, versions.
    """

    max_length: int
    order: str
    verdict: Verdict
    origin: dict[str, Any]

    def to_sidecar(self) -> Sidecar:
        return Sidecar(
            kind=CRITIC,
            labels=list(LABELS),
            layout={"order": self.order, "max_length": self.max_length},
            thresholds=asdict(self.verdict),
            origin=self.origin,
        )

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        return cls(
            max_length=int(sidecar.layout["max_length"]),
            order=sidecar.layout["order"],
            verdict=Verdict(**sidecar.thresholds),
            origin=sidecar.origin,
        )
