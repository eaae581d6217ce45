"""One HTML page of a run: its figures, and each answer with its marks, against gold ones where there are some.

The page is self-contained: its Content-Security-Policy forbids the network and every script except those that it
names by hash. Answers are data in a JSON block, and the script puts them in as text, never as markup, fifty at a time,
so twenty thousand answers open. Marked texts are cut here and not sent as offsets: Python counts characters, JavaScript
counts UTF-16 units. The report of several runs shows answers by the same parts
(faithkit_workflows/compare/comparison_page.py).
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from rich.table import Table

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file, disk_errors, dumps
from faithkit.metrics.classification import align_predictions
from faithkit.metrics.span_metrics import check_spans, count_shared, merge_spans
from faithkit.pages.page_tables import escape_terminal, table_caption, table_cells, table_title
from faithkit.records import CALLS, FAITHFUL, HALLUCINATED, LABELS, UNPARSED, Example, Prediction, Span, parse_calls

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

Item = TypeVar("Item")
# Their places are what the script is sent (page_files/answer.js).
CALLED = (*LABELS, UNPARSED)
OUTCOMES = ("missed", "false alarm", "right hallucinated", "right faithful", "unparsed", "not judged")
SPAN_OUTCOMES = ("missed span", "false alarm span", "found span", "no span, rightly", "not marked")
FILES = Path(__file__).with_name("page_files")
# In a script element only these can end or open anything; JSON writes them as well without.
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
FACTS = {"task": "Task", "model": "Generator"}
MAX_ROWS = 20_000  # of a test set: a browser opens as many at once


@dataclass(frozen=True, slots=True)
class Fact:
    """A property that rows are filtered by, with the value of each row that has one, by id."""

    name: str
    title: str
    values: Sequence[str]
    of: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurn:
    """Where an answer is in a conversation with tools.

    Args:
        number: Among the assistant's answers, from 1; None if it is not known.
        sources: The tool of each passage of the context; or document, user, system.
        calls: What the assistant had called before: name, arguments, failed and result of each.
    """

    conversation: str
    number: int | None
    sources: Sequence[str]
    calls: Sequence[Mapping[str, Any]]


def build_row(
    example: Example,
    predictions: Sequence[Prediction | None],
    context: int | None,
    facts: Sequence[Fact] = (),
    turn: AgentTurn | None = None,
    calls: Sequence[int] = (),
) -> dict[str, Any]:
    """Builds the page's data of one answer.

    Args:
        predictions: What each system says; None if it has no prediction of this row.
        context: The place of its knowledge among the contexts; None if the texts are not there.
        turn: Its place in a conversation.
        calls: The places of the turn's calls among the calls.
    """
    gold, label, is_marked = _nonempty_spans(example.spans), gold_label(example), example.spans is not None
    sources = turn.sources if turn else ()
    layers: list[list[Span]] = [gold]  # of the spans over the answer: the gold ones, then those of each system
    verdicts: list[list[Any] | None] = []
    for one in predictions:
        marks: list[Span] = []
        with suppress(UserError):  # marks that do not fit the answer are left out
            if one is not None and context is not None:
                marks = _nonempty_spans(check_spans(one, len(example.response)))
        layers.append(marks)
        if one is None:
            verdicts.append(None)
            continue
        verdict: list[Any] = [
            None if one.label is None else CALLED.index(one.label),
            round_score(one.score),
            OUTCOMES.index(response_outcome(example, one)),
            sum(1 << SPAN_OUTCOMES.index(kind) for kind in span_kinds(example, one)),
        ]
        described: list[list[Any]] = []
        for span in marks:
            share = round_score(_covered_share(span, gold)) if is_marked else None
            described.append([_names_of(span), round_score(span.score), share])
            if example.response and (evidence := span.evidence):
                # The reason, the sentence that the mark was compared with, and the tool that gave it, as far as known.
                source = sources[evidence.passage] if evidence.text and evidence.passage < len(sources) else ""
                found = [evidence.reason, evidence.text, source]
                described[-1] += found[: max(place for place, text in enumerate(found, start=1) if text or place == 1)]
        text = one.text if one.text != example.response else ""
        verdicts.append([*verdict, described, text] if text else [*verdict, described] if described else verdict)
    # Pieces that are covered by the same spans of each layer: plain, or with the places of these spans. Joined, they
    # are the text again.
    ends = {end for spans in layers for span in spans for end in (span.start, span.end)}
    bounds = sorted({0, len(example.response), *ends})
    pieces: list[str | tuple[Any, ...]] = []
    for start, end in pairwise(bounds):
        over = [[n for n, span in enumerate(spans) if span.start <= start and end <= span.end] for spans in layers]
        pieces.append((example.response[start:end], *over) if any(over) else example.response[start:end])
    gold_spans = []
    for span in gold:
        shares = (_covered_share(span, marks) for marks in layers[1:])
        both = zip(predictions, shares, strict=True)
        gold_spans.append([_names_of(span), [None if one is None else round_score(share) for one, share in both]])
    return {
        "id": example.id,
        "facts": [one.values.index(one.of[example.id]) if example.id in one.of else None for one in facts],
        "gold": None if label is None else CALLED.index(label),
        "context": context,
        "turns": [[turn.speaker, turn.text] for turn in example.history],
        "pieces": pieces,
        "gold_spans": gold_spans if is_marked else None,
        "said": verdicts,
        **({"turn": [turn.conversation, turn.number, calls]} if turn else {}),
    }


def _names_of(span: Span) -> list[str]:
    """The label of a span, and its type."""
    return list(dict.fromkeys(filter(None, (span.label, span.relation, span.element))))


def response_outcome(example: Example, prediction: Prediction) -> str:
    """Compares the call on the whole answer with its gold label."""
    if prediction.label == UNPARSED:
        return "unparsed"
    gold = gold_label(example)
    if gold is None or prediction.label is None:
        return "not judged"
    if prediction.label == gold:
        return f"right {gold}"
    return "missed" if gold == HALLUCINATED else "false alarm"


def span_kinds(example: Example, prediction: Prediction) -> list[str]:
    """Names the outcomes of an answer's spans; a span counts as found where one character of it is."""
    if example.spans is None:
        return ["not marked"]
    gold, called = _nonempty_spans(example.spans), _nonempty_spans(prediction.spans)
    found = [_covered_share(span, called) > 0 for span in gold]
    right = [_covered_share(span, gold) > 0 for span in called]
    kinds = {
        "missed span": not all(found),
        "false alarm span": not all(right),
        "found span": any(found),
        "no span, rightly": not found and not right,
    }
    return [kind for kind, holds in kinds.items() if holds]


