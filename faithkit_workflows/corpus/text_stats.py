"""Lengths of texts, sizes of dialogues, and how much responses copy: the parts of statistics that no label is for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit_workflows.corpus.columns import UNKNOWN, Columns

NUM_CELLS = 40  # of the plot of coverage against density, a side
TEXTS = {"response": "response", "context": "knowledge", "turn": "turn before"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of texts; all 0 where there are none."""

    mean: float
    max: int
    median: float
    high: float  # 95% are no longer
    num_texts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogues:
    """A column of FaithDial's table 2.

    Args:
        num_turns: Of both speakers, up to the last response, as no example has what is behind it; 0 where no response
            has a history.
        response, before, knowledge: Mean tokens (words and punctuation marks) of a response, of the turn before it,
            and of its knowledge.
        edited: The share of responses that were edited; None where no original is told.
        rounds: Mean rounds of a dialogue, where the examples tell it.
    """

    num_responses: int
    num_dialogues: int
    num_turns: int
    response: float
    before: float
    knowledge: float
    edited: float | None
    rounds: float | None

    @property
    def turns_each(self) -> float:
        return self.num_turns / max(1, self.num_dialogues)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The share of their knowledge that responses copy, and in how long pieces.

    Args:
        cells: How many responses lie in each cell of coverage (0 to 1, rows) and density (0 to `top`, columns); what
            lies above is in the last column.
    """

    num_responses: int
    coverage: float
    density: float
    top: float
    cells: list[list[int]]


def lengths_of(lengths: NDArray[np.int64]) -> Lengths:
    """Sums up lengths; those of texts that are not there are left out."""
    known = lengths[lengths != UNKNOWN]
    if not len(known):
        return Lengths(mean=0.0, max=0, median=0.0, high=0.0, num_texts=0)
    median, high = np.quantile(known, (0.5, 0.95))
    return Lengths(
        mean=float(known.mean()), max=int(known.max()), median=float(median), high=float(high), num_texts=len(known)
    )


def lengths_table(columns: Columns) -> dict[str, dict[str, Lengths]]:
    """The lengths of each kind of text that there is, in words and in tokens; knowledge counts once a source."""
    _, first = np.unique(columns.contexts.values, return_index=True)
    found = {}
    for name, shown in TEXTS.items():
        rows = first if name == "context" else slice(None)
        both = {unit: lengths_of(columns.whole_column(f"{name}_{unit}")[rows]) for unit in ("words", "tokens")}
        if both["words"].num_texts:
            found[shown] = both
    return found


def dialogues_of(columns: Columns, rows: NDArray[np.bool_]) -> Dialogues:
    """Sums up the dialogues of some rows."""
    groups = columns.groups.values[rows]
    longest = np.zeros(len(columns.groups.numbers), np.int64)
    np.maximum.at(longest, groups, columns.whole_column("history")[rows] + 1)
    edited, rounds = (columns.whole_column(name)[rows] for name in ("edited", "rounds"))
    tokens = {name: lengths_of(columns.whole_column(f"{name}_tokens")[rows]).mean for name in TEXTS}
    return Dialogues(
        num_responses=int(rows.sum()),
        num_dialogues=len(np.unique(groups)),
        num_turns=int(longest.sum()) if (columns.whole_column("history")[rows] > 0).any() else 0,
        response=tokens["response"],
        before=tokens["turn"],
        knowledge=tokens["context"],
        edited=_mean_known(edited),
        rounds=_mean_known(rounds),
    )


def extraction_of(columns: Columns) -> dict[str, Extraction]:
    """Coverage and density of the responses and, where some were edited, of the originals; on one scale."""
    pairs = {}
    for name, prefix in (("responses", ""), ("before the edits", "original_")):
        values = np.stack([columns.real_column(prefix + column) for column in ("coverage", "density")], axis=1)
        known = values[np.isfinite(values[:, 0])].astype(np.float64)
        if len(known):
            pairs[name] = known
    # 99% lie below the top, so that a few copied passages do not hide the rest.
    top = max((float(np.ceil(np.quantile(pair[:, 1], 0.99))) for pair in pairs.values()), default=1.0)
    return {name: _extraction(pair, max(top, 1.0)) for name, pair in pairs.items()}


def _extraction(values: NDArray[np.float64], top: float) -> Extraction:
    coverage, density = values.T
    limits = ((0.0, 1.0 + 1e-9), (0.0, top))
    cells, _, _ = np.histogram2d(coverage, np.minimum(density, top), bins=NUM_CELLS, range=limits)
    return Extraction(
        num_responses=len(values),
        coverage=float(coverage.mean()),
        density=float(density.mean()),
        top=top,
        cells=cells.astype(int).tolist(),
    )


def _mean_known(values: NDArray[np.int64]) -> float | None:
    known = values[values != UNKNOWN]
    return float(known.mean()) if len(known) else None
