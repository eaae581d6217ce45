"""Says before training that there is nothing to tell apart: no labels, or labels of one class alone."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from data_modules.splits import Subset
from faithkit.errors import UserError
from faithkit.records import LABELS

LABELLED = "data=faithcritic, begin, ragtruth and embedded have both"

log = logging.getLogger("faithkit")


def check_labels(subsets: dict[str, list[Subset]]) -> None:
    """Refuses a training split without both labels and validation without any, and warns of validation with one alone.

    Args:
        subsets: The encoded examples by split; a training split that is streamed is not there and not looked at.

    Raises:
        UserError: Every training example has one label, or none has any; or no validation example has one.
    """
    if len(rows := _labels(subsets["train"])) and (problem := _one_sided(rows, "training")):
        raise UserError(f"{problem}: there is nothing to tell apart", hint=LABELLED)
    rows = _labels(subsets["validation"], weak=False)
    if problem := _one_sided(rows, "validation"):
        if np.isnan(rows).all():
            hint = "label some of them, or set data.validation_fraction=0.1 where rows of training have labels"
            raise UserError(f"{problem}, and checkpoint and threshold are chosen by them", hint=hint)
        log.warning("%s: its metrics cannot choose a checkpoint or a threshold; %s", problem, LABELLED)


def _labels(subsets: Sequence[Subset], *, weak: bool = True) -> Any:
    """The label of each row: 1 for hallucinated, NaN for none; with `weak` also a weak one, by its side of one half."""
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


def _one_sided(labels: Any, split: str) -> str | None:
    known = labels[~np.isnan(labels)]
    if not len(known):
        return f"no {split} example has a label"
    if known.min() == known.max():
        return f"all {len(known):,} labelled {split} examples are {LABELS[int(known[0])]}"
    return None
