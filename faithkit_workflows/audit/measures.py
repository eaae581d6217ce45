"""The figures of an audit: detection of changes, what length and overlap explain, accuracy on labelled rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from faithkit.baselines.simple_detectors import REFITTED, cross_fit_baselines
from faithkit.baselines.word_features import unsupported_share
from faithkit.calibration import ReliabilityBin, reliability
from faithkit.metrics.classification import Ranking, classification_metrics, evaluate_labels
from faithkit.metrics.outcomes import join_outcomes
from faithkit.metrics.span_metrics import count_shared, merge_spans
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.scores.board import Board
from faithkit.scores.measures import titles_of
from faithkit.statistics.bootstrap import (
    MIN_GROUPS_OF_SHARE,
    Conclusion,
    Difference,
    Evaluation,
    Groups,
    Test,
    conclude,
    mean_statistic,
    share,
)
from faithkit.statistics.metric import ACCURACY, Metric
from faithkit_workflows.audit.mutations import ORIGINAL, TYPE, TYPES, UNCHANGED
from faithkit_workflows.audit.target import passages_of

MIN_OF_CLASS = 8  # rows of each label, for an AUROC
MIN_LABELLED = 20
NUM_BINS = 5
SCORE, WORD_OVERLAP = "mutation score", "word overlap"
SAME = 1e-6  # difference of scores
Answers = Mapping[str, Prediction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What a detector makes of changed copies.

    Args:
        score: The share of changed copies that are called hallucinated while their original is not.
        false_alarms: The share of originals that are called hallucinated.
        found: The share of changed copies that are called hallucinated, by type.
        unmoved: The share of changed copies with the same verdict and probability as their original, by type.
        auroc: Of the probability, changed against unchanged.
        marked: The share of copies called hallucinated with a mark on the change; None if nothing is ever marked.
        precision: The share of marked characters in these copies that are changed.
        early, late: The share of originals from the first, and from the last passage that are called hallucinated.
        missed, alarms: Ids.
    """

    score: Metric | None
    false_alarms: Metric | None
    found: Mapping[str, Metric]
    unmoved: Mapping[str, Metric]
    auroc: Metric | None
    marked: Metric | None
    precision: float | None
    early: Metric | None
    late: Metric | None
    missed: tuple[str, ...]
    alarms: tuple[str, ...]


def measure_detection(cases: Sequence[Example], answers: Answers) -> Detection:
    """Measures verdicts on documents' sentences and their changed copies."""
    originals = [case for case in cases if case.meta[TYPE] == UNCHANGED and case.id in answers]
    copies = [case for case in cases if case.id in answers and str(case.meta.get(ORIGINAL)) in answers]
    first_and_last = [(case, passages_of(case)) for case in originals if len(passages_of(case)) > 1]
    early, late = ([case for case, each in first_and_last if case.response in each[place]] for place in (0, -1))
    called = {id_: answer.label == HALLUCINATED for id_, answer in answers.items()}
    found, unmoved = {}, {}
    for name in TYPES:
        of_type = [case for case in copies if case.meta[TYPE] == name]
        groups = [case.group for case in of_type]
        same = []
        for case in of_type:
            one, other = answers[case.id], answers[case.meta[ORIGINAL]]
            same.append(one.label == other.label and abs((one.score or 0.0) - (other.score or 0.0)) < SAME)
        if (rate := share([called[case.id] for case in of_type], groups)) is not None:
            found[name] = rate
        if (rate := share(same, groups)) is not None:
            unmoved[name] = rate
    hits = [case for case in copies if called[case.id]]
    marks = [(case, merge_spans(answers[case.id].spans), merge_spans(case.spans or ())) for case in hits]
    on_change = [count_shared(marked, changed) for _, marked, changed in marks]
    total = sum(end - start for _, marked, _ in marks for start, end in marked)
    scored = [case for case in (*originals, *copies) if answers[case.id].score is not None]
    auroc = None
    if len({case.label for case in scored}) > 1:
        outcomes = join_outcomes(scored, {case.id: answers[case.id] for case in scored})
        auroc = classification_metrics(outcomes).metrics.get("auroc")
    return Detection(
        score=share([_is_found(case, answers) for case in copies], [case.group for case in copies]),
        false_alarms=share([called[case.id] for case in originals], [case.group for case in originals]),
        found=found,
        unmoved=unmoved,
        auroc=auroc,
        marked=share([number > 0 for number in on_change], [case.group for case in hits]) if total else None,
        precision=sum(on_change) / total if total else None,
        early=share([called[case.id] for case in early], [case.group for case in early]),
        late=share([called[case.id] for case in late], [case.group for case in late]),
        missed=tuple(case.id for case in copies if not called[case.id]),
        alarms=tuple(case.id for case in originals if called[case.id]),
    )


