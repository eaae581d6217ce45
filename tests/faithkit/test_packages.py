"""A missing package is reported in one line that says what to install."""

import sys
from collections.abc import Callable
from importlib import import_module

import pytest

from faithkit import runs
from faithkit.cli import explain
from faithkit.errors import UserError
from faithkit.metrics.responses.ngrams import tokenize
from faithkit.packages import EXTRAS, install_hint, is_missing, needs_package
from faithkit.pages.plotting import require_plots
from faithkit.weights.adapters import add_adapters
from faithkit_workflows.corpus.corpus_rows import CorpusRows


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
        ("pandas", lambda: CorpusRows().to_frame()),
        ("sacrebleu", lambda: tokenize(["a"])),
        ("matplotlib", require_plots),
        ("peft", lambda: add_adapters(None, rank=1, alpha=1, target_modules=[])),
    ],
)
def test_what_needs_it_says_so(package: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError) as raised:
        use()
    assert raised.value.hint == f'pip install "faithkit[{EXTRAS[package]}]"'


@pytest.mark.parametrize(("name", "hint"), [("pytorch_lightning.core", "pip install faithkit"), ("not_ours", None)])
def test_a_command_names_the_package_that_it_did_not_find(name: str, hint: str | None) -> None:
    explained = explain(ModuleNotFoundError(f"No module named {name!r}", name=name))
    assert explained == (hint and f"this command needs the package {name.split('.')[0]}\n  hint: {hint}")
