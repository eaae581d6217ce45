"""One HTML page of a run: its figures, and each answer with its marks, against gold ones where there are some.

The page is self-contained: its Content-Security-Policy forbids the network and every script except those that it
names by hash. Answers are data in a JSON block, and the script puts them in as text, never as markup, fifty at a time,
so twenty thousand answers open. The report of several runs shows answers by the same parts
(faithkit_workflows/compare/comparison_page.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from faithkit.errors import UserError
from faithkit.metrics.outcomes import align_predictions
from faithkit.metrics.span_metrics import check_spans
from faithkit.pages.page_parts import (
    AgentTurn,
    Fact,
    answer_blocks,
    gold_label,
    keep_first,
    write_filled_page,
)
from faithkit.records import Example, Prediction

FACTS = {"task": "Task", "model": "Generator"}
MAX_ROWS = 20_000  # of a test set: a browser opens as many at once


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSet:
    """A test set of a page: one system's predictions of its examples, and the tables above them; either may be empty.

    Args:
        tables: The first is shown, the others are folded away.
        notes: Lines behind the tables, such as where the predictions are from.
        by: Columns that rows can be filtered by: the value of each row, by id.
        turns: The place of an answer in a conversation, by id: those of a conversation are shown together.
    """

    name: str
    examples: Sequence[Example]
    predictions: Mapping[str, Prediction]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    by: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    turns: Mapping[str, AgentTurn] = field(default_factory=dict)


def write_page(
    path: str | Path,
    sets: Sequence[AnswerSet],
    *,
    title: str,
    about: Sequence[str] = (),
    texts: bool = True,
) -> None:
    """Writes the page, replacing the file in one step; the same input gives the same bytes.

    Args:
        about: Lines under the title, such as the model and the run.
        texts: With knowledge, history and response of each example.

    Raises:
        UserError: Examples and predictions do not belong together.
    """
    blocks: dict[str, Iterable[Any]] = {}
    notes, described = [], []
    answered = [one for one in sets if one.examples]
    for place, one in enumerate(answered):
        pairs = list(zip(one.examples, align_predictions(one.examples, one.predictions, judged=False), strict=True))
        misfits = 0
        for example, prediction in pairs:
            try:
                check_spans(prediction, len(example.response))
            except UserError:
                misfits += 1
        if misfits:
            notes.append(f"Of {one.name} the marks of {misfits:,} predictions reach beyond their answers: not shown.")
        if len(pairs) > MAX_ROWS:
            pairs = keep_first(pairs, lambda pair: pair[1].label == gold_label(pair[0]), MAX_ROWS)
            notes.append(f"Of {one.name} {MAX_ROWS:,} of {len(one.examples):,} answers are here, mistakes first.")
        facts = []
        for name, head in FACTS.items():
            if any(example.meta.get(name) for example in one.examples):
                values = {example.id: str(example.meta.get(name) or "(unknown)") for example in one.examples}
                facts.append(Fact(name, head, sorted(set(values.values())), values))
        # With a prefix: a column may have the name of one of the page's filters.
        facts += [Fact(f"by.{name}", name, sorted(set(by.values())), by) for name, by in one.by.items()]
        if not texts:  # what was predicted is kept, and nothing that can be read
            pairs = [
                (
                    replace(example, response="", history=(), spans=None, label=gold_label(example)),
                    replace(prediction, text="", spans=()),
                )
                for example, prediction in pairs
            ]
        rows = [(example, [prediction], texts) for example, prediction in pairs]
        blocks |= answer_blocks(place, rows, facts, one.turns)
        described.append(describe_set(one.name, [one.name], facts))
    examples = [example for one in answered for example in one.examples]
    has_spans = any(e.spans for e in examples) or any(p.spans for one in answered for p in one.predictions.values())
    write_filled_page(
        path,
        "page.html",
        title=title,
        styles=("style.css", "page.css"),
        scripts=("answer.js", "tips.js", "filters.js"),
        about=about,
        sets=sets,
        has_legend=has_spans and texts,
        has_gold=any(example.spans is not None for example in examples),
        notes=notes,
        blocks={"sets": described, **blocks},
    )


def describe_set(name: str, systems: Sequence[str], facts: Sequence[Fact], noun: str = "run") -> dict[str, Any]:
    """Describes a set of answers for the script: its name, its systems, and the facts that rows are filtered by.

    Args:
        noun: What the systems are called in the form.
    """
    described = [{"name": fact.name, "title": fact.title, "values": list(fact.values)} for fact in facts]
    return {"name": name, "systems": list(systems), "noun": noun, "facts": described}