def compare_detection(cases: Sequence[Example], answers: Answers, overlap: Answers, *, name: str) -> Conclusion | None:
    """Concludes whether a detector has a higher mutation score than word overlap; None without a changed copy."""
    copies = [case for case in cases if case.id in answers and str(case.meta.get(ORIGINAL)) in answers]
    if not copies:
        return None
    names = [case.group for case in copies]
    groups = Groups.of(names if len(set(names)) >= MIN_GROUPS_OF_SHARE else [case.id for case in copies])
    ours, theirs = (
        Evaluation(
            groups=groups,
            statistic=mean_statistic(groups, {SCORE: [_is_found(case, of_system) for case in copies]}),
            kinds=ACCURACY,
        )
        for of_system in (answers, overlap)
    )
    difference = ours.subtract(theirs)[SCORE]
    return conclude(name, Test(metric=SCORE, other=WORD_OVERLAP, difference=difference))


def _is_found(copy: Example, answers: Answers) -> bool:
    """Reports whether a changed copy is called hallucinated while its original is not."""
    called = [answers[id_].label == HALLUCINATED for id_ in (copy.id, copy.meta[ORIGINAL])]
    return called[0] and not called[1]


def explain_labels(rows: Sequence[Example], answers: Answers) -> dict[str, float]:
    """Measures how well length and word overlap alone predict the detector's labels: AUROC, either way round.

    Empty if nearly all labels are the same.
    """
    answered = [row for row in rows if row.id in answers]
    called = np.array([answers[row.id].label == HALLUCINATED for row in answered], np.bool_)
    if min(called.sum(), (~called).sum()) < MIN_OF_CLASS:
        return {}
    groups = Groups.of(row.id for row in answered)
    values: dict[str, Sequence[list[Any]]] = {
        "length": ([len(row.response) for row in answered], [len(row.response.split()) for row in answered]),
        "overlap": ([unsupported_share(row.knowledge, row.response) for row in answered],),
    }
    found = {
        name: [float(Ranking(one, called, groups)(np.ones((1, groups.count)))["auroc"][0]) for one in numbers]
        for name, numbers in values.items()
    }
    return {name: max(max(value, 1 - value) for value in each) for name, each in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Figures on rows that people have labelled.

    Args:
        systems: The metrics of the detector and of each baseline, by name; baselines are fitted on other rows.
        conclusion: Whether it is better than the strongest of them.
        refitted: macro-F1 with a threshold that was fitted on the other rows, minus that of its threshold.
    """

    systems: Mapping[str, Mapping[str, Metric]]
    conclusion: Conclusion
    refitted: Difference | None
    bins: Sequence[ReliabilityBin]


def measure_accuracy(rows: Sequence[Example], answers: Answers, *, name: str) -> Accuracy | None:
    """Measures accuracy beside simple baselines, calibration, and the threshold; None for too few labelled rows."""
    known = [row for row in rows if row.id in answers]
    positives = sum(row.label == HALLUCINATED for row in known)
    if len(known) < MIN_LABELLED or not 2 <= positives <= len(known) - 2:
        return None
    predictions = {row.id: answers[row.id] for row in known}
    baselines, names = cross_fit_baselines(known, predictions)
    outcomes, board = join_outcomes(known, predictions), Board()
    board.add(name, evaluate_labels(outcomes))
    for key, of_baseline in baselines.items():
        measured = evaluate_labels(join_outcomes(known, of_baseline))
        board.add(key, measured, title=names[key], is_baseline=key != REFITTED)
    conclusion = board.conclude(name, titles_of(["macro_f1"]))
    assert conclusion is not None, "both labels occur, so macro-F1 is defined"
    scored = outcomes.scored
    return Accuracy(
        systems={names.get(key, key): board.metrics(key) for key in board.systems},
        conclusion=conclusion,
        refitted=board.subtract(REFITTED, name).get("macro_f1") if REFITTED in baselines else None,
        bins=reliability(outcomes.scores[scored], outcomes.gold[scored], NUM_BINS) if scored.any() else [],
    )
