"""Checks before training that there are labels of both classes."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from data_modules.encoding.encoder import Subset
from faithkit.errors import UserError
from faithkit.records import LABELS

HINT = "data=faithcritic, begin, ragtruth and embedded have both labels"

log = logging.getLogger("faithkit")


def check_labels(subsets: dict[str, list[Subset]]) -> None:
    """Refuses training without both labels and validation without labels; warns if validation has a single label.

    Args:
        subsets: The encoded examples by split; a streamed training split is not included and not checked.

    Raises:
        UserError: The training examples lack labels of one class or of both, or no validation example has a label.
    """
    if len(labels := _read_labels(subsets["train"])) and (problem := _describe_missing(labels, "training")):
        raise UserError(f"{problem}: a detector needs both", hint=HINT)
    labels = _read_labels(subsets["validation"], weak=False)
    if problem := _describe_missing(labels, "validation"):
        if np.isnan(labels).all():
            hint = "label some of them, or set data.validation_fraction=0.1 if training rows have labels"
            raise UserError(f"{problem}, and they choose the checkpoint and the threshold", hint=hint)
        log.warning("%s: no checkpoint or threshold can be chosen by its metrics; %s", problem, HINT)


def _read_labels(subsets: Sequence[Subset], *, weak: bool = True) -> Any:
    """Returns the label of each row: 1 for hallucinated, NaN for none; with `weak` also weak labels, cut at 0.5."""
    found = []
    for subset in subsets:
        columns = subset.encoded.columns
        label = np.asarray(columns["label"])[subset.indices].astype(np.float64)
        label[label < 0] = np.nan
        if weak and "target" in columns:
            target = np.asarray(columns["target"])[subset.indices]
            label = np.where(np.isnan(label) & ~np.isnan(target), target >= 0.5, label)
        found.append(label)
    return np.concatenate(found) if found else np.zeros(0)


def _describe_missing(labels: Any, split: str) -> str | None:
    known = labels[~np.isnan(labels)]
    if not len(known):
        return f"no {split} example has a label"
    if known.min() == known.max():
        return f"all {len(known):,} labelled {split} examples are {LABELS[int(known[0])]}"
    return None
