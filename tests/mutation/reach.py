"""Records which lines of the central files each test runs: only those tests can notice a change there."""

import inspect
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

CHILD_EVENTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")
EVERYWHERE = "everywhere"  # what a test of processes of its own runs, which nothing here sees
Lines = dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Reach:
    """A test that passes unchanged: its name, its seconds, and the lines of each file that it runs."""

    test: str
    seconds: float
    lines: Mapping[str, Sequence[int]]

    def runs(self, path: str, lines: Iterable[int]) -> bool:
        """Tells whether a change of these lines may change what the test sees."""
        return EVERYWHERE in self.lines or not set(lines).isdisjoint(self.lines.get(path, ()))


class Chosen:
    """A plugin of pytest that runs some of the collected tests, in the order of their names here.

    Pytest's command line would do, but for a name that it does not find it fails, as if a test had noticed.
    """

    def __init__(self, tests: Sequence[str]):
        self.places = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self.places), key=lambda one: self.places[one.nodeid])


class Recorder:
    """A plugin of pytest that fills `reached`.

    What a module runs when it is imported counts for every test, and what a shared fixture runs for every test that
    asks for it: whichever happens to come first makes them run.

    Args:
        paths: The files to watch, relative to the current folder.
    """

    def __init__(self, paths: Iterable[str]):
        self.files = {str(Path.cwd() / path): path for path in paths}
        self.shared: Lines = defaultdict(set)
        self.fixtures: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
        self.tests: dict[str, Lines] = {}
        self.asked: dict[str, Sequence[str]] = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self._now: Lines = self.shared

    def start(self) -> None:
        """Begins to watch this process and its threads."""
        sys.addaudithook(self._audit)
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    @property
    def reached(self) -> list[Reach]:
        """The tests that passed, in the order in which they ran."""
        return [Reach(test, self.seconds[test], self._all(test)) for test in self.tests if test not in self.failed]

    def _all(self, test: str) -> dict[str, list[int]]:
        merged: Lines = defaultdict(set)
        for part in (self.shared, self.tests[test], *(self.fixtures[name] for name in self.asked[test])):
            for path, lines in part.items():
                merged[path] |= lines
        return {path: sorted(lines) for path, lines in merged.items()}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now = self.tests.setdefault(item.nodeid, defaultdict(set))
        self.asked[item.nodeid] = getattr(item, "fixturenames", ())
        sys.settrace(self._enter)  # a test may have taken it away
        try:
            return (yield)
        finally:
            self._now = self.shared

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        before = self._now
        if fixturedef.scope != "function":
            self._now = self.fixtures[fixturedef.argname]
        try:
            return (yield)
        finally:
            self._now = before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def _audit(self, event: str, arguments: Any) -> None:
        if event in CHILD_EVENTS:
            self._now[EVERYWHERE].add(0)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = self.files.get(frame.f_code.co_filename)
        if path is None:
            return None
        imported = not frame.f_code.co_flags & inspect.CO_OPTIMIZED  # the body of a module or of a class

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            (self.shared if imported else self._now)[path].add(frame.f_lineno)
            return step

        return step
