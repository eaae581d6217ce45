"""One HTML page that shows each answer with its marks: what people marked against what a tagger marked.

The page holds everything itself; its Content-Security-Policy forbids the network and every script but its own, which it
names by hash. Answers are data in a JSON block, and the script puts them in as text, never as markup, fifty at a time,
so twenty thousand answers open. The report of several runs shows answers by the same parts
(faithkit/evaluation/run_comparison/page.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.outcomes import align
from faithkit.evaluation.page_rows import Fact, rounded, row
from faithkit.evaluation.page_template import data_blocks, page_parts, part
from faithkit.evaluation.span_outcomes import check_spans
from faithkit.files.atomic import atomic_file, disk_errors
from faithkit.records import Example, Prediction

FACTS = {"task": "Task", "model": "Generator"}


def write_page(
    path: str | Path,
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    metrics: Mapping[str, Metric] | None = None,
) -> None:
    """Writes the page, replacing the file in one step; the same input gives the same bytes.

    Args:
        metrics: Shown at the top, the short names as they are scored (`response_f1`, `task/qa/char_f1`).

    Raises:
        UserError: Examples and predictions do not belong together, or a predicted span leaves its answer.
    """
    aligned = align(examples, predictions)
    contexts = {text: place for place, text in enumerate(dict.fromkeys(example.knowledge for example in examples))}
    for example, prediction in zip(examples, aligned, strict=True):
        check_spans(prediction, len(example.response))
    facts = _facts(examples)
    pairs = zip(examples, aligned, strict=True)
    start, end = page_parts(
        "page.html",
        title=title,
        styles=("style.css",),
        scripts=("answer.js", "scores.js", "tips.js", "filters.js"),
        legend=part("legend.html"),
        browser=part("browser.html", chosen=""),
    )
    blocks: dict[str, Any] = {
        "scores": (_metric(name, metric) for name, metric in (metrics or {}).items()),
        "sets": [answers_set(title, [title], facts)],
        "contexts-0": contexts,
        "rows-0": (row(example, [one], contexts[example.knowledge], facts) for example, one in pairs),
    }
    with atomic_file(path) as file, disk_errors(path):
        file.write(start.encode())
        for line in data_blocks(blocks):
            file.write(line.encode())
        file.write(end.encode())


def answers_set(name: str, systems: Sequence[str], facts: Sequence[Fact]) -> dict[str, Any]:
    """Describes a set of answers to the script: its name, its systems, and what its rows are told apart by."""
    told = [{"name": fact.name, "title": fact.title, "values": list(fact.values)} for fact in facts]
    return {"name": name, "systems": list(systems), "facts": told}


def _facts(examples: Sequence[Example]) -> list[Fact]:
    found = []
    for name, title in FACTS.items():
        values = {example.id: str(example.meta.get(name) or "(not told)") for example in examples}
        found.append(Fact(name, title, sorted(set(values.values())), values))
    return found


def _metric(name: str, metric: Metric) -> list[Any]:
    return [name, rounded(metric.value), rounded(metric.low), rounded(metric.high)]
