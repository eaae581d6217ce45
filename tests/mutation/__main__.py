"""python -m tests.mutation --mutants 400: changes the code here and there, and lists the changes that no test notices.

python -m tests.mutation --only faithkit/packing.py     the mutants of one file or folder

What is noticed is kept in build/mutation/noticed.txt and not tried again while its file stays as it is: an interrupted
run goes on, and after new tests only what was not noticed costs time. What each test runs is kept beside it. Changes
that no test should notice stand in tests/mutation/harmless.toml with the reason; they are counted apart.
"""

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from threading import Lock
from typing import Any, TextIO

from faithkit import signals
from tests.mutation.mutants import Mutant, mutants_of, sample
from tests.mutation.reach import KeptReach, Reach, quickest
from tests.mutation.selection import ROOT, central_files, choose_tests
from tests.mutation.worker import FAILED, PASSED

NOTICED = ROOT / "build" / "mutation" / "noticed.txt"
HARMLESS = ROOT / "tests" / "mutation" / "harmless.toml"
# CPU-seconds that the tests of one file may take in all, and those of one mutant: the others notice what these do.
LONGEST, LONGEST_OF_MUTANT = 20.0, 20.0
MOST_TEST_FILES = 6  # for one mutant, of those that run its line
MOST_WATCHED = 12  # test files in which those are looked for, the closest first


