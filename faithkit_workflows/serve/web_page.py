"""The page of the service: context and answer in, marked answer out. It calls no other address than its own."""

from collections.abc import Sequence
from functools import cache

from faithkit.pages.page_parts import fill_page

HEADERS = {"Cache-Control": "no-store", "X-Frame-Options": "DENY"}
EXAMPLES = (
    {
        "name": "a wrong number",
        "context": "The pump comes with a warranty of 24 months from the date of purchase. The filter is excluded.\n\n"
        "Returns are free within 30 days.",
        "question": "How long is the warranty?",
        "answer": "The pump has a warranty of 36 months from the date of purchase. Returns are free within 30 days.",
    },
    {
        "name": "a supported answer",
        "context": "The museum opens from Tuesday to Sunday, from 10 am to 6 pm. On Thursdays it closes at 9 pm. "
        "Admission is 12 euros; children under 14 enter free of charge.",
        "question": "What does it cost?",
        "answer": "Admission is 12 euros; children under 14 enter free of charge.",
    },
    {
        "name": "a contradiction",
        "context": "Adults take one tablet twice a day with food. Do not take this medicine with alcohol. Children "
        "under 12 must not take it.",
        "question": "How do I take it?",
        "answer": "Take this medicine with alcohol.",
    },
)


@cache
def render_page(models: Sequence[str], *, has_keys: bool) -> str:
    """Renders the page."""
    settings = {"models": list(models), "has_keys": has_keys, "examples": EXAMPLES}
    page = fill_page(
        "check.html",
        title="Is the answer supported?",
        styles=("style.css", "check.css"),
        scripts=("answer.js", "tips.js", "check.js"),
        blocks={"settings": [settings]},
        connects=True,
    )
    return "".join(page)
