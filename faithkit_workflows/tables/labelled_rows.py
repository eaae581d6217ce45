"""Rows that people labelled, to measure a judge's error on: those alone that are new to the judge."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from data_modules.build import dataset_of, read_block, read_excluded
from faithkit.errors import UserError
from faithkit.files.model_folder import sidecar_of
from faithkit.provenance.seen_rows import find_leaks
from faithkit.records import Example
from faithkit.weights.used_model import UsedModel
from faithkit_workflows.detectors.loading import describe_detector

log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Labelled rows of one dataset, and a note on how they were chosen."""

    dataset: str
    rows: Sequence[Example]
    note: str = ""

    def new_to(self, checkpoint: str, who: str) -> "LabelledSet":
        """Leaves out what a detector was trained on, chosen on or calibrated on.

        Rows that taught a teacher of weak labels stand in no list of seen rows. So of a dataset that the training read
        those alone remain that its `data.exclude` names.
        """
        found = self
        for model in describe_detector(checkpoint):
            found = found._new_to(model, who)
        return found

    def _new_to(self, model: UsedModel, who: str) -> "LabelledSet":
        trained_on, seen = _training(model.path), model.seen
        if trained_on is None and seen is None:
            return replace(self, note=f"{self.note} (not known whether {who} was trained on them)")
        kept = list(self.rows)
        if trained_on and self.dataset in _datasets(trained_on):
            excluded = read_excluded(trained_on["exclude"])
            kept = [example for example in kept if excluded.covers(example)]
        if seen is not None:
            leaked = find_leaks(kept, seen).rows
            kept = [example for example, known in zip(kept, leaked, strict=True) if not known]
        if not kept:
            hint = "train it with data.exclude=[{dataset, path}] of what it will judge, or name other rows"
            raise UserError(f"benchmark.judge_labels: {who} was trained on every row of {self.dataset}", hint=hint)
        if len(kept) == len(self.rows):
            return self
        log.info("%s is compared with %d of %d labelled rows of %s", who, len(kept), len(self.rows), self.dataset)
        return replace(self, rows=kept, note=f"{self.note} that are new to {who}")


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """All labelled rows that a benchmark names."""

    sets: Sequence[LabelledSet]

    @property
    def rows(self) -> list[Example]:
        """Joins the rows of all sets."""
        return list(chain.from_iterable(one.rows for one in self.sets))

    @property
    def name(self) -> str:
        """Names the rows for a table."""
        return "; ".join(f"{len(one.rows):,} rows of {one.dataset}{one.note}" for one in self.sets)

    def new_to(self, checkpoint: str, who: str) -> "LabelledRows":
        """Leaves out of each set what a detector has seen.

        Raises:
            UserError: Nothing of a set is left.
        """
        return LabelledRows([one.new_to(checkpoint, who) for one in self.sets])


def read_labelled(block: Mapping[str, Any]) -> LabelledRows | None:
    """Reads the rows of `benchmark.judge_labels` that are new to the critic."""
    sets = []
    for number, one in enumerate(block.get("judge_labels") or []):
        rows = [replace(example, id=f"{number}/{example.id}") for example in read_block(one) if example.label]
        sets.append(LabelledSet(dataset_of(one), rows))
    if not sets:
        return None
    labelled = LabelledRows(sets)
    return labelled.new_to(block["critic"], "the critic") if block["critic"] else labelled


def _training(checkpoint: str) -> Mapping[str, Any] | None:
    """Finds the `data` block that a detector was trained with, where its folder tells."""
    sidecar = sidecar_of(checkpoint)
    data = (sidecar.origin.get("config") or {}).get("data") if sidecar else None
    return data if isinstance(data, Mapping) and "exclude" in data else None


def _datasets(data: Mapping[str, Any]) -> set[str]:
    """Names the datasets that a training read: its parts, and the audit where weak labels are made of it."""
    parts = data["parts"]
    blocks = parts.values() if isinstance(parts, Mapping) else parts
    read = [part for part in blocks if part.get("only") != "test"]
    names = {dataset_of(part) for part in read}
    return names | ({"audit"} if any(part.get("audit_path") for part in read) else set())