def gold_label(example: Example) -> str | None:
    """Reads the gold label of an answer: its label or, where it has none, its spans, as the metrics do."""
    if example.label is None and example.spans is not None:
        return HALLUCINATED if example.spans else FAITHFUL
    return example.label


def round_score(number: float | None) -> float | None:
    """Rounds a number for the page to four digits."""
    return None if number is None else round(number, 4)


def _covered_share(span: Span, others: Sequence[Span]) -> float:
    """Computes the share of the span's characters that the others cover together."""
    return count_shared(merge_spans([span]), merge_spans(others)) / (span.end - span.start)


def _nonempty_spans(spans: Sequence[Span] | None) -> list[Span]:
    """Drops empty spans, as the metrics do."""
    return [span for span in spans or () if span.start < span.end]


@cache
def _environment() -> "Environment":
    """The templates: a text is made one line that cannot steer a terminal, and escaped; `Markup` stays as it is."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only pages need it

    environment = Environment(
        loader=FileSystemLoader(FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: escape_terminal(value) if type(value) is str else value,
    )
    environment.globals |= {"table_cells": table_cells, "table_title": table_title, "table_caption": table_caption}
    return environment


def fill_part(name: str, *values: Any, file: str = "parts.html", **named: Any) -> "Markup":
    """Fills a macro of a template; plain texts are escaped there."""
    part: Markup = getattr(_environment().get_template(file).module, name)(*values, **named)
    return part


def write_filled_page(path: str | Path, template: str, **values: Any) -> None:
    """Fills a template as `fill_page` does, and writes it, replacing the file in one step."""
    with atomic_file(path) as file, disk_errors(path):
        for text in fill_page(template, **values):
            file.write(text.encode())


def fill_page(
    template: str,
    *,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    blocks: Mapping[str, Iterable[Any]] = MappingProxyType({}),
    connects: bool = False,
    **values: Any,
) -> Iterator[str]:
    """Fills a template, and yields the page in parts; the same input gives the same page.

    Args:
        styles, scripts: Files of `page_files/`, which the page's policy names by their hash.
        blocks: The page's data by name: lists that the browser keeps as text.
        connects: The script may call the server that the page comes from.
        values: Further values, such as the title; plain texts are escaped.
    """
    from markupsafe import Markup

    style, script = (
        "".join((FILES / name).read_text(encoding="utf-8") for name in names) for names in (styles, scripts)
    )
    policy = f"style-src '{_hash(style)}'" + (f"; script-src '{_hash(script)}'" if scripts else "")
    policy += "; connect-src 'self'" if connects else ""
    given = {"policy": Markup(policy), "style": Markup(style), "script": Markup(script)}

    def render_data() -> Iterator[Markup]:
        """Writes each block as a list in a script element that the browser keeps as text, one item a line."""
        for name, items in blocks.items():
            yield Markup(f'<script type="application/json" id="{name}">[\n')
            for place, item in enumerate(items):
                yield Markup((",\n" if place else "") + dumps(item).translate(_ESCAPES))
            yield Markup("\n]</script>\n")

    return _environment().get_template(template).generate(**given, data=render_data(), **values)


def answer_blocks(
    place: int,
    rows: Sequence[tuple[Example, Sequence[Prediction | None], bool]],
    facts: Sequence[Fact],
    turns: Mapping[str, AgentTurn] = MappingProxyType({}),
) -> dict[str, Iterable[Any]]:
    """Makes the data of a test set: its answers, and their knowledge and calls, which answers share.

    Args:
        rows: Examples with the predictions of each system, and whether their texts are there.
        turns: The places of answers in conversations, by id; those of others are read from the calls of the example.
    """
    turns = dict(turns)
    for example in (example for example, *_ in rows if example.id not in turns):
        if before := parse_calls(example.meta.get(CALLS)):
            number = example.meta.get("turn")
            turns[example.id] = AgentTurn(
                conversation=str(example.meta.get("conversation", example.id)),
                number=number if isinstance(number, int) else None,
                sources=(),
                calls=before,
            )
    texts = dict.fromkeys(example.knowledge for example, _, has_text in rows if has_text)
    contexts = {text: number for number, text in enumerate(texts)}
    calls: dict[tuple[Any, ...], int] = {}
    made: dict[str, list[int]] = {}  # the places of an answer's calls
    for example, _, has_text in rows:
        for call in turns[example.id].calls if has_text and example.id in turns else ():
            key = call["name"], call["arguments"], call["failed"], call.get("result", "")
            made.setdefault(example.id, []).append(calls.setdefault(key, len(calls)))

    def build(example: Example, predictions: Sequence[Prediction | None], has_text: bool) -> dict[str, Any]:
        turn, context = turns.get(example.id), contexts[example.knowledge] if has_text else None
        return build_row(example, predictions, context, facts, turn, made.get(example.id, []))

    blocks = {f"contexts-{place}": contexts, f"rows-{place}": (build(*row) for row in rows)}
    return blocks | ({f"calls-{place}": calls} if turns else {})


def keep_first(items: Sequence[Item], rank: Callable[[Item], int], limit: int) -> list[Item]:
    """Keeps at most so many items, those of the lowest rank first, in their order."""
    chosen = sorted(range(len(items)), key=lambda place: rank(items[place]))[:limit]
    return [items[place] for place in sorted(chosen)]


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


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
