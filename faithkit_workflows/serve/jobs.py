"""Jobs: `faithkit score` on a table, as a process of its own, one after the other.

A job is a folder of `jobs_dir`: `job.json`, the table, and the run. A job that was interrupted, by a restart of the
service too, goes on after its last saved rows.
"""

import asyncio
import ctypes
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
import urllib.parse
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field, ValidationError

from faithkit.errors import shorten
from faithkit.files.atomic import write_json
from faithkit.files.run_folder import run_lock
from faithkit_workflows.serve.gate import streams_body
from faithkit_workflows.serve.schemas import JsonRequest, Problem, Text, document_refusals
from faithkit_workflows.serve.service import Service
from faithkit_workflows.sweep import quote_override

log = logging.getLogger("faithkit")
SUFFIXES = {
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/jsonl": ".jsonl",
    "application/x-ndjson": ".jsonl",
    "application/vnd.apache.parquet": ".parquet",
}
ADDRESS = "application/json"  # of a body that names the table's address
JOB, TABLE, RUN, LOG = "job.json", "table", "run", "score.log"
QUEUED: Final = "queued"
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
NO_KEY = re.compile(r"[\\()\[\]{}:=,\s]")  # characters that a key of Hydra has after a backslash alone
MAX_SHOWN = 2000  # characters of an error
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # Linux


class JobAddress(JsonRequest):
    """Where the table is."""

    url: Annotated[str, Field(pattern=r"^https://\S+$", max_length=4000)]
    model: str | None = None


class Job(BaseModel):
    """A job."""

    id: str
    state: Literal["queued", "running", "done", "failed"]
    model: str
    created: int
    finished: int | None = None
    rows: int | None = Field(default=None, description="Rows with a verdict.")
    error: str | None = None
    client: str | None = Field(default=None, exclude=True, description="Whose key sent it.")
    metrics: dict[str, Any] | None = Field(default=None, description="The shares of the whole table.")
    result: str | None = Field(default=None, description="The route of the scored rows.")


