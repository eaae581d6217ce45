"""The record of a sweep in its sweep.json: the command, the settings that vary, and how each job ended.

{"arguments": ["optimizer.lr=1e-3,2e-3"], "varied": ["optimizer.lr"],
 "jobs": {"lr-1e-3": {"settings": {"optimizer.lr": "1e-3"}, "ended": "done", "seconds": 61.2}}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.settings.config_files import SWEEP_FILE

DONE, FAILED, INTERRUPTED = "done", "failed", "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJob:
    """One training of a sweep.

    Args:
        name: The name of its subfolder.
        settings: The varied settings as on the command line: `optimizer.lr` to `1e-3`.
        ended: done, failed or interrupted; None while it is running.
        problem: Why it failed.
    """

    name: str
    settings: Mapping[str, str]
    ended: str | None = None
    problem: str | None = None
    seconds: float | None = None

    @property
    def overrides(self) -> list[str]:
        """The settings as command-line arguments."""
        return [f"{key}={value}" for key, value in self.settings.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A sweep, as recorded in its folder.

    Args:
        arguments: The command's, without the folder.
        varied: The keys whose values differ between jobs.
        jobs: By name, in the order in which they began.
    """

    folder: Path
    arguments: tuple[str, ...]
    varied: tuple[str, ...]
    jobs: Mapping[str, SweepJob] = field(default_factory=dict)

    @property
    def shared(self) -> list[str]:
        """The arguments of all jobs."""
        keys = {argument: argument.partition("=")[0].lstrip("+") for argument in self.arguments}
        return [
            argument
            for argument, key in keys.items()
            if key not in self.varied and key != "sweep" and not key.startswith("sweep.")
        ]

    def command(self, job: SweepJob) -> list[str]:
        """Returns the arguments with which train.py repeats a job."""
        return [*self.shared, *job.overrides]


def write_sweep(record: SweepRecord) -> None:
    """Writes sweep.json in one step."""
    jobs = {
        job.name: {
            "settings": dict(job.settings),
            **{name: value for name in ("ended", "problem", "seconds") if (value := getattr(job, name)) is not None},
        }
        for job in record.jobs.values()
    }
    found = {"arguments": list(record.arguments), "varied": list(record.varied), "jobs": jobs}
    write_json(record.folder / SWEEP_FILE, found)


def read_sweep(folder: Path) -> SweepRecord:
    """Reads sweep.json.

    Raises:
        UserError: It is damaged.
    """
    path = folder / SWEEP_FILE
    hint = "its runs are complete: compare them by their folders, and start the sweep again in another folder"
    found = read_strict_json(path, hint=hint)
    try:
        jobs = {}
        for name, value in found["jobs"].items():
            if not name or "/" in name or name in (".", ".."):
                raise TypeError(f"{name!r} is not a folder name")
            seconds, texts = value.get("seconds"), {key: value.get(key) for key in ("ended", "problem")}
            jobs[name] = SweepJob(
                name=name,
                settings={_text(key): _text(one) for key, one in value["settings"].items()},
                seconds=None if seconds is None else float(seconds),
                **{key: None if text is None else _text(text) for key, text in texts.items()},
            )
        words = [tuple(map(_text, found[name])) for name in ("arguments", "varied")]
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"not the record of a sweep: {error}", place=str(path), hint=hint) from error
    return SweepRecord(folder=folder, arguments=words[0], varied=words[1], jobs=jobs)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
