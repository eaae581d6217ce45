"""Dockerfile and compose.yaml name what exists, and keep the service without rights. No image is built here."""

import re
import tomllib
from typing import Any

import yaml

from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS
from tests.running import ROOT

DOCKERFILE = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
(SERVICE,) = COMPOSE["services"].values()


def instructions(name: str) -> list[str]:
    """Finds the arguments of an instruction."""
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def test_the_image_gets_the_whole_package_and_the_locked_versions() -> None:
    copied = {word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert [path for path in copied if not (ROOT / path).exists()] == []
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"]} <= copied
    (locked,) = (line for line in instructions("RUN") if "--require-hashes" in line)
    assert set(re.findall(r"-r (\S+)", locked)) == {path for path in copied if path.endswith(".lock")}


def test_the_service_gets_its_signals_and_settings_that_it_knows() -> None:
    (start,), (arguments,) = (map(yaml.safe_load, instructions(name)) for name in ("ENTRYPOINT", "CMD"))
    assert start[:2] == ["faithkit", "serve"]  # a list: no shell is between it and SIGTERM
    for given in (arguments, SERVICE["command"]):
        settings: Any = "faithkit_workflows.settings.reporting:ServeSettings"
        config = CommandLine(CONFIGS, "serve", [*start[2:], *given], settings).compose()
        assert config.keys_path == f"/run/secrets/{SERVICE['secrets'][0]}"
        assert config.drain_seconds < int(SERVICE["stop_grace_period"].removesuffix("s"))


def test_the_container_has_no_rights_and_keeps_weights_and_keys_outside() -> None:
    (user,) = instructions("USER")
    assert user != "root" and SERVICE["read_only"] and SERVICE["cap_drop"] == ["ALL"] and SERVICE["tmpfs"] == ["/tmp"]
    (home,) = re.findall(r"FAITHKIT_HOME=(\S+)", DOCKERFILE)
    (volume,) = SERVICE["volumes"]
    name, _, place = volume.partition(":")
    assert place == home and name in COMPOSE["volumes"]
    assert set(SERVICE["secrets"]) == set(COMPOSE["secrets"])
    assert "/health/ready" in " ".join(instructions("HEALTHCHECK"))
