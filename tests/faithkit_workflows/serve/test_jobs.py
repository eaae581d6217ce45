"""Jobs: a table is scored in a process of its own, and goes on after a restart."""

import csv
import io
import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from faithkit.files.run_folder import is_locked
from tests.critic.test_class_labels import foreign
from tests.faithkit_workflows.serve.running_server import CONTEXT, PATIENCE, RunningServer, run_server
from tests.faithkit_workflows.serve.test_keys import add_key
from tests.running import run

pytestmark = pytest.mark.xdist_group("serve-routes")


def make_table(num_rows: int) -> bytes:
    rows = "".join(f'"{CONTEXT}","It lasts {n} months."\n' for n in range(num_rows))
    return f"context,answer\n{rows}".encode()


def wait_for_job(server: RunningServer, id_: str, *states: str) -> Any:
    end = time.monotonic() + PATIENCE
    while (job := server.reply(f"/v1/jobs/{id_}")[2]).get("state") not in states:
        assert "error" not in job or "state" in job, (job, server.log.read_text()[-3000:])
        assert time.monotonic() < end, job
        time.sleep(0.05)
    return job


def test_a_table_comes_back_with_verdicts(server: RunningServer) -> None:
    status, _, job = server.reply("/v1/jobs?model=tiny", make_table(7), Content_Type="text/csv")
    assert (status, job["state"], job["model"]) == (202, "queued", "tiny")
    early = server.reply(f"/v1/jobs/{job['id']}/rows")
    assert (early[0], early[2]["error"]["code"]) == (409, "job_unfinished")
    done = wait_for_job(server, job["id"], "done", "failed")
    assert (done["state"], done["rows"]) == ("done", 7), done
    assert done["metrics"]
    rows = list(csv.DictReader(io.StringIO(server.reply(done["result"])[2].decode())))
    assert len(rows) == 7 and {row["label"] for row in rows} <= {"faithful", "hallucinated"}


def test_a_table_that_cannot_be_read_fails_with_its_reason(server: RunningServer) -> None:
    job = server.reply("/v1/jobs", b"a,b\n1,2\n", Content_Type="text/csv")[2]
    failed = wait_for_job(server, job["id"], "done", "failed")
    assert failed["state"] == "failed" and "context" in failed["error"], failed


def test_what_is_no_table_is_refused(server: RunningServer, jobs_dir: Path) -> None:
    before = set(jobs_dir.iterdir())
    assert server.reply("/v1/jobs", b"", Content_Type="text/csv")[2]["error"]["code"] == "invalid_request"
    assert server.reply("/v1/jobs", b"x", Content_Type="image/png")[2]["error"]["code"] == "wrong_content_type"
    urls = ("https://elsewhere.example/a.csv", "file:///etc/passwd", "http://127.0.0.1/a.csv")
    codes = [server.reply("/v1/jobs", {"url": url})[2]["error"]["code"] for url in urls]
    assert codes == ["job_host", "invalid_request", "invalid_request"]
    assert set(jobs_dir.iterdir()) == before


