"""The pytest plugin: a fixture that fails a test on an unsupported answer, a marker, two options, and JUnit properties.

def test_answer(assert_faithful):
    assert_faithful(context=passages, response=answer)

pytest --faithkit-threshold 0.8 --faithkit-checkpoint runs/... --junitxml junit.xml

An installed faithkit registers it; in a checkout, `-p faithkit_workflows.adapters.pytest_plugin` does. Nothing of
faithkit but this file is imported until a test takes the fixture.
"""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

import pytest

MARKER = "faithful"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("faithkit")
    text = "detector of the fixture assert_faithful: a run, an hf/ folder, a hub name or the name of a detector"
    group.addoption("--faithkit-checkpoint", metavar="CHECKPOINT", help=text)
    text = "probability from which a response fails; without it the detector's label decides"
    group.addoption("--faithkit-threshold", metavar="P", type=_read_probability, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    text = f"{MARKER}(checkpoint=..., threshold=...): settings of the fixture assert_faithful, above the command line's"
    config.addinivalue_line("markers", text)


@pytest.fixture
def assert_faithful(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Checks responses as `faithkit.assert_faithful` does, and records probability, threshold and verdict.

    The properties of a list are those of its response with the highest probability.
    """
    from faithkit import arguments
    from faithkit.detector import DEFAULT
    from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED
    from faithkit_workflows.adapters.scorer import stored_threshold
    from faithkit_workflows.detectors.assertions import explain_failures, is_failure, judge_rows

    @arguments.explain_keywords
    def faithful(*, checkpoint: Any = None, threshold: float | None = None) -> tuple[Any, float | None]:
        return checkpoint, arguments.read_probability("threshold", threshold)

    mark = request.node.get_closest_marker(MARKER)
    checkpoint, threshold = faithful(*mark.args, **mark.kwargs) if mark else (None, None)
    checkpoint = arguments.read_path(checkpoint or request.config.getoption("faithkit_checkpoint") or DEFAULT)
    threshold = request.config.getoption("faithkit_threshold") if threshold is None else threshold

    @arguments.explain_keywords
    def assert_faithful(knowledge: Any, response: Any, history: Any = None) -> None:
        __tracebackhide__ = True
        detector, rows = judge_rows(knowledge, response, history, by=checkpoint, threshold=threshold)
        by_failure = [(is_failure(found, threshold), found.probability or 0, found) for found, *_ in rows]
        failed, _, worst = max(by_failure, key=lambda row: row[:2])
        used = stored_threshold(checkpoint) if threshold is None else threshold
        label = worst.label if worst.label == UNPARSED else HALLUCINATED if failed else FAITHFUL
        properties = {"probability": worst.probability, "threshold": used, "verdict": label}
        request.node.user_properties += properties.items()  # as record_property, which warns about JUnit's schema
        if message := explain_failures(detector, rows, threshold):
            raise AssertionError(message)

    return assert_faithful


def _read_probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is no probability from 0 to 1")
    return value
