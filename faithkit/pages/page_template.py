"""HTML pages in one file, from a template: style and script stand in it, and a policy forbids all else."""

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faithkit.files.atomic import dumps
from faithkit.pages.tables import harmless

FILES = Path(__file__).with_name("page_files")
# In a script element only these can end or open anything; JSON writes them as well without.
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def page_parts(
    template: str, *, title: str, styles: Sequence[str], scripts: Sequence[str] = (), **values: str
) -> tuple[str, str]:
    """Fills a template; gives what stands before its `{{data}}` and what behind.

    Args:
        title: A text; escaped here.
        styles, scripts: Files of `page_files/`, which the page's policy names by their hash.
        values: Further values, which are markup already.
    """
    style, script = _joined(styles), _joined(scripts)
    policy = f"style-src '{_hash(style)}'" + (f"; script-src '{_hash(script)}'" if scripts else "")
    given = {"policy": policy, "title": html.escape(harmless(title)), "style": style, "script": script, **values}
    start, end = _joined(["head.html", template]).split("{{data}}")
    return _fill(start, given), _fill(end, given)


def part(name: str, **values: str) -> str:
    """Fills a part that several templates share; values are markup already."""
    return _fill(_read(name), values)


def data_blocks(blocks: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    """Writes each block as a list in a script element that the browser keeps as text, one item a line."""
    for name, items in blocks.items():
        yield f'<script type="application/json" id="{name}">[\n'
        for place, item in enumerate(items):
            yield (",\n" if place else "") + dumps(item).translate(_ESCAPES)
        yield "\n]</script>\n"


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


def _joined(names: Sequence[str]) -> str:
    return "".join(map(_read, names))


def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
