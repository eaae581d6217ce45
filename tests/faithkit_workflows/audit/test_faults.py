"""Each faulty detector is found out, and its fault is named; a good one has none."""

from pathlib import Path

import pytest

from faithkit_workflows.audit import protocol as faults
from faithkit_workflows.audit.audit_page import describe_faults, report_audit
from faithkit_workflows.audit.measures import LATE, TURN
from tests.faithkit_workflows.audit.auditing import audit

EXPECTED = {
    "always_yes": faults.CONSTANT,
    "by_length": faults.LENGTH,
    "by_overlap": faults.OVERLAP,
    "by_batch": faults.BATCH,
    "first_words": LATE,
    "without_numbers": faults.BLIND_TO.format("number"),
    "with_chance": faults.UNSTABLE,
    "marking": faults.MARKS,
    "by_words": faults.LENGTH,
    "mean_of_sentences": faults.DILUTED,
    "first_sentence": faults.END_OF_ANSWER,
    "without_last_passage": faults.END_OF_CONTEXT,
    "with_noise": faults.UNSTABLE,
    "reading_history": faults.TWO_HOPS,
    "distrusting": faults.DISTRUST,
    "disturbed_by_turns": TURN,
}


@pytest.mark.parametrize(("name", "fault"), EXPECTED.items())
def test_a_faulty_detector_is_named_by_its_fault(name: str, fault: str, tmp_path: Path) -> None:
    found = audit(name, tmp_path).faults
    assert found and found[0].name == fault
    assert not {one.name for one in found} & ({*EXPECTED.values()} - {fault}), "and by no other one's"


def test_a_good_detector_has_no_fault(tmp_path: Path) -> None:
    done = audit("good", tmp_path)
    assert done.faults == [] and not done.problems
    score = done.figures.detection.score
    assert score is not None and score.value > 0.95
    assert not done.weak_on and done.headline.startswith("No fault")


def test_without_a_fault_the_headline_still_names_weaknesses(tmp_path: Path) -> None:
    done = audit("deaf_to_not", tmp_path)
    recall = done.weak_on["negation"]
    assert done.faults == [] and list(done.weak_on) == ["negation"] and (recall.high or 1) < 0.5
    assert done.headline.startswith(f"No fault, but weak on negation ({100 * recall.value:.0f}%)")
    stored = done.to_dict()
    assert stored["headline"] == done.headline and stored["weak_on"]["negation"] == recall.to_dict()
    report_audit(tmp_path, done)
    assert done.headline in (tmp_path / "audit.html").read_text() and describe_faults(done)[0] == done.headline


def test_the_default_detector_is_neither_constant_nor_a_shortcut(tmp_path: Path) -> None:
    done = audit("default", tmp_path, "num_cases=10", "num_variants=8", "long_words=100")
    others = {*EXPECTED.values(), faults.BLIND}
    assert not {fault.name for fault in done.faults} & others
    assert done.figures.detection.marked is not None
