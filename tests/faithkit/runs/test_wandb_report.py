"""A report at W&B: written by its own client, to a server on this machine that answers as W&B's does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.runs import find_runs, read_run
from faithkit.runs.listing import list_runs
from faithkit.runs.wandb_report import id_at_wandb, write_wandb_report
from tests.faithkit.runs.folders import make_run

PROJECT = {"id": "1", "internalId": "UHJvamVjdEludGVybmFsSWQ6MQ==", "name": "faithkit", "entityName": "me"}
NODE = {**PROJECT, "createdAt": "2026-01-01T00:00:00", "isBenchmark": False, "user": None}
VIEWER = {"id": "1", "entity": "me", "username": "me", "name": "me", "email": "e", "flags": "{}", "admin": False}


def answer(query: str, variables: dict[str, Any]) -> dict[str, Any]:
    """The answers of W&B's server to the few questions that its client asks."""
    if "upsertView" in query:
        view = {"id": "VmlldzoxMjM=", "type": "runs", "name": variables["name"], "spec": variables["spec"]}
        view |= {"displayName": variables["displayName"], "description": "", "project": PROJECT, "user": VIEWER}
        return {"upsertView": {"view": {**view, "createdAt": NODE["createdAt"]}, "inserted": True}}
    if "GetProjects" in query:
        page = {"endCursor": "a", "hasNextPage": False}
        return {"models": {"edges": [{"node": NODE, "cursor": "a"}], "pageInfo": page}}
    if "project(" in query:
        return {"project": PROJECT}
    return {"viewer": {**VIEWER, "teams": {"edges": []}, "apiKeys": {"edges": []}}}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The reports that reach the server."""
    pytest.importorskip("wandb_workspaces")
    views: list[dict[str, Any]] = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "upsertView" in asked["query"]:
                views.append(asked["variables"])
            data = json.dumps({"data": answer(asked["query"], asked.get("variables") or {})}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {"BASE_URL": f"http://127.0.0.1:{server.server_port}", "API_KEY": "a" * 40, "ERROR_REPORTING": "false"}
    for name, value in settings.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield views
    server.shutdown()


def logged(folder: Path, name: str) -> Path:
    (make_run(folder) / "wandb.json").write_text(json.dumps({"id": name, "name": name}))
    return folder


@pytest.mark.slow
def test_the_report_has_our_tables_and_panels_of_the_logged_runs(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    logged(tmp_path / "a", "first"), logged(tmp_path / "b", "second"), make_run(tmp_path / "never-logged")
    runs = find_runs(tmp_path)
    url = write_wandb_report("me/faithkit", runs, [list_runs(tmp_path)[0]], title="3 runs compared")
    assert url.startswith("http") and "me/faithkit/reports/" in url
    (report,) = sent
    assert (report["projectName"], report["entityName"], report["displayName"]) == ("faithkit", "me", "3 runs compared")
    blocks = json.loads(report["spec"])["blocks"]
    (table,) = [block["content"] for block in blocks if block["type"] == "markdown-block"]
    assert "0.750 \\[0.500, 0.875\\]" in table and "never-logged" in table
    (grid,) = [block["metadata"] for block in blocks if block["type"] == "panel-grid"]
    (runset,) = grid["runSets"]
    assert [one["value"] for one in runset["filters"]["filters"]] == [["first", "second"]]
    panels = [panel["viewType"] for panel in grid["panelBankSectionConfig"]["panels"]]
    assert sorted(panels) == ["Bar Chart", "Run Comparer", "Run History Line Plot", "Run History Line Plot"]
    assert "only in the tables: 1" in report["spec"]


def test_runs_that_wandb_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none of these runs was logged(.|\n)*wandb sync"):
        write_wandb_report("me/faithkit", [read_run(make_run(tmp_path / "a"))], [], title="")


@pytest.mark.parametrize("content", ["", "[1]", '{"name": "a"}', "[" * 100_000])
def test_a_damaged_file_of_names_is_no_id(content: str, tmp_path: Path) -> None:
    folder = logged(tmp_path / "a", "first")
    assert id_at_wandb(read_run(folder)) == "first"
    (folder / "wandb.json").write_text(content)
    assert id_at_wandb(read_run(folder)) is None
