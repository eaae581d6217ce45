"""The lines of Python on the pages run, and what the pages say of names, datasets and links is so."""

import importlib
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from data_modules.build import build_mix
from tests.faithkit.runs.folders import make_run
from tests.pages.reading import PAGES, blocks, prose
from tests.running import ROOT, compose

ADAPTERS = "faithkit_workflows.adapters."
# Who provides what a block loads, by a line that it has: (page, line) and the fixture.
TRAINED = {
    ("README.md", "Tagger.load"): "trained_tagger",
    ("docs/guides/scoring.md", "Critic.load"): "trained",
    ("docs/guides/scoring.md", "Tagger.load"): "trained_tagger",
}


def find_block(page: str, line: str) -> str:
    (code,) = (code for code in blocks(page, "python") if line in code)
    return code


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_lines_of_python_name_what_there_is(page: str) -> None:
    for code in blocks(page, "python"):
        compile(code, page, "exec")
        imports = re.findall(r"^from ([\w.]+) import ([\w, ]+)", code, re.MULTILINE)
        if any(module.startswith(ADAPTERS) for module, _ in imports):
            continue  # tests/faithkit_workflows/adapters/ run these with the tools, which are not installed here
        for module, names in imports:
            for name in names.split(", "):
                found = importlib.import_module(module)
                assert hasattr(found, name) or importlib.import_module(f"{module}.{name}"), f"{page}: {name}"
        for owner, method in re.findall(r"\b(Cascade|Critic|Tagger|Generator|Judge|runs)\.(\w+)\(", code):
            assert hasattr(getattr(importlib.import_module("faithkit"), owner, None) or _runs(), method), method


def _runs() -> object:
    return importlib.import_module("faithkit.runs")


