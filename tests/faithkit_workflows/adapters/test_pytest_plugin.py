"""The pytest plugin: tests fail on unsupported answers, and JUnit files say with which probability."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.faithkit_workflows.adapters.cases import PASSAGES, SUPPORTED, UNSUPPORTED
from tests.running import ROOT

pytest_plugins = ["pytester"]
PLUGIN = "faithkit_workflows.adapters.pytest_plugin"
# The plugin by its module, whether faithkit is installed with its entry point or not.
OPTIONS = ("-p", "no:faithkit", "-p", PLUGIN, "-p", "no:cacheprovider", "-p", "no:randomly", "--strict-markers")
TESTS = f"""
import pytest

def test_supported(assert_faithful):
    assert_faithful(context={PASSAGES}, response={SUPPORTED!r})

def test_unsupported(assert_faithful):
    assert_faithful({PASSAGES}, {UNSUPPORTED!r}, "How long?")

def test_without_the_fixture():
    from faithkit import assert_faithful
    assert_faithful({PASSAGES}, {UNSUPPORTED!r}, "How long?")

@pytest.mark.faithful(threshold=1.0)
def test_marked(assert_faithful):
    assert_faithful([{PASSAGES}] * 2, [{SUPPORTED!r}, {UNSUPPORTED!r}])
"""


def properties(path: Path) -> dict[str, dict[str, str]]:
    """Reads the properties of each test case."""
    cases = ElementTree.parse(path).iter("testcase")
    return {case.attrib["name"]: {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")} for case in cases}


def test_an_unsupported_answer_fails_and_junit_has_the_figures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess(*OPTIONS, "--junitxml", "junit.xml", "-Werror::pytest.PytestWarning")
    done.assert_outcomes(passed=2, failed=2)
    done.stdout.fnmatch_lines(["*1 of 1 responses are not supported*", "*response:  The *[[]*36*"])
    for name in ("pytest_plugin.py", "assertions.py", "arguments.py"):  # pytest shows the line of the caller
        done.stdout.no_fnmatch_line(f"*{name}*")
    found = properties(pytester.path / "junit.xml")
    faithful = {name for name, values in found.items() if values.get("verdict") == "faithful"}
    assert found.pop("test_without_the_fixture") == {} and len(found) == 3
    assert faithful == {"test_supported", "test_marked"}
    own, marked = found["test_unsupported"], found["test_marked"]
    assert 0 < float(own["threshold"]) < float(own["probability"]) < 1
    assert float(marked["threshold"]) == 1 and float(marked["probability"]) > float(own["threshold"])  # the worst one


def test_the_command_line_sets_threshold_and_detector_and_the_marker_comes_first(pytester, trained) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess(*OPTIONS, "--faithkit-threshold", "1").assert_outcomes(passed=3, failed=1)
    chosen = ("--faithkit-checkpoint", str(trained), "--faithkit-threshold", "0", "--junitxml", "junit.xml")
    done = pytester.runpytest_inprocess(*OPTIONS, *chosen)
    done.assert_outcomes(failed=3, passed=1)
    done.stdout.fnmatch_lines([f"*by Critic('{trained}'*"])
    assert properties(pytester.path / "junit.xml")["test_supported"]["threshold"] == "0.0"


@pytest.mark.parametrize(
    ("mark", "options", "words"),
    [
        ("", ("--faithkit-threshold", "2"), "'2' is no probability from 0 to 1"),
        ("", ("--faithkit-threshold", "high"), "'high' is no probability"),
        ("", ("--faithkit-checkpoint", "/nowhere"), "no such run"),
        ("@pytest.mark.faithful(treshold=0.5)", (), "did you mean threshold?"),
        ("@pytest.mark.faithful(threshold=5)", (), "threshold must be a probability"),
    ],
)
def test_a_wrong_setting_is_explained(mark, options, words, pytester) -> None:
    pytester.makepyfile(f"import pytest\n\n{mark}\ndef test_it(assert_faithful):\n    assert_faithful('a', 'a')\n")
    done = pytester.runpytest_inprocess(*OPTIONS, *options)
    assert done.ret != 0 and words in done.stdout.str() + done.stderr.str()


def test_the_plugin_loads_nothing_before_a_test_takes_the_fixture() -> None:
    code = f"import sys, pytest; before = set(sys.modules); import {PLUGIN}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"argparse", "faithkit_workflows", "faithkit_workflows.adapters", PLUGIN}
