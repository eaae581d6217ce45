"""Lines of a predictions file that can be read alone: each prediction with its gold label, group and texts.

A line begins with the five keys of a prediction, which are all that scoring needs. `gold`, `gold_spans`, `group`,
`source`, `split`, `tags` and `facts` follow, then the texts: `knowledge`, `history`, `response` and the `calls` of an
agent, or for a generator's answer `knowledge`, `history` and `reference`. Files of other tools have some or none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import parse_lines, parse_prediction
from faithkit.records import AXES, CALLS, LABELS, Example, Prediction, Span, Turn, parse_calls

# The fields of an example's `meta` that a line keeps: short values that rows can be grouped by, never texts.
FACTS = (
    *("task", "type", "domain", "scenario", "corpus", "data_source", "genre", "case", "model", "model_name"),
    *("turn", "quality", "temperature", "severity", "topic", "movie", "topic_source"),
)
USER_SOURCES = ("pairs", "own rows")  # sources with columns of the user, which are all facts
UNKNOWN_SPLIT = "unknown"  # the split of a row without one


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """A prediction with its example, as far as the line has it.

    Args:
        has_text: The line has the judged response, without which there are no gold spans either, or for an answer its
            reference.
    """

    example: Example
    prediction: Prediction
    has_text: bool


@dataclass(slots=True)
class PredictedRows:
    """The rows of a file by id, and messages about lines that could not be read."""

    rows: dict[str, PredictedRow] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def to_line(prediction: Prediction, example: Example, *, texts: bool = True, generated: bool = False) -> dict[str, Any]:
    """Writes a prediction with its example as a line.

    Args:
        texts: With knowledge, history and response.
        generated: The prediction's text is an answer; the example's response is the reference.
    """
    known, meta = example.to_dict(), example.meta
    line = prediction.to_dict()
    if not texts:  # marked parts and sentences of the context are texts, too
        keys = ("start", "end", "label", "score", *AXES)
        line["spans"] = [{name: span[name] for name in keys if name in span} for span in line["spans"]]
    if not generated:
        line["gold"] = example.label
        if example.spans is not None:
            line["gold_spans"] = known["spans"]
    line |= {"group": example.group, "source": example.source, "split": example.split}
    if example.tags:
        line["tags"] = list(example.tags)
    is_users = example.source in USER_SOURCES
    names = islice((name for name in meta if _is_fact(meta[name])), 20) if is_users else FACTS
    if facts := {name: meta[name] for name in names if _is_fact(meta.get(name))}:
        line["facts"] = facts
    if not texts:
        return line
    line |= {"knowledge": example.knowledge, "history": known.get("history", [])}
    if parse_calls(meta.get(CALLS)):
        line[CALLS] = meta[CALLS]
    answer = {"reference": example.reference or example.response} if generated else {"response": example.response}
    return line | answer


def _is_fact(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and 0 < len(value) <= 100)


def read_predicted_rows(path: Path) -> PredictedRows:
    """Reads all readable rows; problems are returned, never raised."""
    found, wrong, twice = PredictedRows(), [], 0
    try:
        for number, text, value in parse_lines(path):
            if isinstance(value, Exception) and not text.endswith("\n"):
                found.problems.append(f"{path.name} is cut short: its last line is left out")
                break
            try:
                row = _row(value, path.stem)
            except (ValueError, TypeError, KeyError) as error:
                wrong.append(f"line {number}: {error.problem if isinstance(error, UserError) else error}")
                continue
            twice += row.prediction.id in found.rows
            found.rows.setdefault(row.prediction.id, row)
    except (OSError, UnicodeDecodeError) as error:
        found.problems.append(f"{path.name} cannot be read to its end: {shorten(str(error))}")
    if wrong:
        found.problems.append(f"{path.name}: {len(wrong):,} lines are no predictions; the first is {wrong[0]}")
    if twice:
        found.problems.append(f"{path.name}: {twice:,} lines have the id of a line before them and are left out")
    return found


def _row(value: Any, name: str) -> PredictedRow:
    if not isinstance(value, Mapping):
        raise ValueError(f"a row must be a JSON object, got {shorten(value)}")
    prediction = parse_prediction(value, name)
    response = value.get("response", value.get("reference"))
    has_text = isinstance(response, str)
    facts, tags, gold = value.get("facts"), value.get("tags"), value.get("gold")
    turns = value["history"] if isinstance(value.get("history"), list) else []
    spans = None
    if has_text and (marked := value.get("gold_spans")) is not None:
        marked = marked if isinstance(marked, list) else []
        spans = tuple(
            Span(start=one["start"], end=one["end"], label=str(one["label"]), **{axis: one.get(axis) for axis in AXES})
            for one in marked
        )
    meta = {key: fact for key, fact in facts.items() if _is_fact(fact)} if isinstance(facts, Mapping) else {}
    example = Example(
        id=prediction.id,
        source=_text(value, "source") or name,
        split=_text(value, "split") or UNKNOWN_SPLIT,
        group=_text(value, "group") or prediction.id,
        knowledge=_text(value, "knowledge"),
        history=tuple(
            Turn(speaker=_text(turn, "speaker"), text=_text(turn, "text"))
            for turn in turns
            if isinstance(turn, Mapping)
        ),
        response=response if has_text else "",
        reference=_text(value, "reference") or None,
        label=gold if gold in LABELS else None,
        spans=spans,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        meta=meta | ({CALLS: value[CALLS]} if parse_calls(value.get(CALLS)) else {}),
    )
    return PredictedRow(example, prediction, has_text)


def _text(value: Mapping[str, Any], name: str) -> str:
    return found if isinstance(found := value.get(name), str) else ""
