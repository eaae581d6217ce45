"""A step of a pipeline is answered by several servers behind one address, and one of them may fail on the way."""

import socket
import threading
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.faithkit.inference.server import ChatServer, Fault
from tests.faithkit_workflows.pipelines.serving import construct_here
from tests.faithkit_workflows.pipelines.test_self_dialogue import dialogues, given, server


class Balancer:
    """Hands each connection to the next of several servers, as the proxy of a cluster does."""

    def __init__(self, servers: list[ChatServer]):
        self._ports = cycle(int(each.url.removesuffix("/v1").rpartition(":")[2]) for each in servers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def __enter__(self) -> "Balancer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # closed
                return
            behind = socket.create_connection(("127.0.0.1", next(self._ports)))
            for one, other in ((client, behind), (behind, client)):
                threading.Thread(target=_pipe, args=(one, other), daemon=True).start()


def _pipe(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
    except OSError:  # either end is gone
        pass


def test_several_servers_behind_one_address_construct_what_one_does_though_one_fails(tmp_path: Path) -> None:
    with server() as alone:
        construct_here(*given(alone, tmp_path / "one"))

    def fails_soon(_: dict[str, Any]) -> Fault | None:
        return Fault(disconnect=True) if len(servers[0].asked) > 2 else None

    servers = [server(always=fails_soon), server(), server()]
    (tmp_path / "many").mkdir()
    with ExitStack() as opened:
        for each in servers:
            opened.enter_context(each)
        balancer: Any = opened.enter_context(Balancer(servers))
        construct_here(*given(balancer, tmp_path / "many" / "run", "engine.max_retries=6"))
    assert dialogues(tmp_path / "many" / "run") == dialogues(tmp_path / "one")
    asked = [len(each.asked) for each in servers]
    assert asked[0] > 2 and min(asked[1:]) > 0, "one failed, and the others had their part"
