"""The lock files agree with pyproject.toml, check everything by hash, and do not say where packages come from."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from faithkit.inference.openai_server import OLDEST_CLIENT
from faithkit.packages import EXTRAS, PAPERS
from tests.running import ROOT
from tests.test_install import NOT_FOR_SCORING

FILES = ("requirements/all.lock", "requirements/torch.lock", "requirements/cpu.lock", "requirements/dev.lock")
SCORE, SERVE = "requirements/score.lock", "requirements/serve.lock"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the packages for CUDA are of Linux")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked(*files: str) -> dict[str, Requirement]:
    """Reads of each package the line that pip takes on this machine, without the hashes."""
    lines = [line for file in files for line in (ROOT / file).read_text().splitlines() if re.match("[A-Za-z0-9]", line)]
    found = [Requirement(line.removesuffix("\\")) for line in lines]
    here = [one for one in found if one.marker is None or one.marker.evaluate()]
    names = {canonicalize_name(one.name): one for one in here}
    assert len(names) == len(here), "a package is locked twice"
    return names


def assert_satisfied(dependencies: Iterable[str], lock: dict[str, Requirement]) -> None:
    for wanted in map(Requirement, dependencies):
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        (pin,) = lock[canonicalize_name(wanted.name)].specifier
        assert pin.operator == "==" and wanted.specifier.contains(pin.version), f"make lock: {wanted}, locked {pin}"


@pytest.mark.parametrize("torch", ["requirements/torch.lock", "requirements/cpu.lock"])
def test_every_dependency_is_locked_to_a_version_that_it_allows(torch: str) -> None:
    files = ("requirements/all.lock", torch, "requirements/dev.lock")
    assert_satisfied(PROJECT["dependencies"], locked(*files[:2]))
    for extra, wanted in PROJECT["optional-dependencies"].items():
        if extra not in ("all", "vllm", "docs"):
            assert_satisfied(wanted, locked(*files))


def test_make_installs_the_locked_versions(tmp_path: Path) -> None:
    command = ["make", "--silent", "--makefile", str(ROOT / "Makefile"), "build/constraints.txt"]
    (tmp_path / "requirements").symlink_to(ROOT / "requirements")
    subprocess.run(command, cwd=tmp_path, check=True)
    pins = (tmp_path / "build" / "constraints.txt").read_text().splitlines()
    lock = locked(*FILES[:2], FILES[3])
    assert {f"{name}{lock[name].specifier}" for name in ("transformers", "mypy", "torch")} <= set(pins)


def test_all_has_every_extra_that_fits_together() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == extras.keys() - {"all", "vllm", "docs", "bench", "dev"}
    distributions = {"sklearn": "scikit-learn", "aiohttp": "openai", "starlette": "fastapi"}
    distributions["opentelemetry"] = "opentelemetry-sdk"
    for package, extra in EXTRAS.items() - {(PAPERS, EXTRAS[PAPERS])}:  # no package of an index
        names = {canonicalize_name(Requirement(line).name) for line in extras.get(extra, PROJECT["dependencies"])}
        assert distributions.get(package, package.replace("_", "-")) in names


def test_the_oldest_client_is_that_of_the_extra() -> None:
    (client,) = (one for one in map(Requirement, PROJECT["optional-dependencies"]["openai"]) if one.name == "openai")
    assert str(client.specifier) == f">={'.'.join(map(str, OLDEST_CLIENT))}"


def test_scoring_takes_the_versions_of_the_other_locks_without_what_training_needs() -> None:
    score, others = locked(SCORE), locked("requirements/all.lock", "requirements/cpu.lock")
    assert [(name, pin.specifier) for name, pin in score.items() if others[name].specifier != pin.specifier] == []
    assert not score.keys() & {*NOT_FOR_SCORING, "pytorch-lightning", "scikit-learn", "scipy", "pyarrow"}


def test_the_service_adds_to_scoring_what_its_extras_need() -> None:
    lock, others = locked(SCORE, SERVE), locked("requirements/all.lock", "requirements/dev.lock")
    for extra in ("serve", "traces"):
        assert_satisfied(PROJECT["optional-dependencies"][extra], lock)
    assert [name for name, pin in locked(SERVE).items() if others[name].specifier != pin.specifier] == []


@pytest.mark.parametrize(
    "files", [("requirements/all.lock", "requirements/cpu.lock", "requirements/dev.lock"), (SCORE,), (SCORE, SERVE)]
)
def test_the_lock_is_closed(files: tuple[str, ...]) -> None:
    lock = locked(*files)
    for name, pin in lock.items():
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform, or not installed here
        (version,) = pin.specifier
        if installed.version == version.version:
            assert_satisfied(installed.requires or (), lock)


@pytest.mark.parametrize("file", (*FILES, SCORE, SERVE))
def test_a_lock_file_has_hashes_alone(file: str) -> None:
    text = (ROOT / file).read_text()
    packages = re.findall(r"^[A-Za-z0-9].*\n(?:[ \t].*\n)*", text, re.MULTILINE)
    assert packages and all(re.search(r"\n    --hash=sha256:[0-9a-f]{64}\n", package) for package in packages)
    others = [line for line in text.splitlines() if not re.match(r"#|    --hash=sha256:|[A-Za-z0-9._-]+==\S+", line)]
    assert not others and "://" not in text and "index" not in text and "@" not in text


@LINUX
def test_torch_stands_apart_because_its_builds_differ() -> None:
    assert {"triton", "nvidia-cublas", "torch"} <= locked("requirements/torch.lock").keys()
    assert locked("requirements/cpu.lock").keys() == {"torch"}
    assert not [name for name in locked("requirements/all.lock") if name.startswith(("nvidia-", "cuda-", "triton"))]
