"""Reads learning curves: of each logged value the steps and the numbers."""

import csv
import math
from pathlib import Path

from faithkit.runs.run import Curve
from faithkit.runs.wandb_runs import SUFFIX, read_wandb_curves

STEP = "step"


def read_curves(path: Path) -> dict[str, Curve]:
    """Reads the curves of a run, `Run.curves`; damaged lines, and values that are no numbers, are left out."""
    if path.suffix == SUFFIX:
        return read_wandb_curves(path)
    curves: dict[str, Curve] = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.DictReader(line.replace("\0", "") for line in file)
        for row in rows:
            step = _number(row.get(STEP))
            if step is None or None in row or None in row.values():  # a line with too many fields, or cut short
                continue
            for name, text in row.items():
                value = _number(text)
                if name != STEP and value is not None:
                    curves.setdefault(name, []).append((int(step), value))
    return curves


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
