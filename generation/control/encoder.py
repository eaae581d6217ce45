"""Encodes dialogue turns with the control tokens of their responses as prefix.

The cache stores the measured values, not the tokens, because the terciles of overlap depend on the training rows.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import Columns, Encoder, Subset
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.sequence_layout import CONTROL_TOKENS
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.errors import UserError
from faithkit.records import Example
from generation.control.ctrl import Ctrl
from generation.control.features import OVERLAP, Terciles, fit_release_terciles, fit_terciles, levels, overlap_of

PREFIX = "feature: "  # of the columns

log = logging.getLogger("faithkit")


class ControlEncoder(Encoder):
    """Adds the control tokens of each response to the batches of another encoder.

    Args:
        inner: Encodes everything else.
        turns: Knows the ids of the control tokens.
        ctrl: Measures the features.
    """

    def __init__(self, inner: Encoder, turns: TurnEncoder, ctrl: Ctrl):
        self.inner, self.ctrl = inner, ctrl
        self.ids = [np.array([turns.ids[t] for t in CONTROL_TOKENS[group]], np.int32) for group in ctrl.groups]
        self.terciles: Terciles | None = None

    @property
    def thresholds(self) -> dict[str, Any]:
        """The fitted boundaries of features, for the sidecar."""
        group = overlap_of(self.ctrl.groups)
        return {group: list(self.terciles)} if group and self.terciles else {}

    def fingerprint(self) -> str:
        return f"{self.inner.fingerprint()}:{self.ctrl.fingerprint()}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Adds a column of values for each feature to the inner encoder's columns."""
        measured = self.ctrl.measure(examples, keep=True)
        return self.inner.encode(examples, counts) | {PREFIX + group: values for group, values in measured.items()}

    def fit(self, train: Sequence[Subset]) -> None:
        """Fits the terciles of lexical overlap on the training rows, and logs the share of each token."""
        if not train:
            hint = "set data.streaming=false, or leave control out"
            raise UserError("data.streaming with control: terciles need the whole training split", hint=hint)
        self.ctrl.release()
        rows = {
            group: np.concatenate([s.encoded.columns[PREFIX + group][s.indices] for s in train])  # type: ignore[index]
            for group in self.ctrl.groups
        }
        if group := overlap_of(rows):
            self.terciles = (fit_terciles if group == OVERLAP else fit_release_terciles)(rows[group])
            log.info("control: terciles of lexical overlap %.3f and %.3f", *self.terciles)
        shares = [np.bincount(column) / len(column) for column in levels(rows, self.terciles).T]
        described = [
            f"{token.strip('<|>')} {share:.0%}"
            for group, of_group in zip(self.ctrl.groups, shares, strict=True)
            for token, share in zip(CONTROL_TOKENS[group], of_group, strict=False)
        ]
        log.info("control: of the training responses %s", ", ".join(described))

    def collate(self, columns: Columns) -> Mapping[str, NDArray[Any]]:
        """Makes the inner encoder's batch with the control tokens of each row."""
        values = {group: columns[PREFIX + group] for group in self.ctrl.groups}
        others = {name: column for name, column in columns.items() if not name.startswith(PREFIX)}
        found = levels(values, self.terciles)
        ids = np.stack([token_ids[found[:, place]] for place, token_ids in enumerate(self.ids)], axis=1)
        control = Ragged(ids.ravel(), np.arange(len(ids) + 1) * len(self.ids))
        return self.inner.collate({**others, "control": control})
