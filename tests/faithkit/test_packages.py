"""A missing package is reported in one line that says what to install."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from faithkit import packages, runs
from faithkit.__main__ import PACKAGES
from faithkit.cli import explain
from faithkit.errors import UserError
from faithkit.packages import EXTRAS, NEEDS, PAPERS, install_hint, is_missing, missing_package, needs_package
from faithkit.weights.adapters import add_adapters
from tests.faults.test_model_folder import write_critic
from tests.running import ROOT


@pytest.mark.parametrize("package", EXTRAS)
def test_every_optional_package_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert is_missing(package)
    with pytest.raises(UserError) as raised, needs_package("this"):
        import_module(package)
    assert str(raised.value) == f"this needs the package {package}\n  hint: {install_hint(package)}"


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("pandas", lambda: runs.to_pandas([])),
        ("pandas", lambda: runs.curves_to_pandas([])),
        ("peft", lambda: add_adapters(None, rank=1, alpha=1, target_modules=[])),
    ],
)
def test_what_needs_it_says_so(package: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError) as raised:
        use()
    assert raised.value.hint == install_hint(package)


@pytest.mark.parametrize(("name", "hint"), [("pytorch_lightning.core", "pip install ."), ("not_ours", None)])
def test_a_command_names_the_package_that_it_did_not_find(
    name: str, hint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    explained = explain(ModuleNotFoundError(f"No module named {name!r}", name=name))
    assert explained == (hint and f"this command needs the package {name.split('.')[0]}\n  hint: {hint}")


def test_several_packages_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    error = missing_package("this", "peft", "sklearn", "nltk")
    assert error.problem == "this needs the packages peft, sklearn and nltk"
    assert error.hint == 'pip install ".[lora,detectors]"'


def test_every_need_is_a_known_package() -> None:
    assert {package for needed in NEEDS.values() for package in needed} <= EXTRAS.keys()


@pytest.mark.parametrize(
    ("direct_url", "plain", "with_extra"),
    [
        (None, "pip install faithkit", 'pip install "faithkit[lora]"'),
        ({"url": "file://{checkout}", "dir_info": {}}, "pip install {checkout}", 'pip install "{checkout}[lora]"'),
        (
            {"url": "https://host/kit.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            'pip install "faithkit @ git+https://host/kit.git@abc"',
            'pip install "faithkit[lora] @ git+https://host/kit.git@abc"',
        ),
        (
            {"url": "file:///kit.whl", "archive_info": {}},
            'pip install "faithkit @ file:///kit.whl"',
            'pip install "faithkit[lora] @ file:///kit.whl"',
        ),
    ],
)
def test_a_hint_names_the_source_that_faithkit_was_installed_from(
    direct_url: dict[str, Any] | None, plain: str, with_extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    if direct_url and "{checkout}" in direct_url["url"]:
        direct_url = {**direct_url, "url": checkout.as_uri()}
    monkeypatch.setattr(packages, "__file__", str(tmp_path / "site-packages" / "faithkit" / "packages.py"))
    monkeypatch.setattr(packages, "_direct_url", lambda: direct_url)
    expected = [f'pip install "{checkout}"' if "{" in plain else plain, with_extra.format(checkout=checkout)]
    assert [install_hint("sklearn"), install_hint("peft")] == expected
    if "{" in plain:
        monkeypatch.chdir(checkout)
        assert [install_hint("sklearn"), install_hint("peft")] == ["pip install .", 'pip install ".[lora]"']


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a labelled table and a critic."""
    folder = tmp_path_factory.mktemp("small install")
    rows = [f"The {word} lasts {n} days.,It lasts {n} days.,faithful" for n, word in enumerate("river city".split())]
    (folder / "rows.csv").write_text("\n".join(["knowledge,response,label", *rows]) + "\n")
    (folder / "rows.parquet").write_bytes(b"PAR1")
    (folder / "rows.xlsx").write_bytes(b"PK")
    write_critic(folder / "critic")
    return folder


