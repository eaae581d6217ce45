"""The service behind nginx, with the configuration of the documentation."""

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faithkit_workflows.serve.running_server import PATIENCE, ROW, RunningServer, stream_check
from tests.running import ROOT

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
OPENSSL = shutil.which("openssl")
pytestmark = [
    pytest.mark.skipif(NGINX is None or OPENSSL is None, reason="nginx or openssl is not installed"),
    pytest.mark.xdist_group("serve-proxy"),
]


@pytest.fixture(scope="module")
def port(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Runs nginx before the server, and returns its port."""
    folder = tmp_path_factory.mktemp("nginx")
    command = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-keyout", "checks.key", "-out", "checks.crt"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    site = (ROOT / "docs/guides/nginx.conf").read_text(encoding="utf-8").replace("/etc/nginx/", f"{folder}/")
    site = site.replace("rate=20r/s", "rate=1r/s")  # reached on a slow machine too
    site = site.replace("listen 443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{name}_temp_path {folder}/{name};" for name in names)
    main = f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}} http {{ access_log off; "
    (folder / "nginx.conf").write_text(f"{main}{paths} {site} }}")
    process = subprocess.Popen([str(NGINX), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")])
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def connect(port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the certificate is of this test
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))


def reply(port: int, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """Sends a request through nginx, and returns status and content."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(port)
    method = "GET" if body is None else "POST"
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Content-Type": "application/json"} | given)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_verdicts_pass_through_the_proxy(server: RunningServer, port: int) -> None:
    status, content = reply(port, "/v1/check", json.dumps(ROW).encode())
    assert status == 200
    found, direct = json.loads(content), server.reply("/v1/check", ROW)[2]
    assert found | {"request_id": 0} == direct | {"request_id": 0}


def test_events_pass_while_the_response_is_written(port: int) -> None:
    with connect(port) as connection:
        assert stream_check(connection).count(b"event: sentence") == 2


def test_the_proxy_refuses_metrics_large_bodies_and_many_requests(port: int) -> None:
    assert reply(port, "/metrics")[0] == 403
    assert reply(port, "/v1/check", b"", Content_Length=str(17 << 20))[0] == 413
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda _: reply(port, "/health/live")[0], range(100)))
    assert set(statuses) == {200, 429}
