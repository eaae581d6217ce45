"""Records which statements of the central files each test runs: only those tests can notice a change there."""

import ast
import builtins
import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import hypothesis
import pytest

CHILD_EVENTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")
EVERYWHERE = "everywhere"  # what a test of processes of its own runs, which nothing here sees
ANYWHERE = -1  # in place of a line: perhaps every line of the file
NOTE = "__note_statement__"
Lines = dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Reach:
    """A test that passes unchanged.

    Args:
        test: Its name.
        seconds: Its CPU-seconds without those of the fixtures that it shares with other tests.
        lines: The statements of each file that it runs.
        fixtures: The CPU-seconds of each fixture that it shares.
    """

    test: str
    seconds: float
    lines: Mapping[str, Sequence[int]]
    fixtures: Mapping[str, float] = field(default_factory=dict)

    def runs(self, path: str, lines: Iterable[int]) -> bool:
        """Tells whether a change of these lines may change what the test sees."""
        own = self.lines.get(path, ())
        return EVERYWHERE in self.lines or ANYWHERE in own or not set(lines).isdisjoint(own)

    def is_known(self, path: str) -> bool:
        """Tells whether the lines of a file that the test runs are known."""
        return EVERYWHERE not in self.lines and ANYWHERE not in self.lines.get(path, ())


def quickest(tests: Iterable[Reach], seconds: float) -> tuple[list[str], float]:
    """Chooses tests that take no longer together, the quickest first; gives their names and their CPU-seconds."""
    chosen, total, made = [], 0.0, set()
    for test in sorted(tests, key=lambda test: test.seconds + sum(test.fixtures.values())):
        more = test.seconds + sum(took for name, took in test.fixtures.items() if name not in made)
        if total + more < seconds:
            chosen.append(test.test)
            made.update(test.fixtures)
            total += more
    return chosen, total


class KeptReach:
    """The statements that tests run, kept in a folder, each test file's as long as it stays the same.

    Of code that has changed since, a test that imports it may run every line: its own lines have moved. That the tests
    still pass is taken on trust: run them before.

    Args:
        folder: Holds one file for each test file.
        root: The project, to which the paths are relative.
    """

    def __init__(self, folder: Path, root: Path):
        self._folder, self._root = folder, root
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, test_file: str) -> list[Reach] | None:
        """Gives what is kept of a test file, or None where it is not known or no longer holds."""
        path = self._place(test_file)
        if not path.is_file():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        changed = [code for code, digest in kept["code"].items() if digest != self._digest(code)]
        if test_file in changed:
            return None
        moved = {code: [ANYWHERE] for code in changed}
        return [Reach(**{**test, "lines": test["lines"] | moved}) for test in kept["tests"]]

    def write(self, test_file: str, tests: Sequence[Reach], code: Sequence[str]) -> None:
        """Keeps what the tests of a file run, with the code that they rest on."""
        digests = {path: self._digest(path) for path in sorted({*code, test_file})}
        kept = {"code": digests, "tests": [asdict(test) for test in tests]}
        self._place(test_file).write_text(json.dumps(kept), encoding="utf-8")

    def _place(self, test_file: str) -> Path:
        return self._folder / f"{test_file.replace('/', '.')}.json"

    def _digest(self, code: str) -> str:
        path = self._root / code
        return hashlib.blake2b(path.read_bytes() if path.is_file() else b"", digest_size=8).hexdigest()


