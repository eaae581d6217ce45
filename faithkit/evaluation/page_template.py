"""HTML pages in one file, from a template: style and script stand in it, and a policy forbids all else."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from faithkit.evaluation.tables import harmless

FILES = Path(__file__).with_name("page_files")


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


def _fill(part: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], part)


def _joined(names: Sequence[str]) -> str:
    return "".join((FILES / name).read_text(encoding="utf-8") for name in names)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
