"""The protocol of an audit: asks about changed copies, variants and labelled rows, and draws the conclusions."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from faithkit.baselines.word_overlap import overlap_predictions
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.statistics.bootstrap import share
from faithkit.statistics.conclusion import Decision
from faithkit.statistics.metric import Metric
from faithkit_workflows.audit.asking import NOT_ASKED, Asker
from faithkit_workflows.audit.faults import Fault, Figures, find_faults, find_weaknesses
from faithkit_workflows.audit.invariances import choose_rows, compare_variants
from faithkit_workflows.audit.material import Material, read_material
from faithkit_workflows.audit.measures import compare_detection, explain_labels, measure_accuracy, measure_detection
from faithkit_workflows.audit.mutations import make_cases
from faithkit_workflows.audit.target import Target

VERSION = 1  # raised when the same detector can get another verdict
ANSWERS = "answers.jsonl"
SMALLEST = 1e-9  # share of words that are not in the context: a single one is enough
AGAINST_OVERLAP = {
    Decision.WORSE: "worse than word overlap",
    Decision.LEVEL: "no better than word overlap",
    Decision.TOO_FEW: "not shown to be better than word overlap",
}
SHARE_OF_CASES, SHARE_OF_VARIANTS = 0.4, 0.75  # of the time that is left, as far as it is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """An audit: figures, faults, and the rows with their verdicts.

    Args:
        weak_on: The types of change of which surely less than half are found, the weakest first, with their recall.
        problems: How many rows have no verdict, by reason.
        row_seconds: The median over the rows that were asked for in this process.
    """

    target: str
    material: Material
    figures: Figures
    faults: list[Fault]
    weak_on: Mapping[str, Metric]
    problems: Counter[str]
    row_seconds: float | None
    seconds: float
    cases: list[Example]
    rows: Mapping[str, Example]
    answers: Mapping[str, Prediction]

    @property
    def headline(self) -> str:
        """The result in one sentence: faults, weaknesses, and whether it finds more changes than word overlap.

        Without a fault it is still not good: a detector that finds few changes, or no more than counting words does.
        """
        if not self.answers:
            return f"The detector gave no verdict at all: {self.figures.reason}"
        names = ", ".join(fault.name for fault in self.faults)
        parts = [f"{len(self.faults):,} fault{'s' * (len(self.faults) > 1)}: {names}" if self.faults else "No fault"]
        if self.weak_on:
            found = ", ".join(f"{name} ({100 * rate.value:.0f}%)" for name, rate in self.weak_on.items())
            parts.append(f"weak on {found}")
        against = self.figures.against_overlap
        if against is not None and against.verdict is not Decision.BETTER:
            parts.append(AGAINST_OVERLAP[against.verdict])
        accuracy = self.figures.accuracy
        if accuracy is not None and accuracy.conclusion.verdict in (Decision.LEVEL, Decision.TOO_FEW):
            parts.append("not shown to be better than simple baselines on the labelled rows")
        joint = "; " if self.faults else ", but "
        return f"{joint.join([parts[0], ', and '.join(parts[1:])])}." if parts[1:] else f"{parts[0]}."

    def to_dict(self) -> dict[str, Any]:
        """Converts figures, faults and counts to plain containers; texts of rows are left out."""
        return {
            "protocol": VERSION,
            "target": self.target,
            "headline": self.headline,
            "weak_on": {name: rate.to_dict() for name, rate in self.weak_on.items()},
            "faults": [asdict(fault) for fault in self.faults],
            "documents": {"source": self.material.source, "number": len(self.material.documents)},
            "left_out": dict(self.material.left_out),
            "problems": dict(self.problems),
            "figures": asdict(self.figures),
            "row_seconds": self.row_seconds,
            "seconds": round(self.seconds, 1),
        }


def run_audit(target: Target, folder: Path, config: Mapping[str, Any]) -> Audit:
    """Audits a target; verdicts that are in the folder already are not asked for again."""
    began = time.monotonic()
    material = read_material(config)
    seed = config["seed"]
    cases = make_cases(material.documents, material.others, num_cases=config["num_cases"], seed=seed)
    limits = {name: config[name] for name in ("row_seconds", "max_seconds", "batch_size")}
    asker = Asker(target, folder / ANSWERS, **limits)
    try:
        with asker.part(SHARE_OF_CASES):
            answers = asker.ask(cases, "changed copies")
        chosen = choose_rows(cases, material.rows, config["num_variants"])
        others = material.others or material.documents  # of passages that are irrelevant for certain
        with asker.part(SHARE_OF_VARIANTS):
            variants = [replace(row, id=f"base/{row.id}") for row in chosen]
            invariance, asked, of_variants = compare_variants(
                asker, variants, others, long_words=config["long_words"], seed=seed
            )
        if material.rows:
            answers |= asker.ask(material.rows, "labelled rows")
    finally:
        asker.close()
    plain = [*cases, *material.rows]
    by_overlap = overlap_predictions([row for row in cases if row.id in answers], SMALLEST)
    called = [row for row in plain if row.id in answers]
    problems, reasons = asker.problems, asker.problems.most_common()
    figures = Figures(
        called=share([answers[row.id].label == HALLUCINATED for row in called], [row.group for row in called]),
        detection=measure_detection(cases, answers),
        overlap=measure_detection(cases, by_overlap),
        against_overlap=compare_detection(cases, answers, by_overlap, name=target.name),
        invariance=invariance,
        explained=explain_labels(plain, answers),
        accuracy=measure_accuracy(material.rows, answers, name=target.name),
        name=target.name,
        num_asked=len(answers) + len(of_variants) + sum(problems.values()),
        num_failed=sum(problems.values()),
        reason=next((one for one, _ in reasons if not one.startswith(NOT_ASKED)), reasons[0][0] if reasons else ""),
    )
    return Audit(
        target=target.name,
        material=material,
        figures=figures,
        faults=find_faults(figures),
        weak_on=find_weaknesses(figures.detection),
        problems=problems,
        row_seconds=median(asker.seconds) if asker.seconds else None,
        seconds=time.monotonic() - began,
        cases=cases,
        rows={row.id: row for row in plain} | asked,
        answers=answers | of_variants,
    )
