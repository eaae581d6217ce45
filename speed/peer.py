"""Runs other projects in environments of their own, as worker processes: one line asks for work, one line answers."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.records import Example

SCRIPTS = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Other:
    """Another project, with a Python of its own.

    Args:
        variable: The environment variable that names it.
        folder: Where README.md of peers/ puts it.
        packages: Whose versions a figure depends on.
    """

    name: str
    variable: str
    folder: str
    packages: tuple[str, ...]

    @property
    def missing(self) -> str:
        """Says how to make it."""
        return (
            f"{self.variable} is not set: this figure compares with {self.name}, which runs in an environment of its "
            f"own.\n{SCRIPTS.name}/README.md says how to make one in three commands; then: "
            f"export {self.variable}={self.folder}/bin/python"
        )

    def python(self) -> str:
        """Finds the Python; without one the program ends and says how to make it."""
        found = os.environ.get(self.variable, "")
        if not found:
            sys.exit(self.missing)
        if not Path(found).expanduser().exists():
            sys.exit(f"{self.variable} names {found}, which is not there\n{self.missing.partition(': ')[2]}")
        return str(Path(found).expanduser())

    def versions(self) -> str:
        """Names the versions of its Python and of the packages that a figure depends on."""
        told = "import importlib.metadata as m, platform as p, sys; print(', '.join(\
            [f'Python {p.python_version()}'] + [f'{n} {m.version(n)}' for n in sys.argv[1:]]))"
        command = [self.python(), "-c", told, *self.packages]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


LETTUCE = Other("LettuceDetect", "FAITHKIT_LETTUCE_PYTHON", "~/lettuce", ("lettucedetect", "torch", "transformers"))
DISTILABEL = Other("distilabel", "FAITHKIT_DISTILABEL_PYTHON", "~/distilabel", ("distilabel", "openai", "datasets"))
SENTENCE_TRANSFORMERS = Other(
    "sentence-transformers",
    "FAITHKIT_SENTENCE_TRANSFORMERS_PYTHON",
    "~/sentence-transformers",
    ("sentence-transformers", "torch", "transformers"),
)
TRL = Other("TRL", "FAITHKIT_TRL_PYTHON", "~/trl", ("trl", "torch", "transformers"))


def environment() -> dict[str, str]:
    """Makes the peer's environment variables: one thread, no network, none of our packages."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@contextmanager
def peer(other: Other, script: str, *arguments: str) -> Iterator["Peer"]:
    """Starts a worker and waits until it is ready; it ends with the block."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [other.python(), str(SCRIPTS / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
        )
        worker = Peer(process, log)
        try:
            worker.answer()
            yield worker
        finally:
            process.kill()
            process.wait()


class Peer:
    """A running worker."""

    def __init__(self, process: "subprocess.Popen[str]", log: Any) -> None:
        self.process, self.log = process, log

    def ask(self, *words: object) -> Any:
        """Sends one line of words and returns the answer."""
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> Any:
        """Waits for the next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            sys.exit(f"the peer's worker ended:\n{self.log.read()[-3000:]}")
        return json.loads(line)


def write_rows(examples: Sequence[Example], path: Path, prompts: Sequence[str] | None = None) -> Path:
    """Writes examples as the workers read them; the prompt is the context where none is given."""
    with path.open("w", encoding="utf-8") as file:
        for example, prompt in zip(examples, prompts or [e.knowledge for e in examples], strict=True):
            labels = [{"start": span.start, "end": span.end} for span in example.spans or ()]
            row = {"id": example.id, "prompt": prompt, "answer": example.response, "labels": labels}
            file.write(json.dumps(row | {"task": str(example.meta.get("task", "QA"))}) + "\n")
    return path


def once(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Runs a whole process in a folder; returns its wall-clock and CPU-seconds."""
    begin = time.perf_counter()
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=silent, stderr=silent)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
