"""The protocol of an audit: asks about changed copies, variants and labelled rows, and names the faults.

The limits of faults are part of the protocol's version.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from faithkit.baselines.word_features import overlap_predictions
from faithkit.pages.page_tables import format_percent
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.statistics.bootstrap import Conclusion, Decision, share
from faithkit.statistics.metric import Metric
from faithkit_workflows.audit.measures import (
    AGAIN,
    BEFORE,
    BEHIND,
    CLAIM,
    DESCRIPTIONS,
    LATE,
    LONG,
    ORDER,
    REPEATED,
    SHUFFLED,
    SINGLE,
    Accuracy,
    Detection,
    Invariance,
    compare_detection,
    compare_variants,
    explain_labels,
    measure_accuracy,
    measure_detection,
)
from faithkit_workflows.audit.mutations import Material, make_cases, read_material
from faithkit_workflows.audit.target import NOT_ASKED, Asker, Target

VERSION = 3  # raised when the same detector can get another verdict
ANSWERS = "answers.jsonl"
SMALLEST = 1e-9  # share of words that are not in the context: a single one is enough
SHARE_OF_CASES, SHARE_OF_VARIANTS = 0.4, 0.75  # of the time that is left, as far as it is needed

CONSTANT, LENGTH, OVERLAP, BLIND = "one verdict for all", "answer length", "word overlap", "blind to changes"
UNSTABLE, BATCH, COPIES = "unstable", "batch", "copies"
END_OF_CONTEXT, END_OF_ANSWER, DILUTED = "end of the context", "end of the answer", "dilution"
TWO_HOPS, DISTRUST = "own claims as evidence", "own claims as errors"
ALARMS, MARKS, CALIBRATION, THRESHOLD = "false alarms", "marks", "calibration", "threshold"
BASELINE, FAILURES = "simple baseline", "no verdict"
BLIND_TO = "blind to changes of type '{}'"  # variants give their names to the other faults
NEARLY_ALL = 0.98  # of the answers have one label
EXPLAINED = 0.95  # AUROC of length or overlap for the detector's labels
MIN_MOVED = 0.05  # of rows whose verdict depends on the batch, or on chance
MAX_CHANGED, MAX_CHANGED_LOW = 0.15, 0.05  # share of labels that change, and the low end of its interval
UNMOVED, MIN_COPIES = 0.8, 8  # share of copies with the verdict of their original, and how many there must be
MAX_RECALL = 0.5  # the upper bound of the interval for a type of change that a detector is weak on
MAX_AUROC, MAX_COPIES, MAX_ALARMS, MIN_MARKED = 0.6, 0.1, 0.2, 0.5
MAX_ERROR, MAX_GAIN, MAX_FAILED = 0.1, 0.02, 0.01


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault by its name, and what was measured, in a sentence."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures of an audit.

    Args:
        called: The share of unchanged rows and copies that are called hallucinated, variants aside.
        overlap: What calling each answer with an unknown word hallucinated makes of the same changed copies.
        against_overlap: Whether the detector finds more changed copies than this baseline.
        explained: AUROC of length and overlap for the detector's labels.
        num_asked, num_failed: Rows that were asked for, and those without a verdict.
        reason: The most frequent one.
    """

    called: Metric | None
    detection: Detection
    overlap: Detection
    against_overlap: Conclusion | None
    invariance: Invariance
    explained: dict[str, float]
    accuracy: Accuracy | None
    name: str
    num_asked: int
    num_failed: int
    reason: str = ""


