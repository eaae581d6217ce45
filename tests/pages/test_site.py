"""The pages build with mkdocs, every page has a place in it, and nothing in it is fetched from elsewhere."""

import re
import subprocess
import sys
from collections import ChainMap
from pathlib import Path

import pytest
import yaml

from tests.pages.reading import PAGES
from tests.running import ROOT

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
# What a browser would load by itself; links that a reader clicks are no assets.
LOADED = re.compile(r"<(?:link|script|img|iframe|source)\b[^>]*?(?:href|src)=[\"']?((?:https?:)?//[^\"'\s>]+)")
STYLED = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)")


def test_every_page_has_its_place() -> None:
    nav = yaml.safe_load(CONFIG)["nav"]
    groups = [pages for group in nav for pages in group.values()]
    named = [page for pages in groups for page in ([pages] if isinstance(pages, str) else [*ChainMap(*pages).values()])]
    assert sorted(named) == sorted(page.removeprefix("docs/") for page in PAGES if page.startswith("docs/"))


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = {str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert {page.replace(".md", ".html") for page in pages} <= set(built)
    for name, text in built.items():
        assert not LOADED.findall(text), name
    for sheet in tmp_path.rglob("*.css"):
        assert not STYLED.findall(sheet.read_text(encoding="utf-8")), sheet
