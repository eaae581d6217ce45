"""Runs the examples that docstrings show."""

import doctest
from typing import Any


def run_examples(documented: Any, replaced: dict[str, str] | None = None, **names: Any) -> int:
    """Runs the `>>>` lines of an object's docstring and fails where the output differs; gives their number.

    Args:
        replaced: Texts of the docstring, each with what takes its place.
        names: What the examples may use without importing it.
    """
    text = documented.__doc__ or ""
    for old, new in (replaced or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    test = doctest.DocTestParser().get_doctest(text, dict(names), documented.__name__, None, 0)
    shown: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(test, out=shown.append)
    assert not failed, "".join(shown)
    return tried
