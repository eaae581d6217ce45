"""Names the faults that the figures of an audit show. The limits are part of the protocol's version."""

from collections.abc import Iterator
from dataclasses import dataclass

from faithkit.pages.page_tables import format_percent
from faithkit.statistics.conclusion import Conclusion, Decision
from faithkit.statistics.metric import Metric
from faithkit_workflows.audit.invariances import AGAIN, DESCRIPTIONS, ORDER, SINGLE, Invariance
from faithkit_workflows.audit.measures import Accuracy, Detection

CONSTANT, LENGTH, OVERLAP, BLIND = "one verdict for all", "answer length", "word overlap", "blind to changes"
UNSTABLE, BATCH, COPIES = "unstable", "batch", "copies"
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
    found = list(_shortcuts(figures))
    if not found:
        found += _blindness(figures.detection)
    is_constant = any(fault.name == CONSTANT for fault in found)
    found += _dependences(figures.invariance)
    if not is_constant:
        found += _wrong_alarms(figures)
    found += _on_labels(figures)
    if figures.num_failed > MAX_FAILED * figures.num_asked:
        counts = f"{figures.num_failed:,} of {figures.num_asked:,} rows have no verdict"
        found.append(Fault(FAILURES, f"{counts}, most often: {figures.reason}."))
    return found


def find_weaknesses(detection: Detection) -> dict[str, Metric]:
    """Finds the types of change of which surely less than half are called hallucinated, the weakest first."""
    weak = {name: rate for name, rate in detection.found.items() if rate.high is not None and rate.high < MAX_RECALL}
    return dict(sorted(weak.items(), key=lambda item: item[1].value))


def _shortcuts(figures: Figures) -> Iterator[Fault]:
    called = figures.called
    if called is not None and not 1 - NEARLY_ALL < called.value < NEARLY_ALL:
        label = "hallucinated" if called.value > 0.5 else "faithful"
        size = max(called.value, 1 - called.value)
        yield Fault(CONSTANT, f"It calls {100 * size:.1f}% of the answers {label}, whatever they say.")
    for key, name in (("length", LENGTH), ("overlap", OVERLAP)):
        if (value := figures.explained.get(key, 0.0)) >= EXPLAINED:
            what = "The length of the answer" if key == "length" else "The share of words that the context lacks"
            yield Fault(name, f"{what} alone predicts its labels with an AUROC of {100 * value:.1f}.")


def _blindness(detection: Detection) -> Iterator[Fault]:
    auroc, score = detection.auroc, detection.score
    if (auroc and (auroc.high or 1) < MAX_AUROC) or (not auroc and score and (score.high or 1) < MAX_COPIES):
        figure = f"AUROC {format_percent(auroc)}" if auroc else f"{format_percent(score)}% are found"
        yield Fault(BLIND, f"It hardly tells changed copies from their originals: {figure}.")
        return
    moves = any(rate.value <= 0.5 for rate in detection.unmoved.values())
    for name, rate in detection.unmoved.items():
        if moves and rate.value >= UNMOVED and (rate.n or 0) >= MIN_COPIES:
            figure = f"{format_percent(rate)}% of such copies have exactly the verdict of their original."
            yield Fault(BLIND_TO.format(name), figure)


def _dependences(invariance: Invariance) -> Iterator[Fault]:
    compared = invariance.comparisons
    again, by_chance = (compared[AGAIN].moved, compared[AGAIN].changed.value) if AGAIN in compared else (0.0, 0.0)
    if again >= MIN_MOVED:
        yield Fault(UNSTABLE, f"{100 * again:.1f}% of verdicts or probabilities differ {DESCRIPTIONS[AGAIN]}.")
    batch = (
        max((compared[name].moved, name) for name in (ORDER, SINGLE))
        if ORDER in compared and SINGLE in compared
        else None
    )
    if batch and batch[0] >= MIN_MOVED and batch[0] > 2 * again:
        yield Fault(BATCH, f"{100 * batch[0]:.1f}% of verdicts or probabilities differ {DESCRIPTIONS[batch[1]]}.")
    for name, one in compared.items():
        is_clear = one.changed.value >= MAX_CHANGED and (one.changed.low or 0) > MAX_CHANGED_LOW
        if is_clear and name not in (AGAIN, ORDER, SINGLE) and one.changed.value > 2 * by_chance:
            yield Fault(name, f"The label changes on {format_percent(one.changed)}% of rows {DESCRIPTIONS[name]}.")


def _wrong_alarms(figures: Figures) -> Iterator[Fault]:
    detection, copies = figures.detection, figures.invariance.copies
    if copies is not None and (copies.low or 0) > MAX_COPIES:
        yield Fault(COPIES, f"It calls {format_percent(copies)}% of sentences copied from their source hallucinated.")
    if detection.false_alarms is not None and (detection.false_alarms.low or 0) > MAX_ALARMS:
        yield Fault(ALARMS, f"It calls {format_percent(detection.false_alarms)}% of unchanged sentences hallucinated.")
    if detection.marked is not None and (detection.marked.high or 1) < MIN_MARKED:
        yield Fault(MARKS, f"Of the changes that it finds, it marks {format_percent(detection.marked)}%.")


def _on_labels(figures: Figures) -> Iterator[Fault]:
    accuracy = figures.accuracy
    if accuracy is None:
        return
    if accuracy.conclusion.verdict is Decision.WORSE:
        yield Fault(BASELINE, f"On the labelled rows {accuracy.conclusion.text}.")
    error = accuracy.systems[figures.name].get("ece_debiased")
    if error is not None and (error.low or 0) > MAX_ERROR:
        yield Fault(CALIBRATION, f"Its probabilities are off by {format_percent(error)} points in the mean.")
    gain = accuracy.refitted
    if gain is not None and gain.low > MAX_GAIN:
        figure = f"{100 * gain.value:+.1f} [{100 * gain.low:.1f}, {100 * gain.high:.1f}]"
        yield Fault(THRESHOLD, f"A threshold fitted on other rows of the table changes macro-F1 by {figure}.")
