"""A push to the hub has the model's own files, without paths of this machine, tokens, logs or predictions."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from critic import Critic
from critic.export import export
from faithkit.errors import UserError
from faithkit.files.model_folder import CARD, SIDECAR, check_folder, read_stored, seal
from faithkit.weights.publish import check_private, describe, published_files, push, shorten_paths
from tests.model_folders import edit_json

SECRET = "s3cret-of-a-service"


@pytest.fixture(scope="module")
def exported_once(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(str(trained), str(tmp_path_factory.mktemp("export") / "out")).folder


@pytest.fixture
def exported(exported_once: Path, tmp_path: Path) -> Path:
    """An export of a run whose configuration names folders of this machine."""
    return shutil.copytree(exported_once, tmp_path / "out")


def test_paths_are_shortened_and_the_model_stays_what_it_was(exported: Path, trained: Path) -> None:
    edit_json(exported / "tokenizer_config.json", lambda config: config.update(name_or_path="/home/me/bert"))
    seal(exported, read_stored(exported) or {})
    before = Critic.load(exported).score("a river", "it is long")
    shortened = {"origin.config.model.weights", "origin.config.run_dir", "tokenizer_config.json.name_or_path"}
    assert shortened <= {*shorten_paths(exported)}
    text = (exported / SIDECAR).read_text() + (exported / CARD).read_text()
    assert str(trained.parent) not in text and "tiny-bert" in text, "the last part is kept"
    check_folder(exported)
    assert Critic.load(exported).score("a river", "it is long") == before
    assert shorten_paths(exported) == []


@pytest.mark.parametrize("name", [CARD, SIDECAR, "config.json"])
@pytest.mark.parametrize("secret", ["hf_" + "a1B2" * 9, SECRET])
def test_a_token_is_not_pushed_and_not_repeated(
    exported: Path, name: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", SECRET)
    (exported / name).write_text((exported / name).read_text() + f"\n{secret}\n")
    with pytest.raises(UserError, match=f"{name} contains a token") as raised:
        check_private(exported)
    assert secret not in str(raised.value)


def test_a_path_of_the_home_folder_inside_a_text_is_not_pushed(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    shorten_paths(exported)
    assert check_private(exported) >= 3
    edit_json(exported / SIDECAR, lambda stored: stored["origin"].update(note="from /home/somebody/data, cleaned"))
    with pytest.raises(UserError, match=r"faithkit.json contains a path of this machine"):
        check_private(exported)


def test_a_dry_run_shows_files_card_and_what_stays(exported: Path, trained: Path) -> None:
    (exported / "notes.md").touch()
    text = "\n".join(describe(exported, "me/critic", private=True, run=trained))
    names = ("model.safetensors", "checkpoints/", "predictions/", "train.log", "library_name")
    for part in ("/me/critic (private", *names):
        assert part in text, part
    assert "left out, of the folder: notes.md" in text


class Hub(BaseHTTPRequestHandler):
    """A hub for one model: notes what it is sent, and takes all files into the commit itself."""

    sent: dict[str, Any]

    @property
    def own_url(self) -> str:
        return "http://{}:{}".format(*self.server.server_address[:2])

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != "Bearer hf_right":
            self._answer(401, {"error": "Invalid credentials"})
        elif self.path == "/api/repos/create":
            self.sent["created"] = json.loads(body)
            self._answer(200, {"url": f"{self.own_url}/me/critic"})
        elif self.path.endswith("/preupload/main"):
            files = [{"path": one["path"], "uploadMode": "regular"} for one in json.loads(body)["files"]]
            self._answer(200, {"files": [{**one, "shouldIgnore": False, "oid": None} for one in files]})
        else:
            self.sent["commit"] = [json.loads(line) for line in body.splitlines()]
            self._answer(200, {"commitUrl": f"{self.own_url}/me/critic/commit/1", "commitOid": "1", "success": True})

    def do_GET(self) -> None:
        self._answer(200, {"id": "me/critic", "sha": "0", "siblings": [], "tags": [], "type": "model", "name": "me"})

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The requests that a hub on this machine was sent."""
    from huggingface_hub import constants

    sent: dict[str, Any] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OwnHub", (Hub,), {"sent": sent}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    yield sent
    server.shutdown()


def test_a_push_sends_the_folder_in_one_commit(exported: Path, hub: dict[str, Any]) -> None:
    (exported / "train.log").write_text("mine")
    assert push(exported, "me/critic", private=True).endswith("/me/critic/commit/1")
    created = hub["created"]
    assert (created["name"], created["organization"], created["visibility"]) == ("critic", "me", "private")
    files = {line["value"]["path"] for line in hub["commit"] if line["key"] == "file"}
    assert files == {*published_files(exported)}


def test_a_hub_that_refuses_or_is_away_is_explained(
    exported: Path, hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UserError, match=r"the hub refuses: .*401"):
        push(exported, "me/critic", private=True)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="broke off"):
        push(exported, "me/critic", private=True)
