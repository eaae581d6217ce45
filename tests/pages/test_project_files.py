"""The files beside the pages agree with the package: its version, its citation, the workflow that users copy."""

import re
import shlex
import tomllib

import pytest
import yaml

from tests.pages.test_commands import checker
from tests.running import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((ROOT / "docs" / "guides" / "faithfulness.yml").read_text(encoding="utf-8"))


def test_citation_and_changelog_name_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == "Unreleased"
    newest = versions[1]
    assert str(CITATION["version"]) == newest == PROJECT["version"]
    assert (CITATION["title"], CITATION["license"]) == (PROJECT["name"], PROJECT["license"])


def test_the_citation_has_what_its_format_asks_for() -> None:
    assert CITATION["cff-version"] == "1.2.0" and CITATION["message"] and CITATION["authors"]
    assert len(CITATION["references"]) == 4
    for paper in CITATION["references"]:
        assert {"type", "title", "authors", "year"} <= set(paper)
        assert all({"given-names", "family-names"} == set(author) for author in paper["authors"])


def test_the_workflow_installs_this_version_and_asks_what_the_page_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = WORKFLOW["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert any(f"faithkit-{PROJECT['version']}-py3" in run for run in runs)
    for run in runs:
        check, (name, *arguments) = checker(shlex.split(run))
        check(name, arguments, monkeypatch)
    page = (ROOT / "docs" / "guides" / "in_tests.md").read_text(encoding="utf-8")
    assert all(f'os.environ["{name}"]' in page for name in job["env"] if name != "OMP_NUM_THREADS")
