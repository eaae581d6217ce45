"""Describes the models behind predictions: weights, origin of the threshold, and seen rows."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from faithkit.detector import detector_kinds
from faithkit.files.jsonl import read_strict_json
from faithkit.files.model_folder import MARK, SIDECAR, read_stored
from faithkit.packages import is_missing
from faithkit.provenance.seen_rows import SeenRows, read_seen
from faithkit.weights.resolve import fetch_folder, hash_folder, hash_weights, hub_file, is_hub_name

CHECKPOINT = "checkpoint"  # the role of the model that is evaluated
DEFAULT_THRESHOLD = "0.5, the default: nothing was fitted"


@dataclass(frozen=True, kw_only=True)
class UsedModel:
    """A model that predictions come from.

    Args:
        role: `checkpoint`, or for instance `judge`.
        path: Its path on the command line.
        kind: critic, tagger or generator; None for a model from elsewhere.
        weights: A hash of its weights; None if they are not available.
        threshold: The threshold of its labels and its origin; None for a model without labels.
        find_seen: Finds the rows of its training, selection and calibration, when they are asked for.
        reason: Why they are unknown.
    """

    role: str
    path: str
    kind: str | None = None
    weights: str | None = None
    threshold: str | None = None
    find_seen: Callable[[], SeenRows | None] = lambda: None
    reason: str = ""

    @cached_property
    def seen(self) -> SeenRows | None:
        """The rows of its training, selection and calibration; None if unknown."""
        return self.find_seen()

    def to_dict(self) -> dict[str, Any]:
        """Returns the description for a predictions file and metrics.json."""
        return {name: getattr(self, name) for name in ("role", "path", "kind", "weights", "threshold")}


def describe_model(path: str, role: str = CHECKPOINT) -> UsedModel:
    """Describes a model that has been loaded: a run, an hf/ folder or a hub name."""
    folder = fetch_folder(path)
    stored = read_stored(folder) if folder else None
    if folder is None or stored is None:
        return UsedModel(
            role=role,
            path=path,
            weights=hash_weights(path),
            threshold=DEFAULT_THRESHOLD if role == CHECKPOINT else None,
            reason="it was not trained with faithkit",
        )
    is_unreadable = is_missing("pyarrow")  # an environment for scoring alone has none
    seen = None if is_unreadable else read_seen(folder)
    unknown = "pyarrow is not installed" if is_unreadable else "it has no record of the rows that it has seen"
    return UsedModel(
        role=role,
        path=path,
        kind=stored.get("kind"),
        weights=hash_folder(folder, stored.get("hashes")),
        threshold=_threshold(stored),
        find_seen=lambda: seen,
        reason="" if seen else unknown,
    )


def seen_before(weights: str | None) -> SeenRows:
    """Reads the rows that the initial weights of a training have seen; none for weights from elsewhere."""
    if weights is None:
        return SeenRows({})
    folder: Path | None = Path(weights).expanduser()
    if is_hub_name(weights):
        file = hub_file(weights)  # the weights are loaded: no request to the hub is needed
        config = read_strict_json(file, hint="download it again") if file else {}
        folder = fetch_folder(weights) if isinstance(config, dict) and MARK in config else None
    if folder is None or not (folder / SIDECAR).exists():
        return SeenRows({})
    return read_seen(folder) or SeenRows({}, (weights,))


def _threshold(stored: Mapping[str, Any]) -> str | None:
    kind = detector_kinds().get(str(stored.get("kind")))
    name = kind.threshold_key if kind else None
    thresholds = stored.get("thresholds")
    if name is None or not isinstance(thresholds, Mapping) or name not in thresholds:
        return None
    aim = str(thresholds.get("aim", ""))
    if aim.startswith("none"):
        return DEFAULT_THRESHOLD
    rows = ""
    with suppress(KeyError, TypeError, AttributeError, ValueError):  # the validation sets, where they are recorded
        sizes = stored["origin"]["data"]["sizes"]["validation"]
        rows = f" ({', '.join(f'{name}: {count:,} rows' for name, count in sizes.items())})"
    chosen = "of argmax" if aim == "argmax" else f"chosen for {aim} on validation{rows}"
    return f"{thresholds[name]:.4g}, {chosen}"
