"""Writes the datasheet of a corpus (Gebru et al. 2021): answers what its numbers show, and marks the other questions.

The questions are in datasheet.md; its fields are named after them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from faithkit.pages.table_text import escape_markdown
from faithkit_workflows.corpus.corpus_stats import CorpusStats

OPEN = "**TO ANSWER**"
TEMPLATE = Template(Path(__file__).with_name("datasheet.md").read_text(encoding="utf-8"))


def datasheet(stats: CorpusStats, *, title: str, reading: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Writes the datasheet; a question without an answer is marked `TO ANSWER`.

    Args:
        reading: The result of reading: path, number of rejected rows, notes.
        known: Further answers by field.
    """
    answers = dict(_measured(stats, reading)) | dict(known) | {"title": escape_markdown(title)}
    num_open = len(set(TEMPLATE.get_identifiers()) - answers.keys() - {"open"})
    return TEMPLATE.substitute(defaultdict(lambda: OPEN, answers, open=str(num_open)))


def _measured(stats: CorpusStats, reading: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Answers the questions that the numbers answer."""
    counts, whole = stats.counts, stats.whole
    parts = ["a response"]
    parts += ["with the knowledge that it should be faithful to"] if whole.context.num_texts else []
    parts += ["and the dialogue before it"] if "turn before" in stats.lengths else []
    yield "instance", f"{' '.join(parts).capitalize()}."
    by_part = "".join(
        f"\n- {escape_markdown(name)}: {line.counts.num_responses:,} responses of {line.num_sources:,} "
        "dialogues or sources"
        for name, line in stats.basic.items()
    )
    yield "size", f"{counts.num_responses:,} responses of {stats.num_groups:,} dialogues or sources.{by_part}"
    if counts.num_judged:
        labels = f"{counts.num_hallucinated:,} of {counts.num_judged:,} ({counts.share:.1%}) are hallucinated."
        if counts.num_marked:
            kinds = sorted({label for types in stats.types.values() for label in types})
            labels += f" {counts.num_spans:,} spans are marked ({', '.join(map(escape_markdown, kinds))})."
        if stats.classes:
            labels += " BEGIN's classes and VRM's speech acts are known."
        yield "labels", f"{labels} Who gave them: {OPEN}"
    missing = {
        "no label": counts.num_responses - counts.num_judged,
        "no marked spans": counts.num_responses - counts.num_marked if counts.num_marked else 0,
        "no knowledge": counts.num_responses if not whole.context.num_texts else 0,
    }
    counted = [f"{number:,} responses have {what}" for what, number in missing.items() if number]
    yield "missing", f"{'; '.join(counted)}." if counted else "Nothing: every response has its knowledge and label."
    each = counts.num_responses / max(1, stats.num_groups)
    yield "relations", f"By dialogue or source: {each:.1f} responses each in the mean. Splits must not cut through one."
    splits = ", ".join(f"{escape_markdown(name)} ({one.num_responses:,})" for name, one in stats.dialogues.items())
    yield "splits", f"{splits}. How they were divided: {OPEN}"
    rejected = f"{reading['num_rejects']:,} rows could not be read; " if reading.get("num_rejects") else ""
    again = f"Responses that repeat one with the same knowledge and history: {stats.num_repeated:,}."
    yield "errors", f"{rejected}{again} Others: {OPEN}"
    if models := list(stats.models):
        yield "models", f"{', '.join(map(escape_markdown, models))}. Their settings: {OPEN}"
    edited = {name: one.edited for name, one in stats.dialogues.items() if one.edited is not None}
    if edited:
        shares = ", ".join(f"{share:.1%} in {escape_markdown(name)}" for name, share in edited.items())
        yield "cleaning", f"Responses were edited: {shares}; the originals are kept. Otherwise: {OPEN}"
    if reading.get("path"):
        yield "where", f"Described as read from `{escape_markdown(str(reading['path']))}`. Name and version: {OPEN}"
