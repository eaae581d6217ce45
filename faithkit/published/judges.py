"""Published judges and detectors on HalluDial, HaluEval and DiaHalu, in percent, by part of the benchmark.

HalluDial's paper gives precision and recall as means over both classes, DiaHalu's those of the hallucinated class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from faithkit.published.tables import published_table

ALL = "all"
# Benchmark to tables, each with the column that names the part; None where all rows are of one part.
TABLES: Mapping[str, Sequence[tuple[str, str | None, str]]] = {
    "halludial": (("halludial_detection", None, ALL), ("halludial_scenarios", "scenario", "")),
    "halueval": (("halludial_on_halueval_dialogue", None, "dialogue"), ("halludial_on_halueval_others", "task", "")),
    "diahalu": (("diahalu_detection", "domain", ""), ("diahalu_cot", "domain", "")),
}
MEAN_OF_CLASSES = ("halludial", "halueval")  # in whose tables precision and recall are means


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFigures:
    """One system's figures on one part; None where they were not given.

    Args:
        note: The paper and its table, and what was tested.
    """

    system: str
    part: str
    macro_f1: float | None = None
    f1: float | None = None
    faithful_f1: float | None = None
    precision: float | None = None
    recall: float | None = None
    mean_precision: float | None = None
    mean_recall: float | None = None
    accuracy: float | None = None
    note: str


@cache
def judge_figures(benchmark: str, part: str = ALL) -> tuple[JudgeFigures, ...]:
    """Selects the figures of a part, the best first; none for other benchmarks."""
    found = [row for row in _every(benchmark) if row.part == part]
    return tuple(sorted(found, key=lambda row: -max(row.macro_f1 or 0.0, row.f1 or 0.0)))


def published_counts(benchmark: str) -> tuple[dict[str, tuple[int, int]], str]:
    """Gives examples and hallucinated ones by part, with `all`, and the paper's name; nothing for other benchmarks."""
    if benchmark == "diahalu":
        table = published_table("diahalu_counts")
        return {row["domain"]: (row["dialogues"], row["hallucinated"]) for row in table.rows}, table.citation
    if benchmark != "halludial":
        return {}, ""
    table = published_table("halludial_counts")
    parts = {row["scenario"]: (row["train"] + row["test"], row["hallucinated"]) for row in table.rows}
    whole = (sum(examples for examples, _ in parts.values()), sum(wrong for _, wrong in parts.values()))
    return parts | {ALL: whole}, table.citation


def _every(benchmark: str) -> list[JudgeFigures]:
    found = []
    for name, column, part in TABLES.get(benchmark, ()):
        table = published_table(name)
        for row in table.rows:
            kept: dict[str, Any] = {n: row.get(n) for n in ("macro_f1", "f1", "faithful_f1", "accuracy")}
            mean = "mean_" if benchmark in MEAN_OF_CLASSES else ""
            kept |= {f"{mean}{n}": row[n] for n in ("precision", "recall")}
            note = f"{table.citation}: {table.protocol}"
            found.append(JudgeFigures(system=row["system"], part=row[column] if column else part, note=note, **kept))
    return found