def main() -> int:
    """Samples mutants, runs their tests, and prints what was not noticed; the exit code is 1 below the aim."""
    signals.install()
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose path begins so")
    parser.add_argument(
        "--noticed", type=Path, default=NOTICED, help="the file of what is noticed; delete it to begin anew"
    )
    parser.add_argument(
        "--test-files", type=int, default=MOST_TEST_FILES, help="most test files that a change is given"
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--aim", type=float, default=0.95, help="share that must be noticed")
    options = parser.parse_args()
    files = [path for path in central_files() if path.startswith(options.only)]
    every = [mutant for path in files for mutant in mutants_of(ROOT, path)]
    chosen = sample(every, options.mutants, options.seed)
    reasons = harmless()
    options.noticed.parent.mkdir(parents=True, exist_ok=True)
    known = set(options.noticed.read_text(encoding="utf-8").splitlines()) if options.noticed.exists() else set()
    results = [(mutant, FAILED) for mutant in chosen if mutant.key in known]
    results += [(mutant, HARMLESS_END) for mutant in chosen if mutant.key not in known and mutant.name in reasons]
    tried = {mutant.key for mutant, _ in results}
    print(
        f"{len(chosen)} of {len(every):,} mutants of {len(files)} files, {len(results)} known before", file=sys.stderr
    )
    try:
        with ExitStack() as stack:
            noticed = stack.enter_context(options.noticed.open("a", encoding="utf-8", buffering=1))
            workers = [stack.enter_context(started()) for _ in range(options.workers)]
            crew = Crew(workers, noticed, KeptReach(options.noticed.parent / "reach", ROOT), options.test_files)
            results += crew.run([mutant for mutant in chosen if mutant.key not in tried])
    except signals.Interrupted:
        print(f"interrupted: what was noticed is kept in {options.noticed}", file=sys.stderr)
        return signals.EXIT_CODE
    results.sort(key=lambda result: (result[0].path, result[0].line))
    missed = [(mutant, end) for mutant, end in results if end in (PASSED, UNREACHED)]
    untested = sorted({mutant.path for mutant, end in results if end == NOT_RUN})
    for mutant, end in missed:
        print(f"not noticed{' (no test runs it)' if end == UNREACHED else ''}: {mutant.line}  {mutant.name}")
    for path in untested:
        print(f"no tests that pass unchanged: {path}")
    num_harmless = sum(end == HARMLESS_END for _, end in results)
    counted = len(results) - num_harmless - sum(end == NOT_RUN for _, end in results)
    share = 1 - len(missed) / max(counted, 1)
    print(
        f"{len(results)} mutants, {num_harmless} harmless, {counted - len(missed)} noticed, {len(missed)} not noticed"
    )
    print(f"noticed of those that are not harmless: {share:.1%} (seed {options.seed})")
    return int(share < options.aim or bool(untested))


def harmless() -> dict[str, str]:
    """The names of the changes that no test should notice, with the reason of each."""
    groups = tomllib.loads(HARMLESS.read_text(encoding="utf-8"))["group"]
    return {name: group["reason"] for group in groups for name in group["changes"]}


NOT_RUN, UNREACHED, HARMLESS_END = "not run", "unreached", "harmless"


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that runs tests in a copy of the project (tests/mutation/worker.py)."""

    process: "subprocess.Popen[str]"

    def run(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> str:
        """Runs tests with one file changed; tells how they ended."""
        return str(self._ask(path=mutant.path, source=mutant.source, tests=tests, seconds=seconds))

    def watch(self, test_file: str) -> tuple[list[Reach], list[str]]:
        """Runs a test file unchanged.

        Returns:
            The tests that pass, with the lines of the central files that they run, and the code that was imported.
        """
        found = self._ask(watch=central_files(), test_file=test_file, seconds=LONGEST)
        return [Reach(**test) for test in found["tests"]], found["code"]

    def _ask(self, **job: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


class Crew:
    """Workers that share the mutants, and what is known of the unchanged tests."""

    def __init__(self, workers: Sequence[Worker], noticed: TextIO, kept: KeptReach, most_test_files: int):
        self._noticed, self._kept, self._most_test_files = noticed, kept, most_test_files
        self._reached: dict[str, list[Reach]] = {}
        self._watching: dict[str, Lock] = defaultdict(Lock)
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            self._free.put(worker)
        self._size = len(workers)

    def run(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Yields each mutant with how its tests ended, file by file."""
        by_file: dict[str, list[Mutant]] = {}
        for mutant in mutants:
            by_file.setdefault(mutant.path, []).append(mutant)
        pool = ThreadPoolExecutor(self._size)
        try:
            for ends in pool.map(self._file, by_file.values()):
                yield from ends
        finally:  # does not wait: after a signal the threads end once their workers are ended
            pool.shutdown(wait=False, cancel_futures=True)

    def _file(self, mutants: Sequence[Mutant]) -> list[tuple[Mutant, str]]:
        worker = self._free.get()
        try:
            results = []
            tests = choose_tests(mutants[0].path)
            for mutant in mutants:
                end = self._end(worker, mutant, tests)
                print(f"{end:9} {mutant}", file=sys.stderr, flush=True)
                if end not in (PASSED, UNREACHED, NOT_RUN):
                    print(mutant.key, file=self._noticed)
                results.append((mutant, end))
            return results
        finally:
            self._free.put(worker)

    def _end(self, worker: Worker, mutant: Mutant, test_files: Sequence[str]) -> str:
        """Runs the tests that reach a mutant, those of the closest file first, the quickest of each file first."""
        num_reaching, has_run, watched, seconds = 0, False, False, 0.0
        for test_file in test_files[:MOST_WATCHED]:
            reached = self._reach(worker, test_file)
            watched |= bool(reached)
            reaching = [test for test in reached if test.runs(mutant.path, mutant.lines)]
            tests, more = quickest(reaching, LONGEST_OF_MUTANT - seconds)
            if tests:
                num_reaching += any(test.is_known(mutant.path) for test in reaching)
                has_run, seconds = True, seconds + more
                if (end := worker.run(mutant, tests, 10 + 4 * more)) != PASSED:
                    return end
            if num_reaching == self._most_test_files:
                break
        return PASSED if has_run else UNREACHED if watched else NOT_RUN

    def _reach(self, worker: Worker, test_file: str) -> Sequence[Reach]:
        with self._watching[test_file]:  # once, whoever comes first
            if test_file not in self._reached:
                if (kept := self._kept.read(test_file)) is None:
                    kept, code = worker.watch(test_file)
                    self._kept.write(test_file, kept, code)
                self._reached[test_file] = kept
        return self._reached[test_file]


@contextmanager
def started() -> Iterator[Worker]:
    """Starts a worker in a copy of the project: what is changed is never the project itself."""
    with tempfile.TemporaryDirectory(prefix="faithkit-mutants-") as folder:
        project, temporary = Path(folder, "project"), Path(folder, "tmp")
        copy_project(project)
        temporary.mkdir()  # tests leave files behind where their process is ended
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"PYTHONPATH": str(project), "TMPDIR": str(temporary)}
        command = [sys.executable, "-W", "ignore", "-m", "tests.mutation.worker"]
        process = subprocess.Popen(
            command, cwd=project, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield Worker(process)
        finally:
            process.terminate()
            process.wait()


def copy_project(folder: Path) -> None:
    """Copies what git tracks, compiled by content: a changed file is compiled anew, all others are ready."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    compileall.compile_dir(folder, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


if __name__ == "__main__":
    sys.exit(main())