def find_faults(figures: Figures) -> list[Fault]:
    """Names the faults, those first that explain the others."""
    found, called, detection, accuracy = list[Fault](), figures.called, figures.detection, figures.accuracy
    is_constant = called is not None and not 1 - NEARLY_ALL < called.value < NEARLY_ALL
    if called is not None and is_constant:
        label = "hallucinated" if called.value > 0.5 else "faithful"
        size = max(called.value, 1 - called.value)
        found.append(Fault(CONSTANT, f"It calls {100 * size:.1f}% of the answers {label}, whatever they say."))
    for key, name in (("length", LENGTH), ("overlap", OVERLAP)):
        if (value := figures.explained.get(key, 0.0)) >= EXPLAINED:
            what = "The length of the answer" if key == "length" else "The share of words that the context lacks"
            found.append(Fault(name, f"{what} alone predicts its labels with an AUROC of {100 * value:.1f}."))
    early, late = detection.early, detection.late
    is_late = bool(early and late and (late.low or 0) > (early.high or 1) and (late.low or 0) > MAX_ALARMS)
    if early and late and is_late and not found:
        shares = f"{format_percent(late)}% in the last passage, {format_percent(early)}% in the first"
        found.append(Fault(END_OF_CONTEXT, f"It calls unchanged sentences hallucinated by their place: {shares}."))
    auroc, score = detection.auroc, detection.score
    is_blind = (auroc and (auroc.high or 1) < MAX_AUROC) or (not auroc and score and (score.high or 1) < MAX_COPIES)
    if not found and is_blind:
        figure = f"AUROC {format_percent(auroc)}" if auroc else f"{format_percent(score)}% are found"
        found.append(Fault(BLIND, f"It hardly tells changed copies from their originals: {figure}."))
    elif not found and any(rate.value <= 0.5 for rate in detection.unmoved.values()):
        for name, rate in detection.unmoved.items():
            if rate.value >= UNMOVED and (rate.n or 0) >= MIN_COPIES:
                figure = f"{format_percent(rate)}% of such copies have exactly the verdict of their original."
                found.append(Fault(BLIND_TO.format(name), figure))
    found += [
        one
        for one in _dependences(figures.invariance, is_late=is_late)
        if one.name not in {each.name for each in found}
    ]
    copies = figures.invariance.copies
    if copies is not None and (copies.low or 0) > MAX_COPIES and not is_constant | is_late:
        shown = f"{format_percent(copies)}% of sentences copied from their source"
        found.append(Fault(COPIES, f"It calls {shown} hallucinated."))
    if (alarms := detection.false_alarms) is not None and (alarms.low or 0) > MAX_ALARMS and not is_constant | is_late:
        found.append(Fault(ALARMS, f"It calls {format_percent(alarms)}% of unchanged sentences hallucinated."))
    if (marked := detection.marked) is not None and (marked.high or 1) < MIN_MARKED and not is_constant:
        found.append(Fault(MARKS, f"Of the changes that it finds, it marks {format_percent(marked)}%."))
    if accuracy is not None:
        if accuracy.conclusion.verdict is Decision.WORSE:
            found.append(Fault(BASELINE, f"On the labelled rows {accuracy.conclusion.text}."))
        error, gain = accuracy.systems[figures.name].get("ece_debiased"), accuracy.refitted
        if error is not None and (error.low or 0) > MAX_ERROR:
            text = f"Its probabilities are off by {format_percent(error)} points in the mean."
            found.append(Fault(CALIBRATION, text))
        if gain is not None and gain.low > MAX_GAIN:
            figure = f"{100 * gain.value:+.1f} [{100 * gain.low:.1f}, {100 * gain.high:.1f}]"
            text = f"A threshold fitted on other rows of the table changes macro-F1 by {figure}."
            found.append(Fault(THRESHOLD, text))
    if figures.num_failed > MAX_FAILED * figures.num_asked:
        counts = f"{figures.num_failed:,} of {figures.num_asked:,} rows have no verdict"
        found.append(Fault(FAILURES, f"{counts}, most often: {figures.reason}."))
    return found


