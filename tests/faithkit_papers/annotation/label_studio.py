"""A real Label Studio for tests: started in a new folder with SQLite, and used through its API.

It has a separate environment, build/label-studio or `FAITHKIT_LABEL_STUDIO`: `make label-studio` creates it.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.running import ROOT

VENV = Path(os.environ.get("FAITHKIT_LABEL_STUDIO") or ROOT / "build" / "label-studio")
PROGRAM = VENV / "bin" / "label-studio"
FRESH = VENV / "fresh.sqlite3"  # a database with all its tables: making them takes minutes
TOKEN = "0123456789abcdef" * 2 + "01234567"


class LabelStudio:
    """A running server; annotators are users of it, the first one its owner."""

    def __init__(self, folder: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = {"data-dir": folder, "port": self.port, "internal-host": "127.0.0.1", "username": "one@example.org"}
        options |= {"password": "secret-password", "user-token": TOKEN}
        flags = ["--init", "faithkit", "--no-browser", "--enable-legacy-api-token"]
        quiet = dict.fromkeys(("LATEST_VERSION_CHECK", "COLLECT_ANALYTICS", "DEBUG"), "false")
        quiet |= dict.fromkeys(("SENTRY_DSN", "FRONTEND_SENTRY_DSN"), "")
        given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        self.database, self.log = folder / "label_studio.sqlite3", folder / "server.log"
        if FRESH.exists():
            shutil.copyfile(FRESH, self.database)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "start", *flags, *given],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **quiet, "HOME": str(folder)},
            )

    def wait(self, seconds: float = 600) -> None:
        """Waits until the server answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-2000:]
            try:
                self.call("GET", "/api/projects/")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        else:
            raise AssertionError(f"Label Studio does not answer: {self.log.read_text(errors='replace')[-2000:]}")

        if not FRESH.exists():
            shutil.copyfile(self.database, FRESH)

    def close(self) -> None:
        """Ends the server."""
        self.process.terminate()
        self.process.wait(30)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Calls the API as the owner."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Token {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error

    def project(self, config: Path, tasks: Path) -> int:
        """Makes a project of a labelling configuration and imports tasks."""
        body = {"title": "proof", "label_config": config.read_text(encoding="utf-8")}
        made = self.call("POST", "/api/projects/", body)
        self.call("POST", f"/api/projects/{made['id']}/import", json.loads(tasks.read_text(encoding="utf-8")))
        return int(made["id"])

    def tasks(self, project: int) -> list[dict[str, Any]]:
        """The tasks of a project as the server has them, with their predictions."""
        found = self.call("GET", f"/api/tasks?project={project}&fields=all&page_size=1000")["tasks"]
        return [self.call("GET", f"/api/tasks/{task['id']}/") for task in found]

    def annotate(self, task: int, results: list[dict[str, Any]], **others: Any) -> int:
        """Annotates a task as the owner."""
        made = self.call("POST", f"/api/tasks/{task}/annotations/", {"result": results, **others})
        return int(made["id"])

    def export(self, project: int, path: Path) -> Path:
        """Exports a project as JSON."""
        found = self.call("GET", f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true")
        path.write_text(json.dumps(found), encoding="utf-8")
        return path
