"""The lock files agree with pyproject.toml, check everything by hash, and do not say where packages come from."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.running import ROOT

FILES = ("requirements.lock", "requirements-cuda.lock", "requirements-dev.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked(*files: str) -> dict[str, Requirement]:
    """Of each package its line, without the hashes."""
    lines = [line for file in files for line in (ROOT / file).read_text().splitlines() if re.match("[A-Za-z0-9]", line)]
    found = [Requirement(line.removesuffix("\\")) for line in lines]
    names = {canonicalize_name(one.name): one for one in found}
    assert len(names) == len(found), "a package stands in two lock files"
    return names


def assert_satisfied(dependencies: list[str], lock: dict[str, Requirement]) -> None:
    for wanted in map(Requirement, dependencies):
        (pin,) = lock[canonicalize_name(wanted.name)].specifier
        assert pin.operator == "==" and wanted.specifier.contains(pin.version), f"make lock: {wanted}, locked {pin}"


def test_every_dependency_is_locked_to_a_version_that_it_allows() -> None:
    assert_satisfied(PROJECT["dependencies"], locked("requirements.lock"))
    assert_satisfied(PROJECT["optional-dependencies"]["dev"], locked("requirements.lock", "requirements-dev.lock"))
    locked(*FILES)


@pytest.mark.parametrize("file", FILES)
def test_a_lock_file_has_hashes_alone(file: str) -> None:
    text = (ROOT / file).read_text()
    packages = re.findall(r"^[A-Za-z0-9].*\n(?:[ \t].*\n)*", text, re.MULTILINE)
    assert packages and all(re.search(r"\n    --hash=sha256:[0-9a-f]{64}\n", package) for package in packages)
    others = [line for line in text.splitlines() if not re.match(r"#|    --hash=sha256:|[A-Za-z0-9._-]+==\S+", line)]
    assert not others and "://" not in text and "index" not in text and "@" not in text


def test_packages_for_cuda_stand_apart() -> None:
    cuda = locked("requirements-cuda.lock")
    assert {"triton", "nvidia-cublas"} <= cuda.keys() and "torch" not in cuda
    assert not [name for name in locked("requirements.lock") if name.startswith(("nvidia-", "cuda-"))]
