"""A server at an https address is asked only where its certificate is trusted."""

import shutil
import subprocess
from pathlib import Path

import pytest

from faithkit.errors import UserError
from tests.faithkit.inference.asking import one_reply
from tests.faithkit.inference.server import ChatServer

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture
def certificate(tmp_path: Path) -> str:
    """Signed by itself, for this machine; with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes the certificate, is not installed")
    path, key = tmp_path / "server.pem", tmp_path / "key.pem"
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *named]
    subprocess.run([*made, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True)
    path.write_text(key.read_text() + path.read_text())
    return str(path)


def test_a_trusted_server_answers(certificate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    with ChatServer(certificate=certificate) as server:
        assert one_reply(server).texts == ("question 0",)


def test_an_unknown_server_is_refused_before_it_is_sent_anything(
    certificate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with ChatServer(certificate=certificate) as server:
        with pytest.raises(UserError, match="certificate"):
            one_reply(server)
        assert server.asked == []