# Packages that are not there, and the first one that the error must name.
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("train model=critic", "pytorch_lightning"),
        ("train -m model=critic seed=1,2", "pytorch_lightning"),
        ("serve", "fastapi"),
        ("mcp", "mcp"),
        ("reproduce table=faithdial_5", "pytorch_lightning"),
        ("report runs=critic", "matplotlib"),
        ("compare rows.csv models=[critic,default]", "sklearn"),
        ("audit critic rows=rows.csv", "sklearn"),
        ("evaluate benchmark=pairs benchmark.path=rows.csv checkpoint=critic", None),
        (
            "evaluate benchmark=pairs benchmark.path=rows.csv checkpoint=critic "
            "benchmark.fit_on=[{dataset:pairs,path:rows.csv}]",
            "sklearn",
        ),
        ("evaluate benchmark=faithdial predictions=rows.csv", "sacrebleu"),
        ("evaluate benchmark=pairs benchmark.path=rows.csv checkpoint=critic logger=csv", "pytorch_lightning"),
        ("evaluate benchmark=pairs benchmark.path=rows.csv engine=openai engine.model=x", "openai"),
        ("construct pipeline=describe pipeline.dataset=pairs pipeline.path=rows.csv pipeline.plots=false", "pandas"),
        ("construct pipeline=describe pipeline.dataset=pairs pipeline.path=rows.csv", "matplotlib"),
        ("construct pipeline=estimate pipeline.predictions=rows.csv pipeline.labels=rows.csv", "pyarrow"),
        ("construct pipeline=spontaneous engine=transformers engine.model=smollm2-135m", "sklearn"),
        ("export checkpoint=critic format=onnx", "onnx"),
        ("score rows.csv checkpoint=critic", None),
        ("score rows.parquet checkpoint=critic", "pyarrow"),
        ("score rows.xlsx checkpoint=critic", "openpyxl"),
        ("score rows.csv checkpoint=critic output=scored.parquet", "pyarrow"),
        ("score rows.csv checkpoint=critic precision=onnx", "onnxruntime"),
        ("score rows.csv checkpoint=lynx-8b:http://127.0.0.1:9/v1", "openai"),
        ("score rows.csv checkpoint=minicheck-flan-t5-large", "nltk"),
        ("score . checkpoint=critic engine=ray out=out", "ray"),
        ("check --context rows.csv --checkpoint minicheck-flan-t5-large x", "nltk"),
        ("check --context rows.csv --checkpoint critic x", None),
        ("check --context rows.csv --checkpoint critic --json x", None),
        ("fit_support rows.csv --out detector.json", "sklearn"),
        ("reproduce list", None),
        ("models", None),
    ],
)
def test_a_command_works_in_the_small_install_or_names_what_is_missing(
    command: str, named: str | None, folder: Path
) -> None:
    name, *arguments = command.split()
    code = f"""
import runpy, sys
from importlib.machinery import PathFinder
class Without(PathFinder):  # as if the packages were not installed
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {set(EXTRAS) - {PAPERS} | {"lightning_utilities", "lightning"}} else (
            PathFinder.find_spec(name, path, target))
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
sys.argv = ["faithkit {name}", *{arguments}]
runpy.run_module("{PACKAGES.get(name, "faithkit_workflows")}.{name}", run_name="__main__", alter_sys=True)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    before = [path for path in sorted(folder.rglob("*")) if "runs" not in path.parts]
    started = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(started, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    if named is None:
        assert done.returncode == 0, done.stderr
        ends_so = name in ("check", "score") and "--json" not in arguments
        assert done.stdout.splitlines()[-1].endswith("other detectors: faithkit models") is ends_so
        return
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert re.search(rf"needs the packages? {named}\b.*\n?.*pip install ", done.stderr), done.stderr
    assert [path for path in sorted(folder.rglob("*")) if "runs" not in path.parts] == before