class Chosen:
    """A plugin of pytest that runs some of the collected tests, in the order of their names here.

    Pytest's command line would do, but for a name that it does not find it fails, as if a test had noticed.
    """

    def __init__(self, tests: Sequence[str]):
        self.places = {test: place for place, test in enumerate(tests)}

    def pytest_configure(self) -> None:
        """Takes the first case that fails: looking for a smaller one costs more than the test. After conftest.py."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("first failure", deadline=None, database=None, phases=phases)
        hypothesis.settings.load_profile("first failure")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self.places), key=lambda one: self.places[one.nodeid])


class Recorder:
    """A plugin of pytest that fills `reached`.

    The files to watch are compiled with a note before each statement, which costs a tenth of what tracing does. What a
    module runs when it is imported counts for every test, and what a shared fixture runs for every test that asks for
    it: whichever happens to come first makes them run.

    Args:
        paths: The files to watch, relative to the current folder. They may not be imported yet.
        seconds: CPU-seconds after which no further test is begun.
    """

    def __init__(self, paths: Iterable[str], seconds: float):
        self._end = _cpu_seconds() + seconds
        self.files = {str(Path.cwd() / path): path for path in paths}
        self.shared: Lines = defaultdict(set)
        self.fixtures: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
        self.tests: dict[str, Lines] = {}
        self.asked: dict[str, Sequence[str]] = {}
        self.seconds: dict[str, float] = {}
        self.fixture_seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._now: Lines = self.shared

    def start(self) -> None:
        """Begins to watch: what is imported from now on, and the processes that are started."""
        setattr(builtins, NOTE, lambda path, line, body: (self.shared if body else self._now)[path].add(line))
        sys.meta_path.insert(0, _Finder(self.files))
        sys.addaudithook(self._audit)

    @property
    def reached(self) -> list[Reach]:
        """The tests that passed, in the order in which they ran."""
        return [self._reach(test) for test in self.tests if test not in self.failed]

    def _reach(self, test: str) -> Reach:
        fixtures = {name: self.fixture_seconds[name] for name in self.asked[test] if name in self.fixture_seconds}
        return Reach(test, self.seconds[test], self._all(test), fixtures)

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
        begin, shared = _cpu_seconds(), sum(self.fixture_seconds.values())
        try:
            return (yield)
        finally:
            end = _cpu_seconds()
            self.seconds[item.nodeid] = end - begin - (sum(self.fixture_seconds.values()) - shared)
            self._now = self.shared
            if end > self._end:
                item.session.shouldstop = "the tests of this file take long"

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        before = self._now
        if fixturedef.scope == "function":
            return (yield)
        name = fixturedef.argname
        self._now = self.fixtures[name]
        begin, inner = _cpu_seconds(), sum(self.fixture_seconds.values())
        try:
            return (yield)
        finally:
            self._now = before
            took = _cpu_seconds() - begin - (sum(self.fixture_seconds.values()) - inner)
            self.fixture_seconds[name] = self.fixture_seconds.get(name, 0.0) + took

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def _audit(self, event: str, arguments: Any) -> None:
        if event in CHILD_EVENTS:
            self._now[EVERYWHERE].add(0)


def _cpu_seconds() -> float:
    """Gives what this process and those that it waited for have used."""
    return sum(os.times()[:4])


class _Finder(PathFinder):
    """Finds the watched files before Python's own finder does."""

    def __init__(self, files: Mapping[str, str]):
        self.files = files

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # type: ignore[override]
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin not in self.files:
            return None
        spec.loader = _Loader(fullname, spec.origin, self.files[spec.origin])
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, file: str, path: str):
        super().__init__(fullname, file)
        self.watched = path

    def get_code(self, fullname: str) -> CodeType:
        return compile(with_notes(self.get_source(fullname) or "", self.watched), self.path, "exec")


def with_notes(source: str, path: str) -> ast.Module:
    """Puts a note before each statement."""
    tree = ast.parse(source)
    _note(tree, path, True)
    return ast.fix_missing_locations(tree)


def _note(parent: ast.AST, path: str, body: bool) -> None:
    """Puts notes into each block of a statement; `body` is that of a module or of a class."""
    for name, block in ast.iter_fields(parent):
        if (
            not isinstance(block, list)
            or not block
            or not isinstance(block[0], ast.stmt | ast.match_case | ast.excepthandler)
        ):
            continue
        noted: list[Any] = []
        for child in block:
            inside = False if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else body
            _note(child, path, inside or isinstance(child, ast.ClassDef))
            if isinstance(child, ast.stmt) and not _must_come_first(child):
                call = ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(v) for v in (path, child.lineno, body)], [])
                noted.append(ast.copy_location(ast.Expr(call), child))
            noted.append(child)
        setattr(parent, name, noted)


def _must_come_first(statement: ast.stmt) -> bool:
    """Tells docstrings, and the imports that must stand at the head of a file."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
