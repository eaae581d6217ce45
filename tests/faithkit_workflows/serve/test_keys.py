"""API keys and rates: who may ask, and how much."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit_workflows.serve.keys import RateLimiter, find_name, hash_key, read_keys
from faithkit_workflows.serve.problems import Problem
from tests.faithkit_workflows.serve.running_server import ROW, run_server
from tests.running import ROOT, run


def add_key(path: Path, name: str) -> str:
    command = [sys.executable, "-m", "faithkit_workflows.serve.keys", str(path), name]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def test_keys_are_needed_on_every_route_but_the_page_and_health(tmp_path: Path, default_file: Path) -> None:
    path = tmp_path / "keys.txt"
    alice, bob = add_key(path, "alice"), add_key(path, "bob")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert alice not in path.read_text() and find_name(read_keys(path), bob) == "bob"
    options = (f"checkpoint='default:{default_file}'", "host=0.0.0.0", f"keys_path={path}", "rows_per_minute=3")
    with run_server(*options) as server:
        server.wait_until_ready()
        assert server.reply("/v1/check", ROW)[2]["error"]["code"] == "missing_key"
        wrong = server.reply("/v1/check", ROW, Authorization="Bearer fk_wrong")
        assert (wrong[0], wrong[1]["www-authenticate"]) == (401, "Bearer")
        assert server.reply("/metrics")[0] == 401
        assert server.reply("/")[0] == 200
        for _ in range(3):
            assert server.reply("/v1/check", ROW, Authorization=f"Bearer {alice}")[0] == 200
        refused = server.reply("/v1/check", ROW, Authorization=f"Bearer {alice}")
        assert (refused[0], refused[2]["error"]["code"]) == (429, "rate_limited")
        assert 1 <= int(refused[1]["retry-after"]) <= 20
        assert server.reply("/v1/check", ROW, X_API_Key=bob)[0] == 200
        log = server.log.read_text()
        assert '"client": "alice"' in log and alice not in log and bob not in log


def test_other_machines_need_keys_or_an_explicit_choice(default_file: Path) -> None:
    refused = run("serve.py", "host=0.0.0.0", f"checkpoint='default:{default_file}'")
    assert refused.returncode == 2
    assert "keys_path=keys.txt" in refused.stderr and "allow_anonymous=true" in refused.stderr


def test_a_bucket_fills_with_time() -> None:
    now = 0.0
    limiter = RateLimiter(60, lambda: now)
    limiter.take("a", 60)
    with pytest.raises(Problem) as refused:
        limiter.take("a", 5)
    assert refused.value.headers == {"Retry-After": "5"}
    limiter.take("b", 60)
    now = 5.0
    limiter.take("a", 5)


@pytest.mark.parametrize("text", ["", "alice\n", "alice abc\n", f"a {hash_key('x')}\na {hash_key('y')}\n"])
def test_a_wrong_file_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "keys.txt").write_text(text)
    with pytest.raises(UserError):
        read_keys(path)
