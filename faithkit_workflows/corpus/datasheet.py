"""A datasheet of a corpus in markdown (Gebru et al. 2021): what its numbers tell is filled in, the rest is left open.

The sections are those of datasheets for datasets; the questions are put in our own words.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from faithkit.pages.table_text import escape_markdown
from faithkit_workflows.corpus.stats import CorpusStats

OPEN = "**TO ANSWER**"
QUESTIONS: Mapping[str, Mapping[str, str]] = {
    "Motivation": {
        "purpose": "What was it made for, and which gap does it close?",
        "makers": "Who made it, for whom, and who paid?",
    },
    "Composition": {
        "instance": "What is one instance?",
        "size": "How many are there, of each kind?",
        "sample": "Is it a sample, of what, and how was it drawn?",
        "labels": "Which labels does an instance have, and who gave them?",
        "missing": "What is missing in some instances?",
        "relations": "How do instances belong together?",
        "splits": "Which splits are recommended, and how were they divided?",
        "errors": "Which errors, noise and repetitions are known?",
        "external": "On what outside of itself does it rely, and will that last?",
        "private": "Does it hold anything private, or about people who can be recognised?",
        "harm": "Does it hold text that may offend or harm?",
    },
    "Collection": {
        "sources": "Where are the texts from?",
        "models": "Which models wrote responses, with which settings?",
        "annotation": "How were labels made: by people or a model, with which guidelines, prompts and checks?",
        "people": "Who took part, how were they found and paid, and did they consent?",
        "time": "When was it collected?",
    },
    "Preprocessing": {
        "cleaning": "What was cleaned, edited or left out, and is the raw data kept?",
        "software": "Which software made it, and can it be run again?",
    },
    "Uses": {
        "used": "What has it been used for?",
        "unfit": "What should it not be used for?",
    },
    "Distribution": {
        "licence": "Under which licence is it given, and which licences do its sources have?",
        "where": "Where is it found, under which name and version?",
    },
    "Maintenance": {
        "keeper": "Who keeps it, and how are errors reported?",
        "updates": "Will it be updated, and do older versions stay?",
    },
}


def datasheet(stats: CorpusStats, *, title: str, reading: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Writes the datasheet; a question without an answer is marked `TO ANSWER`.

    Args:
        reading: What reading did with the rows: path, counts by split, rejects.
        known: Further answers by the question's key: of a benchmark that was built here, its models and prompts.
    """
    answers = dict(_measured(stats, reading)) | dict(known)
    num_open = sum(key not in answers for questions in QUESTIONS.values() for key in questions)
    lines = [f"# Datasheet: {escape_markdown(title)}", ""]
    lines += [f"{num_open} questions are left to those who made it: look for {OPEN}.", ""]
    for section, questions in QUESTIONS.items():
        lines += [f"## {section}", ""]
        for key, question in questions.items():
            lines += [f"**{question}**", "", answers.get(key, OPEN), ""]
    return "\n".join(lines)


def _measured(stats: CorpusStats, reading: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The answers that the numbers give."""
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
            labels += " BEGIN's classes and VRM's speech acts are told."
        yield "labels", f"{labels} Who gave them: {OPEN}"
    missing = {
        "no label": counts.num_responses - counts.num_judged,
        "no marked spans": counts.num_responses - counts.num_marked if counts.num_marked else 0,
        "no knowledge": counts.num_responses if not whole.context.num_texts else 0,
    }
    told = [f"{number:,} responses have {what}" for what, number in missing.items() if number]
    yield "missing", f"{'; '.join(told)}." if told else "Nothing: every response has its knowledge and label."
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
        yield "cleaning", f"Responses were edited: {shares}; the originals stand beside. Else: {OPEN}"
    if reading.get("path"):
        yield "where", f"Described as read from `{escape_markdown(str(reading['path']))}`. Name and version: {OPEN}"