def _dependences(invariance: Invariance, *, is_late: bool) -> Iterator[Fault]:
    compared = invariance.comparisons
    again = compared[AGAIN].moved if AGAIN in compared else 0.0
    by_chance = 0.0  # what changes by chance must not be blamed on a variant
    if again >= MIN_MOVED:
        by_chance = compared[AGAIN].changed.high or 1
        yield Fault(UNSTABLE, f"{100 * again:.1f}% of verdicts or probabilities differ {DESCRIPTIONS[AGAIN]}.")
    if ORDER in compared and SINGLE in compared:
        moved, name = max((compared[name].moved, name) for name in (ORDER, SINGLE))
        if moved >= MIN_MOVED and moved > max(2 * again, by_chance):
            yield Fault(BATCH, f"{100 * moved:.1f}% of verdicts or probabilities differ {DESCRIPTIONS[name]}.")
    # These change where the context supports the answer, which the place explains already.
    by_place = (SHUFFLED, REPEATED, LONG, LATE, BEFORE, BEHIND) if is_late else ()
    clear = {
        name: one
        for name, one in compared.items()
        if name not in (AGAIN, ORDER, SINGLE, *by_place)
        and one.changed.value >= MAX_CHANGED
        and (one.changed.low or 0) > max(MAX_CHANGED_LOW, by_chance)
    }
    longer = [clear[name] for name in (BEFORE, BEHIND) if name in clear]
    is_alarmed = [2 * one.to_hallucinated > len(one.examples) for one in longer]
    if is_alarmed == [True, True]:
        del clear[BEFORE], clear[BEHIND]
        figure = " and ".join(format_percent(one.changed) for one in longer)
        yield Fault(LENGTH, f"It calls longer answers hallucinated: {figure}% of labels change by a copied sentence.")
    elif is_alarmed == [False, False]:
        del clear[BEFORE], clear[BEHIND]
        figure = " and ".join(format_percent(one.changed) for one in longer)
        yield Fault(DILUTED, f"It misses errors beside a sentence that is copied: {figure}% of labels change.")
    elif BEFORE in clear and is_alarmed == [False]:
        figure = f"{format_percent(clear.pop(BEFORE).changed)}% of labels change {DESCRIPTIONS[BEFORE]}"
        yield Fault(END_OF_ANSWER, f"It does not read the end of answers: {figure}.")
    if CLAIM in clear:
        one = clear.pop(CLAIM)
        is_evidence = 2 * one.to_hallucinated <= len(one.examples)
        text = "It takes earlier claims of the assistant as evidence" if is_evidence else "It distrusts repeated claims"
        figure = f"{format_percent(one.changed)}% of labels change {DESCRIPTIONS[CLAIM]}"
        yield Fault(TWO_HOPS if is_evidence else DISTRUST, f"{text}: {figure}.")
    for name, one in clear.items():
        yield Fault(name, f"The label changes on {format_percent(one.changed)}% of rows {DESCRIPTIONS[name]}.")


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
            verdicts = {
                Decision.WORSE: "worse than word overlap",
                Decision.LEVEL: "no better than word overlap",
                Decision.TOO_FEW: "not shown to be better than word overlap",
            }
            parts.append(verdicts[against.verdict])
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
        others = material.others or material.documents  # of passages that are irrelevant for certain
        with asker.part(SHARE_OF_VARIANTS):
            sizes = {"count": config["num_variants"], "long_words": config["long_words"]}
            invariance, asked, of_variants = compare_variants(asker, cases, material.rows, others, **sizes, seed=seed)
        if material.rows:
            answers |= asker.ask(material.rows, "labelled rows")
    finally:
        asker.close()
    plain = [*cases, *material.rows]
    by_overlap = overlap_predictions([row for row in cases if row.id in answers], SMALLEST)
    called = [row for row in plain if row.id in answers]
    problems, reasons = asker.problems, asker.problems.most_common()
    detection = measure_detection(cases, answers)
    weak = [item for item in detection.found.items() if item[1].high is not None and item[1].high < MAX_RECALL]
    figures = Figures(
        called=share([answers[row.id].label == HALLUCINATED for row in called], [row.group for row in called]),
        detection=detection,
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
        weak_on=dict(sorted(weak, key=lambda item: item[1].value)),
        problems=problems,
        row_seconds=median(asker.seconds) if asker.seconds else None,
        seconds=time.monotonic() - began,
        cases=cases,
        rows={row.id: row for row in plain} | asked,
        answers=answers | of_variants,
    )
