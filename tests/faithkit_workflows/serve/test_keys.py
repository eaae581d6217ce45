"""API keys and rates: who may ask, and how much."""

import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit_workflows.serve.keys import RateLimiter, find_name, hash_key, read_keys
from faithkit_workflows.serve.schemas import Problem
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


def test_who_has_no_key_cannot_keep_out_who_has_one(tmp_path: Path, default_file: Path) -> None:
    """Bodies to open routes are not read and their requests are not counted; a browser asks without a key."""
    key = add_key(path := tmp_path / "keys.txt", "alice")
    limits = ("max_requests=4", "max_body_bytes=100000", "cors_origins=[https://example.org]")
    with run_server(f"checkpoint='default:{default_file}'", f"keys_path={path}", *limits) as server:
        with ExitStack() as opened:
            for _ in range(20):
                connection = opened.enter_context(server.connect())
                head = "POST /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n"
                connection.sendall(head.encode() + b" " * 80_000)
            assert server.reply("/v1/check", ROW, Authorization=f"Bearer {key}")[0] == 200
        asked = {"Origin": "https://example.org", "Access_Control_Request_Method": "POST"}
        status, headers, _ = server.reply("/v1/check", method="OPTIONS", **asked)
        assert (status, headers["access-control-allow-origin"]) == (200, "https://example.org")
        refused = server.reply("/v1/check", ROW, Origin="https://example.org")
        assert (refused[0], refused[1]["access-control-allow-origin"]) == (401, "https://example.org")
        assert server.reply("/v1/check", ROW, X_Forwarded_For="10.0.0.1", Authorization=f"Bearer {key}")[0] == 200
        assert "10.0.0.1" not in server.log.read_text()


def test_no_header_gives_a_client_another_rate(default_file: Path) -> None:
    with run_server(f"checkpoint='default:{default_file}'", "rows_per_minute=3") as server:
        never = server.reply("/v1/check", {"rows": [ROW] * 4})
        assert (never[0], never[2]["error"]["code"]) == (429, "rate_limited")
        assert "retry-after" not in never[1], "waiting does not help"
        statuses = [server.reply("/v1/check", ROW, X_Forwarded_For=f"10.0.0.{n}")[0] for n in range(5)]
        assert statuses == [200, 200, 200, 429, 429]


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
    with pytest.raises(Problem, match="61 rows") as never:
        limiter.take("b", 61)
    assert never.value.headers == {}  # waiting does not help
    limiter.take("b", 60)
    now = 5.0
    limiter.take("a", 5)


@pytest.mark.parametrize("text", ["", "alice\n", "alice abc\n", f"a {hash_key('x')}\na {hash_key('y')}\n"])
def test_a_wrong_file_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "keys.txt").write_text(text)
    with pytest.raises(UserError):
        read_keys(path)