def test_an_interrupted_job_goes_on_after_a_restart_and_after_a_kill(default_file: Path, tmp_path: Path) -> None:
    arguments = (f"checkpoint='default:{default_file}'", f"jobs_dir={tmp_path / 'jobs'}")
    with run_server(*arguments) as server:
        second = run("serve.py", *arguments, "port=0")
        assert second.returncode == 2 and "is working in this folder" in second.stderr
        job = server.reply("/v1/jobs", make_table(3_000), Content_Type="text/csv")[2]
        while not (rows := server.reply(f"/v1/jobs/{job['id']}")[2]["rows"] or 0) > 0:
            time.sleep(0.05)
        assert rows < 2_000, "progress is shown early"
        assert server.end(signal.SIGTERM) == 0
    predictions = tmp_path / "jobs" / job["id"] / "run" / "predictions" / "table.jsonl"
    first, rest = predictions.read_text().split("\n", 1)
    planted = {**json.loads(first), "label": "unparsed", "score": None}
    predictions.write_text(f"{json.dumps(planted)}\n{rest}")
    with run_server(*arguments) as server:
        wait_for_job(server, job["id"], "running")
        end = time.monotonic() + PATIENCE
        while not is_locked(tmp_path / "jobs" / job["id"] / "run"):  # the job's own process works
            assert time.monotonic() < end
            time.sleep(0.01)
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    (tmp_path / "jobs" / ("0" * 32)).mkdir()
    (tmp_path / "jobs" / ("0" * 32) / "job.json").write_text('{"id": ')  # cut off by a full disk
    with run_server(*arguments) as server:
        done = wait_for_job(server, job["id"], "done", "failed")
        assert (done["state"], done["rows"]) == ("done", 3_000), done
        assert predictions.read_text().split("\n", 1)[0] == first, "an edited line is no verdict"


def test_a_deleted_job_does_not_end_the_others(default_file: Path, tmp_path: Path) -> None:
    arguments = (f"checkpoint='default:{default_file}'", f"jobs_dir={tmp_path / 'jobs'}")
    with run_server(*arguments) as server:
        first, second, third = (
            server.reply("/v1/jobs", make_table(rows), Content_Type="text/csv")[2] for rows in (600, 3, 4)
        )
        shutil.rmtree(tmp_path / "jobs" / second["id"])
        assert wait_for_job(server, third["id"], "done", "failed")["state"] == "done"
        assert server.reply(f"/v1/jobs/{first['id']}")[2]["state"] == "done"
        assert server.reply(f"/v1/jobs/{second['id']}")[2]["error"]["code"] == "unknown_job"
        assert server.reply("/health/ready")[0] == 200


def test_a_job_has_the_labels_of_the_service(trained: Path, tmp_path: Path) -> None:
    critic, row = foreign(trained, tmp_path / "critic"), {"knowledge": CONTEXT, "response": "It lasts 0 months."}
    found = []
    for labels in ("labels={0: faithful, 1: hallucinated}", "labels={0: hallucinated, LABEL_1: faithful}"):
        folder = tmp_path / f"jobs {len(found)}"
        with run_server(f"checkpoint={critic}", f"jobs_dir='{folder}'", labels) as server:
            job = server.reply("/v1/jobs", make_table(1), Content_Type="text/csv")[2]
            done = wait_for_job(server, job["id"], "done", "failed")
            assert done["state"] == "done", done
            (scored,) = csv.DictReader(io.StringIO(server.reply(done["result"])[2].decode()))
            verdict = server.reply("/v1/check", row)[2]
            assert float(scored["probability"]) == pytest.approx(verdict["probability"], abs=1e-6)
            found.append(verdict["probability"])
    assert sum(found) == pytest.approx(1, abs=1e-6), "the labels are swapped"


def test_a_job_counts_in_the_rate_and_belongs_to_its_key(default_file: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    ann, bob = ({"Authorization": f"Bearer {add_key(keys, name)}"} for name in ("ann", "bob"))
    options = (f"jobs_dir={tmp_path / 'jobs'}", f"keys_path={keys}", "rows_per_minute=10")
    with run_server(f"checkpoint='default:{default_file}'", *options) as server:
        status, _, job = server.reply("/v1/jobs", make_table(8), Content_Type="text/csv", **ann)
        assert status == 202 and "client" not in job
        refused = server.reply("/v1/jobs", make_table(8), Content_Type="text/csv", **ann)
        assert refused[2]["error"]["code"] == "rate_limited"
        assert len(list((tmp_path / "jobs").glob("*/job.json"))) == 1
        assert server.reply(f"/v1/jobs/{job['id']}", **bob)[2]["error"]["code"] == "unknown_job"
        assert server.reply(f"/v1/jobs/{job['id']}", **ann)[2]["id"] == job["id"]
