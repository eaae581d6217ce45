"""The keys of `faithkit serve`."""

import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from faithkit.detector import DETECTORS
from faithkit.errors import UserError
from faithkit.languages import WARN
from faithkit.settings import types
from faithkit_workflows.settings import blocks, engines


def is_loopback(host: str) -> bool:
    """Reports whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServeSettings(blocks.Script):
    """faithkit serve."""

    seed: types.Seed
    checkpoint: types.Text
    models: Annotated[dict[str, types.Text] | None, types.Hint("use models={NAME: CHECKPOINT}")] = None
    threshold: types.Share | None = None
    precision: blocks.DetectorPrecision
    labels: blocks.ClassLabels = None
    on_language: blocks.OnLanguage = WARN
    host: types.Text
    port: Annotated[int, Field(ge=0, le=65535), types.Hint("use a port from 1 to 65535, or 0 for a free one")]
    workers: types.Count | None
    batch_wait_ms: Annotated[float, Field(ge=0, le=1000), types.Hint("use milliseconds from 0 to 1000")]
    batch_characters: types.Count
    max_body_bytes: types.Count
    max_rows: types.Count
    max_row_characters: types.Count
    max_response_characters: types.Count
    max_queue_rows: types.Count
    max_requests: types.Count
    body_seconds: types.Seconds
    request_seconds: types.Seconds
    drain_seconds: types.Seconds
    keys_path: blocks.InputFile
    allow_anonymous: types.Switch
    rows_per_minute: types.Count | None
    cors_origins: list[types.Text]
    allowed_hosts: list[types.Text]
    log_texts: types.Switch
    jobs_dir: blocks.Folder
    job_hosts: list[types.Text]
    max_job_bytes: types.Count

    conflicts = (
        types.Conflict(
            lambda s: not is_loopback(s.host) and s.keys_path is None and not s.allow_anonymous,
            "host={s.host} can be reached from other machines, and no keys are required",
            "python -m faithkit_workflows.serve.keys keys.txt NAME writes a key; then keys_path=keys.txt "
            "(or allow_anonymous=true)",
        ),
        types.Conflict(lambda s: s.models == {}, "models is empty", "models={NAME: CHECKPOINT}, or leave it out"),
        types.Conflict(
            lambda s: s.job_hosts and s.jobs_dir is None,
            "job_hosts is set and jobs are off",
            "set jobs_dir=FOLDER, where jobs keep their files",
        ),
    )

    def checkpoints(self) -> Mapping[str, str]:
        """Returns the checkpoint of each served name."""
        return self.models or {Path(self.checkpoint).name or self.checkpoint: self.checkpoint}

    def preflight(self, script: Any) -> Iterator[UserError]:
        for name, checkpoint in self.checkpoints().items():
            key = f"models.{name}" if self.models else "checkpoint"
            yield from engines.check_checkpoint(key, checkpoint, *DETECTORS)
