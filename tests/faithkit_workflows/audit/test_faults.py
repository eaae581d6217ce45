"""Each faulty detector is found out, and its fault is named; a good one has none."""

from pathlib import Path

import pytest

from faithkit_workflows.audit import faults
from faithkit_workflows.audit.invariances import LATE
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


def test_the_default_detector_is_neither_constant_nor_a_shortcut(tmp_path: Path) -> None:
    from faithkit_workflows.audit.protocol import run_audit
    from faithkit_workflows.audit.target import open_target
    from tests.faithkit_workflows.audit.auditing import configure

    config = configure("default", "num_cases=10", "num_variants=8", "long_words=100")
    done = run_audit(open_target(config), tmp_path, config)
    assert not {fault.name for fault in done.faults} & {*EXPECTED.values(), faults.BLIND}
    assert done.figures.detection.marked is not None
