"""Spans of an export: offsets in characters of the row's own text, checked against what was quoted."""

from collections.abc import Mapping, Sequence
from typing import Any

from construction.annotation.controls import BadAnswer
from construction.annotation.export_report import ExportReport
from construction.annotation.offsets import from_utf16, same_quote, shown_text, to_original
from construction.annotation.project import AnnotationRow
from faithkit.errors import shorten


def placed_flags(
    spans: Sequence[Any], flags: Sequence[Any], row: AnnotationRow, place: str, report: ExportReport
) -> list[Any]:
    """The flags with their places, which JSON-MIN does not have: there they are those of an only span, or nobody's."""
    placed = []
    for value in flags:
        if isinstance(value, Mapping) and "start" in value:
            placed.append(value)
        elif len(spans) == 1 and isinstance(spans[0], Mapping):
            where = {name: spans[0].get(name) for name in ("start", "end")}
            placed.append({**where, "choices": value.get("choices") if isinstance(value, Mapping) else value})
        else:
            report.count("flag without its span", place, f"{shorten(value)} of row {row.id}: export JSON, not JSON-MIN")
    return placed


def read_spans(
    given: list[dict[str, Any]], row: AnnotationRow, place: str, report: ExportReport
) -> list[dict[str, Any]]:
    spans = []
    for span, (start, end, converted) in zip(given, _places(given, shown_text(row.text)), strict=True):
        if converted:
            report.count("offsets in UTF-16 units", place, f"{span['start']} to {span['end']} of row {row.id}")
        spans.append(
            {"start": to_original(row.text, start), "end": to_original(row.text, end), "label": span["label"]}
            | ({"flags": span["flags"]} if span.get("flags") else {})
        )
    joined, overlaps = join_overlaps(spans)
    for _ in range(overlaps):
        report.count("overlapping spans", place, f"in row {row.id}")
    return joined


def _places(spans: Sequence[Mapping[str, Any]], text: str) -> list[tuple[int, int, bool]]:
    """Offsets of spans in characters, and whether they had to be converted from UTF-16 units.

    The quoted texts decide, those of one annotation together: a quote that stands at several places may fit both ways.
    """
    as_units = [_from_utf16(span, text) for span in spans]
    if not all(_fits(span, span["start"], span["end"], text) for span in spans) and all(as_units):
        return [(*place, True) for place in as_units if place]
    places = []
    for span, units in zip(spans, as_units, strict=True):
        start, end = span["start"], span["end"]
        if not _fits(span, start, end, text) and units:  # some count so, some so: an old release, new suggestions
            places.append((*units, True))
            continue
        if not 0 <= start <= end <= len(text):
            raise BadAnswer("offsets beyond the text", f"{start} to {end}, but the text has {len(text)} characters")
        if start == end:
            raise BadAnswer("empty span", f"it begins and ends at {start}")
        if not _fits(span, start, end, text):
            problem = f"{start} to {end} is {shorten(text[start:end])}, and not {shorten(span['text'])}"
            raise BadAnswer("text at another place", problem)
        places.append((start, end, False))
    return places


def _fits(span: Mapping[str, Any], start: int, end: int, text: str) -> bool:
    inside = 0 <= start < end <= len(text)
    return inside and ("text" not in span or same_quote(span["text"], text[start:end]))


def _from_utf16(span: Mapping[str, Any], text: str) -> tuple[int, int] | None:
    """The span's offsets in characters, if they are UTF-16 units and lead to the quoted text."""
    start, end = from_utf16(text, span["start"]), from_utf16(text, span["end"])
    if "text" not in span or start is None or end is None or not _fits(span, start, end, text):
        return None
    return start, end


def join_overlaps(spans: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Joins overlapping spans of one label, with the flags of both; returns them and how many overlaps there were.

    Overlaps of several labels are counted too, and kept: RAGTruth's files have them.
    """
    kept: list[dict[str, Any]] = []
    overlaps = 0
    for span in sorted(spans, key=lambda span: (span["start"], span["end"], span["label"])):
        crossing = [other for other in kept if other["end"] > span["start"]]
        overlaps += bool(crossing)
        same = next((other for other in crossing if other["label"] == span["label"]), None)
        if same is None:
            kept.append(dict(span))
            continue
        same["end"] = max(same["end"], span["end"])
        if flags := [*same.get("flags", []), *span.get("flags", [])]:
            same["flags"] = list(dict.fromkeys(flags))
    return kept, overlaps