def _end_with_parent() -> None:
    """Lets the kernel end this process with its parent, also after kill -9: the next service resumes its job."""
    assert _PRCTL is not None, "asked where the function is there"
    _PRCTL(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class JobRunner:
    """Runs the jobs of a folder.

    Args:
        folder: `jobs_dir`.
    """

    def __init__(self, service: Service, folder: Path):
        self.service, self.folder = service, folder
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._lock = ExitStack()

    @property
    def is_running(self) -> bool:
        """Whether jobs that are accepted will be run."""
        return self._task is not None and not self._task.done()

    def lock(self) -> None:
        """Takes the folder for this service.

        Raises:
            UserError: Another service works in it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock.enter_context(run_lock(self.folder, "jobs_dir"))

    def start(self) -> None:
        """Queues the jobs that are not finished, and begins to run them; what is no job stays as it is."""
        jobs = []
        for path in self.folder.glob(f"*/{JOB}"):
            try:
                jobs.append(self.read(path.parent.name))
            except (Problem, ValidationError, OSError) as error:
                log.warning("%s is no job: %s", path, shorten(str(error)))
        for job in sorted(jobs, key=lambda one: one.created):
            if job.state in (QUEUED, RUNNING):
                self._queue.put_nowait(job.id)
        self._task = asyncio.create_task(self._run_all())

    async def stop(self) -> None:
        """Interrupts the running job, which the next start resumes."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()
        self._lock.close()

    def read(self, id_: str, client: str | None = None) -> Job:
        """Reads a job.

        Args:
            client: Reads none that another key has sent; None for the service itself.

        Raises:
            Problem: There is none.
        """
        path = self.folder / id_ / JOB
        job = (
            Job.model_validate_json(path.read_bytes()) if re.fullmatch("[0-9a-f]{32}", id_) and path.is_file() else None
        )
        if job is None or (client is not None and self.service.keys and job.client != client):
            raise Problem("unknown_job", "there is no such job", "use the id that POST /v1/jobs returned", field="id")
        return job

    def write(self, job: Job) -> None:
        """Writes a job."""
        write_json(self.folder / job.id / JOB, job.model_dump() | {"client": job.client})

    async def add(self, model: str | None, suffix: str, parts: AsyncIterator[bytes], client: str) -> Job:
        """Stores a table, and queues its job; its lines count as rows of the client's rate.

        Raises:
            Problem: It is too large, or empty, or does not fit on the disk, or the client's rate is exceeded.
        """
        name = self.service.find(model).name
        job = Job(id=uuid.uuid4().hex, state=QUEUED, model=name, created=int(time.time()), client=client)
        folder = self.folder / job.id
        folder.mkdir()
        size, lines, limit, path = 0, 0, self.service.settings.max_job_bytes, folder / f"{TABLE}{suffix}"
        try:
            with path.open("wb") as file:
                async for part in parts:
                    size, lines = size + len(part), lines + part.count(b"\n")
                    if size > limit:
                        raise Problem("body_too_large", "the table is too large", f"send at most {limit} bytes")
                    await asyncio.to_thread(file.write, part)
            if not size:
                raise Problem("invalid_request", "the table is empty", "send its bytes as the body")
            self.service.limiter.take(client, max(lines, 1))
            self.write(job)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                log.error("job %s cannot be stored: %s", job.id, error)
                raise Problem("disk_full", "the table cannot be stored", "ask the service's owner") from error
            raise
        self._queue.put_nowait(job.id)
        return job

    async def _run_all(self) -> None:
        while True:
            id_ = await self._queue.get()
            try:
                await self._run(self.read(id_))
            except Exception as error:  # the fault of one job, such as a deleted folder, does not end the others
                log.exception("job %s cannot be run", id_)
                with suppress(Problem, ValidationError, OSError):
                    failed = {"state": FAILED, "error": str(error), "finished": int(time.time())}
                    self.write(self.read(id_).model_copy(update=failed))

    async def _run(self, job: Job) -> None:
        folder = self.folder / job.id
        if (folder / RUN).exists():
            arguments = [f"resume={quote_override(str(folder / RUN))}"]
        else:
            (table,) = folder.glob(f"{TABLE}.*")
            settings = self.service.settings
            keys = {
                "path": table,
                "checkpoint": self.service.models[job.model].checkpoint,
                "run_dir": folder / RUN,
                "precision": settings.precision,
                "on_bad_row": "skip",
                "save_every_num_rows": 256,  # in which progress is counted
                "threshold": settings.threshold,
                "on_language": settings.on_language,
            }
            arguments = [
                f"{key}={value if isinstance(value, int | float) else quote_override(str(value))}"
                for key, value in keys.items()
                if value is not None
            ]
            if labels := settings.labels:
                # Hydra reads no quotes around a key.
                classes = (NO_KEY.sub(r"\\\g<0>", str(name)) + f":{label}" for name, label in labels.items())
                arguments.append(f"labels={{{','.join(classes)}}}")
        self.write(job.model_copy(update={"state": RUNNING}))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW  # not into a file elsewhere
        with os.fdopen(os.open(folder / LOG, flags, 0o600), "ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "faithkit", "score", *arguments),
                stdout=output,
                stderr=output,
                stdin=asyncio.subprocess.DEVNULL,
                preexec_fn=_end_with_parent if _PRCTL is not None else None,
            )
            code = await self._process.wait()
        ended = job.model_copy(update={"finished": int(time.time()), "rows": self.count_rows(job)})
        if code == 0:
            metrics = json.loads((folder / RUN / "metrics.json").read_bytes())["metrics"]
            update = {"state": DONE, "metrics": metrics, "result": f"/v1/jobs/{job.id}/rows"}
        else:
            text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
            error = text[text.rfind("error:") :] if "error:" in text else f"exit code {code}"
            update = {"state": FAILED, "error": error.replace(str(folder), "").strip()[:MAX_SHOWN]}
        self.write(ended.model_copy(update=update))
        log.info("job %s: %s", job.id, update["state"])

    def count_rows(self, job: Job) -> int | None:
        """Counts the rows with a verdict so far."""
        path = self.folder / job.id / RUN / "predictions" / f"{TABLE}.jsonl"
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))


