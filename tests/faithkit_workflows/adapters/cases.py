"""An answer that its context supports, and one that it does not; and the examples of docs/guides/adapters.md."""

from typing import Any

from tests.pages.reading import blocks

PASSAGES = ["The warranty lasts 24 months.", "The bag is red."]
QUESTION = "How long is the warranty?"
SUPPORTED, UNSUPPORTED = "The warranty lasts 24 months.", "The warranty lasts 36 months."


def run_example(module: str, **names: Any) -> dict[str, Any]:
    """Runs the example of an adapter on the page, given what it takes from its reader; returns its names."""
    (code,) = (code for code in blocks("docs/guides/adapters.md", "python") if f"adapters.{module} import" in code)
    exec(code, names)  # noqa: S102 - our own page
    return names
