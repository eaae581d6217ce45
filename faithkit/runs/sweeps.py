"""The record of a sweep, sweep.json in its folder: the command, which settings vary, and how each job ended.

{"arguments": ["optimizer.lr=1e-3,2e-3"], "varied": ["optimizer.lr"],
 "jobs": {"lr-1e-3": {"settings": {"optimizer.lr": "1e-3"}, "ended": "done", "seconds": 61.2}}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.run_folder import SWEEP_FILE
from faithkit.files.strict_json import read_strict_json

DONE, FAILED, PRUNED, INTERRUPTED = "done", "failed", "pruned", "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJob:
    """One training of a sweep.

    Args:
        name: Of its folder within the sweep's.
        settings: What differs, as the command line would set it: `optimizer.lr` to `1e-3`.
        ended: done, failed, pruned or interrupted; None where it has not been told yet.
        problem: Why it failed.
    """

    name: str
    settings: Mapping[str, str]
    ended: str | None = None
    problem: str | None = None
    seconds: float | None = None

    @property
    def overrides(self) -> list[str]:
        """The settings as they are typed."""
        return [f"{key}={value}" for key, value in self.settings.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A sweep as its folder tells it.

    Args:
        arguments: Of the command, without the folder.
        varied: The keys whose values differ between jobs.
        jobs: By name, in the order in which they began.
    """

    folder: Path
    arguments: tuple[str, ...]
    varied: tuple[str, ...]
    jobs: Mapping[str, SweepJob] = field(default_factory=dict)

    @property
    def shared(self) -> list[str]:
        """The arguments that all jobs have."""
        mine = {argument: argument.partition("=")[0].lstrip("+") for argument in self.arguments}
        return [
            argument
            for argument, key in mine.items()
            if key not in self.varied and key != "sweep" and not key.startswith("sweep.")
        ]

    def command(self, job: SweepJob) -> list[str]:
        """Writes the arguments with which train.py repeats a job."""
        return [*self.shared, *job.overrides]

    def with_job(self, job: SweepJob) -> "SweepRecord":
        """Adds a job, or what is new of one."""
        return replace(self, jobs={**self.jobs, job.name: job})


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
    hint = "its runs are whole: compare them by their folders, and begin the sweep again in another folder"
    found = read_strict_json(path, hint=hint)
    try:
        jobs = {str(name): _job(str(name), value) for name, value in found["jobs"].items()}
        words = [tuple(map(_text, found[name])) for name in ("arguments", "varied")]
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"no record of a sweep: {error}", place=str(path), hint=hint) from error
    return SweepRecord(folder=folder, arguments=words[0], varied=words[1], jobs=jobs)


def _job(name: str, value: Any) -> SweepJob:
    if not name or "/" in name or name in (".", ".."):
        raise TypeError(f"{name!r} is no folder's name")
    seconds, texts = value.get("seconds"), {key: value.get(key) for key in ("ended", "problem")}
    return SweepJob(
        name=name,
        settings={_text(key): _text(one) for key, one in value["settings"].items()},
        seconds=None if seconds is None else float(seconds),
        **{key: None if text is None else _text(text) for key, text in texts.items()},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