def add_routes(app: FastAPI, service: Service) -> None:
    """Adds the routes; without `jobs_dir` they refuse."""
    folder = service.settings.jobs_dir
    forms = {name: {"schema": {"type": "string", "format": "binary", "minLength": 1}} for name in SUFFIXES}
    service.jobs = runner = JobRunner(service, Path(folder).expanduser()) if folder else None

    def get_runner() -> JobRunner:
        if runner is None:
            raise Problem("jobs_off", "this service runs no jobs", "start it with jobs_dir=FOLDER")
        return runner

    @app.post(
        "/v1/jobs",
        status_code=202,
        summary="Score a table: its bytes, or its address",
        responses=document_refusals(
            "jobs_off",
            "job_host",
            "wrong_content_type",
            "unknown_model",
            "loading",
            "timeout",
            "no_verdict",
            "disk_full",
        ),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": forms | {ADDRESS: {"schema": JobAddress.model_json_schema()}},
            }
        },
    )
    @streams_body
    async def add_job(request: Request, model: Annotated[str | None, Query()] = None) -> Job:
        found, client = get_runner(), request.scope["state"]["client"]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == ADDRESS:
            return await _add_address(found, request, client)
        if kind not in SUFFIXES:
            help_ = f"send the table as {', '.join(SUFFIXES)}, or its address as {ADDRESS}"
            raise Problem("wrong_content_type", f"bodies of type {kind[:40] or 'none'} are not read", help_)
        return await found.add(model, SUFFIXES[kind], request.stream(), client)

    @app.get("/v1/jobs/{id}", summary="The state of a job", responses=document_refusals("jobs_off", "unknown_job"))
    def show_job(request: Request, id: Text) -> Job:  # in a thread: counting the rows of a large table takes a while
        found = get_runner()
        job = found.read(id, request.scope["state"]["client"])
        return job if job.state in (DONE, FAILED) else job.model_copy(update={"rows": found.count_rows(job)})

    @app.get(
        "/v1/jobs/{id}/rows",
        summary="The rows with label, probability and spans",
        response_class=FileResponse,
        responses=document_refusals("jobs_off", "unknown_job", "job_unfinished"),
    )
    async def download(request: Request, id: Text) -> FileResponse:
        found = get_runner()
        if found.read(id, request.scope["state"]["client"]).state != DONE:
            raise Problem("job_unfinished", "the job has no result", "see GET /v1/jobs/ID", field="id")
        (path,) = (found.folder / id / RUN).glob(f"{TABLE}.scored.*")
        return FileResponse(path, filename=path.name)


async def _add_address(runner: JobRunner, request: Request, client: str) -> Job:
    """Fetches the table from an address whose host is allowed; redirections are not followed."""
    import httpx

    content = b""
    async for part in request.stream():
        content += part
        if len(content) > runner.service.settings.max_body_bytes:
            raise Problem("body_too_large", "the body is too large", "send an address")
    try:
        given = JobAddress.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        code = "invalid_json" if first["type"] == "json_invalid" else "invalid_request"
        field = ".".join(map(str, first["loc"])) or None
        raise Problem(code, first["msg"], 'send {"url": "https://..."}', field=field) from error
    try:
        address = urllib.parse.urlsplit(given.url)
    except ValueError as error:  # https://[x
        raise Problem("invalid_request", str(error), "send a whole address", field="url") from error
    if address.hostname not in runner.service.settings.job_hosts:
        raise Problem("job_host", "tables are not fetched from this host", "start with job_hosts=[HOST]", field="url")
    suffix = Path(address.path).suffix.lower()
    if suffix not in SUFFIXES.values():
        listed = ", ".join(sorted(set(SUFFIXES.values())))
        raise Problem("invalid_request", f"a table ends with {listed}", "name such a file", field="url")
    try:
        async with (
            httpx.AsyncClient(timeout=60.0, follow_redirects=False) as fetcher,
            fetcher.stream("GET", given.url) as reply,
        ):
            if reply.status_code != 200:
                help_ = "name an address that answers with 200; redirections are not followed"
                raise Problem("no_verdict", f"the address answers with {reply.status_code}", help_, field="url")
            return await runner.add(given.model, suffix, reply.aiter_bytes(), client)
    except httpx.HTTPError as error:
        raise Problem(
            "no_verdict", f"the address cannot be read: {type(error).__name__}", "check it", field="url"
        ) from error
