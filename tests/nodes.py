"""Two hosts on this machine: network namespaces that a pair of virtual interfaces joins."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running import ROOT

ADDRESSES = ("10.77.0.1", "10.77.0.2")


class Hosts:
    """Names of two namespaces and their interfaces, made by this process alone."""

    def __init__(self) -> None:
        self.names = [f"fk{os.getpid()}{end}" for end in "ab"]
        self.links = [f"v{name}" for name in self.names]

    def start(self, host: int, arguments: Sequence[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a command on a host, as the leader of a process group."""
        environment = {"GLOO_SOCKET_IFNAME": self.links[host], "OMP_NUM_THREADS": "1", **environment}
        with log.open("wb") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.names[host], *arguments],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def part(self) -> None:
        """Takes the wire away: neither host hears from the other again, and none is told."""
        _ip("-n", self.names[1], "link", "set", self.links[1], "down")


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Makes the hosts; skips a test where this machine does not allow it."""
    hosts = Hosts()
    try:
        for name in hosts.names:
            _ip("netns", "add", name)
        (here, there), (one, other) = hosts.names, hosts.links
        _ip("link", "add", one, "netns", here, "type", "veth", "peer", "name", other, "netns", there)
        for name, link, address in zip(hosts.names, hosts.links, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            for each in ("lo", link):
                _ip("-n", name, "link", "set", each, "up")
    except (OSError, subprocess.CalledProcessError) as error:
        _remove(hosts)
        pytest.skip(f"network namespaces are not allowed here: {error}")
    try:
        yield hosts
    finally:
        _remove(hosts)


def _remove(hosts: Hosts) -> None:
    for name in hosts.names:  # the interfaces go with them
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
