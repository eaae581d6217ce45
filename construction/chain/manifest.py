"""The manifest of a chain: what each step was made of, how far it is, and what it counted.

It is replaced as a whole with each change (`faithkit.files.atomic`), so that a kill leaves the one of before or the
one of after. A step whose signature is another one than that of its rows is made again.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.atomic import write_json

NAME = "manifest.json"
VERSION = 1  # of the file: raised where an older one can no longer be read
RUNNING, DONE = "running", "done"


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """A step in the manifest.

    Args:
        file: Its rows, relative to the run's folder.
        signature: A hash of all that its rows depend on: its settings and code, and the steps before it.
        rows_id: Names these rows: another one each time that the step is begun.
        made_of: The names of the rows before it, by step.
        settings: What the signature is made of, to be read by people.
        engine: The identity of the model that it asks, weights included; empty for none.
        state: RUNNING until all rows are there.
        size: Bytes of its file, once it is done.
        holes: How many rows failed, by step and kind.
        revision: Raised whenever holes were filled: the steps behind then fill theirs.
        after: The revision of each step before it that its rows have followed.
        said: What its engine counted: requests, tokens, cost.
    """

    name: str
    file: str
    signature: str
    rows_id: str
    made_of: dict[str, str]
    settings: Mapping[str, Any]
    engine: str = ""
    state: str = RUNNING
    rows: int = 0
    size: int = 0
    holes: dict[str, int] = field(default_factory=dict)
    revision: int = 0
    after: dict[str, int] = field(default_factory=dict)
    began: str = ""
    ended: str = ""
    seconds: float = 0.0
    said: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)


class Manifest:
    """The manifest of a run's folder, read and written as a whole.

    Args:
        pipeline: The name of the chain. Another chain's folder is refused.

    Raises:
        UserError: The file is damaged, of a newer version, or of another pipeline.
    """

    def __init__(self, folder: Path, pipeline: str):
        self.path, self.pipeline = folder / NAME, pipeline
        self.steps: dict[str, StepRecord] = {}
        self.result: Mapping[str, Any] = {}
        self.is_older = False
        if self.path.exists():
            self._read()

    def write(self) -> None:
        """Replaces the file."""
        steps = [asdict(step) for step in self.steps.values()]
        stored = {"version": VERSION, "pipeline": self.pipeline, "steps": steps, "result": self.result}
        write_json(self.path, stored)

    def _read(self) -> None:
        hint = f"delete {NAME}: all steps are made again, and replies come from the cache"
        try:
            stored = json.loads(self.path.read_bytes())
            version, pipeline = int(stored["version"]), str(stored["pipeline"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"the manifest is damaged: {shorten(str(error))}", place=str(self.path), hint=hint
            ) from error
        if version > VERSION:
            problem = f"the manifest is of version {version}, and this faithkit writes {VERSION}"
            raise UserError(problem, place=str(self.path), hint="use the newer faithkit, or another run_dir")
        if pipeline != self.pipeline:
            problem = f"this folder is of pipeline={pipeline}, and pipeline={self.pipeline} is asked for"
            raise UserError(problem, place=str(self.path.parent), hint="set another run_dir")
        if version < VERSION:
            self.is_older = True  # nothing in it counts: every step is made again
            return
        names = {one.name for one in fields(StepRecord)}
        try:
            records = [StepRecord(**{k: v for k, v in step.items() if k in names}) for step in stored["steps"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError("the manifest is damaged: a step lacks fields", place=str(self.path), hint=hint) from error
        self.steps = {record.name: record for record in records}
        self.result = stored.get("result") or {}


def sign(*parts: Any) -> str:
    """Hashes what rows depend on."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
