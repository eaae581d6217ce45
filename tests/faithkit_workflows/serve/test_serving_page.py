"""docs/guides/serving.md: its requests are sent to a real server, and its tables are those of the code."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from faithkit_workflows.serve.schemas import STATUSES
from tests.faithkit_workflows.serve.running_server import RunningServer
from tests.pages.reading import PAGES, blocks, prose

pytestmark = pytest.mark.xdist_group("serve-routes")
PAGE, ADDRESS = "docs/guides/serving.md", "http://127.0.0.1:8000"
SHELL = blocks(PAGE, "sh")


def run_block(block: str, server: RunningServer, folder: Path) -> str:
    script = f"set -eu -o pipefail\n{block.replace(ADDRESS, server.url)}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs the program curl")
def test_requests_of_curl_get_the_replies_that_are_shown(server: RunningServer, tmp_path: Path) -> None:
    one, stream, job = (run_block(block, server, tmp_path) for block in SHELL)
    shown, found = json.loads(blocks(PAGE, "json")[0]), json.loads(one)
    assert shown.keys() == found.keys()
    (span,) = shown["spans"]  # of the real detector
    text = "The pump comes with a warranty of 36 months. Returns are free."
    assert text[span["start"] : span["end"]] == span["text"]
    assert text in SHELL[0] and span["evidence"]["text"] in SHELL[0]
    assert re.findall("^event: (.+)", stream, re.MULTILINE) == ["sentence", "sentence", "verdict"]
    assert blocks(PAGE, "text")[0].partition('"label"')[0] in stream
    assert '"state":"done"' in job and "context,answer,label,probability,spans" in job


def test_lines_of_python_run(server: RunningServer) -> None:
    (code,) = blocks(PAGE, "python")
    scope: dict[str, Any] = {}
    exec(code.replace(ADDRESS, server.url), scope)  # noqa: S102 - our own page
    assert len(scope["labels"]) == 2
    for other in blocks(PAGE, "py"):  # of packages that are not installed here
        compile(other, PAGE, "exec")


def test_the_table_of_refusals_is_that_of_the_code() -> None:
    cells = re.findall(r"\| (\d{3}) \| ([^|]+)", prose(PAGE))
    found = {code: int(status) for status, codes in cells for code in re.findall(r"`(\w+)`", codes)}
    assert found == STATUSES


def test_every_route_of_the_page_exists(server: RunningServer) -> None:
    known = {*server.reply("/openapi.json")[2]["paths"], "/openapi.json"}
    named = re.findall(r"`(/[a-z]\S*?)`", prose(PAGE)) + re.findall(rf"{ADDRESS}(/[\w/]+)", PAGES[PAGE])
    assert len(named) > 12 and set(named) - known - {"/v1/jobs/", "/v1", "/faithkit/check"} == set()