@pytest.mark.parametrize(("page", "line"), TRAINED, ids=str)
def test_the_lines_that_load_a_model_run(page: str, line: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(TRAINED[page, line])
    scope: dict[str, object] = {}
    exec(find_block(page, line).replace('"runs/..."', repr(str(folder))), scope)  # noqa: S102 - our own page
    assert line.split(".")[0].lower() in scope


def test_the_lines_about_runs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": "x", "label": "faithful", "score": 0.25}]
    for name in ("a", "b"):
        make_run(tmp_path / "runs" / name, predictions={"begin": rows})
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(find_block("docs/guides/runs_in_python.md", "import runs"), scope)  # noqa: S102 - our own page
    assert len(scope["pairs"]) == 1 and len(scope["metrics"]) == 2  # type: ignore[arg-type]


def test_the_labels_of_xsum_are_joined_to_rows_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from data_modules.datasets.xsum_tokens import XsumTokens
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    folder = tmp_path / "fairseq-detect-hallucination" / "eval_data" / "xsum" / "PtGen"
    folder.mkdir(parents=True)
    (tmp_path / "DIR").mkdir()
    texts = {"docid": "7", "source": "It rained.", "target": "it snowed .", "label": "0 1 0", "ref": "rain"}
    for end, text in texts.items():
        (folder / f"PtGen.{end}").write_text(f"{text}\n")
    monkeypatch.chdir(tmp_path)
    exec(find_block("docs/reference/data.md", "eval_data/xsum"), {})  # noqa: S102 - our own page
    (row,) = read_examples(XsumTokens(path="DIR/xsum_tokens"), "all", ReadReport())
    assert row.spans and [row.response[span.start : span.end] for span in row.spans] == ["snowed"]
    assert (row.meta["model"], row.reference) == ("PtGen", "rain")


def test_the_tables_of_the_first_hour_are_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from faithkit import read_pairs

    monkeypatch.chdir(tmp_path)
    exec(find_block("docs/start/tutorial.md", "generate"), {})  # noqa: S102 - our own page
    examples = list(read_pairs("labelled.csv"))
    assert len(examples) == 2000 and all(e.history and e.spans is not None for e in examples)
    assert {e.label for e in examples} == {"faithful", "hallucinated"}


def test_the_examples_of_extending_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport
    from generation.objectives.mle import Mle
    from generation.objectives.objective import Step

    (tmp_path / "support_tickets.py").write_text(find_block("docs/project/extending.md", "class SupportTickets"))
    row = {"ticket": "7", "article": "Open on Sundays.", "reply": "We are closed.", "verdict": "hallucinated"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    source = build_mix([{"_target_": "support_tickets.SupportTickets", "path": str(tmp_path)}])[0].source
    (example,) = read_examples(source, "test", ReadReport())
    assert (example.id, example.knowledge, example.label) == ("7", "Open on Sundays.", "hallucinated")

    scope: dict[str, Any] = {}
    exec(find_block("docs/project/extending.md", "class PerResponse"), scope)  # noqa: S102 - our own page
    step = Step.of_losses([[1.0, 2.0, 3.0], [10.0]])
    assert (scope["PerResponse"]()(step).item(), Mle()(step).item()) == (6.0, 4.0)

    exec(find_block("docs/project/extending.md", "def questions"), scope)  # noqa: S102 - our own page
    assert scope["questions"](["Is it? ", "It is."]).tolist() == [1.0, 0.0]


@pytest.mark.slow
def test_the_test_of_the_page_about_tests_runs(trained_tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "test_answers.py").write_text(find_block("docs/guides/in_tests.md", "def my_system"), encoding="utf-8")
    own = {**os.environ, "PYTHONPATH": str(ROOT), "DETECTOR": str(trained_tagger)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True)
    verdict = "1 of 1 responses are not supported by their knowledge" if done.returncode else "1 passed"
    assert done.returncode in (0, 1) and verdict in done.stdout, done.stdout


def test_every_dataset_of_the_table_is_there() -> None:
    from faithkit.targets import DATASETS

    table = PAGES["docs/reference/formats.md"].split("## Datasets")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", table, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(DATASETS) | {"mix", "wow_then_faithdial"}


def test_a_mix_as_the_page_writes_it_is_understood(tmp_path: Path) -> None:
    import shlex

    (line,) = (line for line in blocks("docs/guides/training.md", "bash")[0].splitlines() if "data=mix" in line)
    cfg = compose("train", *shlex.split(line)[2:])
    parts = [{**part, "path": str(tmp_path)} for part in cfg.data.parts]
    assert [(part.source.name, part.weight) for part in build_mix(parts)] == [("audit", 2.0), ("snli", 1.0)]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), f"{page}: {target}"
        if page.startswith("docs/"):
            assert (ROOT / "docs") in found.resolve().parents, f"{page}: {target} is not a part of the built pages"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", _prose_of(found), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, target


def _prose_of(path: Path) -> str:
    return prose(str(path.resolve().relative_to(ROOT)))


def test_the_architecture_names_every_package_and_only_paths_that_exist() -> None:
    text = PAGES["docs/project/architecture.md"]
    paths = re.findall(r"`((?:faithkit|faithkit_workflows|critic|data_modules|tests)/[\w/.]+)`", text)
    assert paths and not [path for path in paths if not (ROOT / path).exists()]
    tree = text.split("```text")[1].split("```")[0]
    top: dict[str, list[str]] = {}
    for line in tree.splitlines():
        if found := re.match(r"(\w+)/ ", line):
            top[package := found[1]] = []
        if top and line.startswith((" ", package)):
            top[package] += [name for name in re.findall(r"(\w+)/", line) if name != package]
    for package, named in top.items():
        if package in ("tests", "configs", "speed") or not (ROOT / package).is_dir():  # faithkit_papers may be left out
            continue
        folders = {one.name for one in (ROOT / package).iterdir() if one.is_dir() and not one.name.startswith("_")}
        assert set(named) == folders, package


def test_every_page_is_reached_from_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w/]+\.md)\)", PAGES["docs/index.md"]))
    assert linked == {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")} - {"index.md"}


def test_a_list_has_a_blank_line_before_it() -> None:
    """Without one mkdocs reads its lines as one paragraph."""
    for page in PAGES:
        lines = prose(page).splitlines()
        for before, line in pairwise(lines):
            starts = re.match(r"[-*] |\d+\. ", line)
            inside = re.match(r"\s*([-*] |\d+\. )| {1,3}\S", before)
            assert not starts or not before or inside or before.startswith("|"), f"{page}: {line}"


def test_the_api_reference_names_what_exists() -> None:
    names = re.findall(r"^::: ([\w.]+)$", PAGES["docs/reference/api.md"], re.MULTILINE)
    assert len(names) > 20
    for name in names:
        resolve_name(name)
