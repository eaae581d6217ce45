"""Reads the pages: their fenced blocks by language, the commands in them, and their links."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.running import ROOT

PATHS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PATHS}
FENCE = re.compile(r"^([ \t]*)```(\w*)[^\n]*\n(.*?)^\1```[ \t]*$", re.MULTILINE | re.DOTALL)
STARTS = ("python ", "faithkit ", "make ", "pip ", "pytest")  # what a command of ours begins with


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a page has its reader type."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{Path(self.page).stem}: {self.text}"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in a language, without their indentation."""
    return [textwrap.dedent(body) for _, found, body in FENCE.findall(PAGES[page]) if found == language]


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", PAGES[page])


def commands() -> list[Command]:
    """The commands of all pages, each once: lines of `bash` blocks, and those behind `$` in `console` blocks."""
    found: dict[str, Command] = {}
    for page in PAGES:
        typed = [line for block in blocks(page, "bash") for line in _lines(block)]
        shown = [line[2:] for block in blocks(page, "console") for line in _lines(block) if line.startswith("$ ")]
        for text in (*typed, *shown):
            found.setdefault(text, Command(page, text))
    return list(found.values())


def _lines(block: str) -> list[str]:
    whole = re.sub(r"\\\n\s*", "", block)
    return [line for each in whole.splitlines() if (line := re.sub(r"(^|\s)#.*", "", each).strip())]
