"""Topical-Chat (Gopalakrishnan et al. 2019): two people talk, each with a reading set, and name what a turn rests on.

Official files: https://github.com/alexa/Topical-Chat, `conversations/<split>.json` with the reading sets that its build
writes (`topical_chat_knowledge`). Turns that were cut out of them (`turn_rows`) are read too; the report counts which
layout it was.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from data_modules.reading import SEEKER, WIZARD, BadRow, Patterns, ReadReport, Row, check_text, reading
from data_modules.reading.dialogues import EMPTY, OPENS, ConversationSource
from data_modules.reading.dialogues import FIELDS as TURN_FIELDS
from faithkit.errors import UserError, shorten
from faithkit.records import Example, Turn
from faithkit.settings.check import check_value
from faithkit.settings.types import Share
from faithkit.words import sentence_places, unicode_words

BUILT, UNBUILT = Path("reading_sets", "post-build"), Path("reading_sets", "pre-build")
WIKI = Path("src", "wiki", "wiki.json")
LEADS = ("shortened_wiki_lead_section", "summarized_wiki_lead_section")
AGENTS = ("agent_1", "agent_2")
BUILD = "run the official src/build.py, or keep reading_sets/pre-build and src/wiki/wiki.json as they come"


@dataclass(frozen=True)
class ReadingSets:
    """The reading sets of one split; `leads` turns Wikipedia's numbers into texts where the build was not run."""

    sets: Mapping[str, Any]
    leads: Mapping[str, Mapping[int, str]] | None

    def sentences(self, conversation: str, agent: str, sections: Sequence[str]) -> list[tuple[str, str]]:
        """Returns the distinct (section, sentence) pairs of the sections that a turn names, in order."""
        if conversation not in self.sets:
            problem = f"the reading sets have no conversation {conversation}"
            raise BadRow(problem, hint="check that conversations and reading sets are of one release")
        if agent not in AGENTS:
            raise BadRow(f"field 'agent' is {agent!r}; known: {', '.join(AGENTS)}")
        named = [name for name in sections if name != "Personal Knowledge"]
        found = [(name, text) for name in named for text in self._texts(conversation, agent, name)]
        return list(dict.fromkeys((name, text[b:e]) for name, text in found for b, e in sentence_places(text)))

    def _texts(self, conversation: str, agent: str, name: str) -> Iterator[str]:
        reading = self._part(self.sets, conversation, "the reading sets")
        if name.startswith("AS"):
            article = self._part(reading, "article", "the reading set")
            if article.get(name) is not None:
                yield check_text(article[name], f"article {name}", empty_ok=True)
            return
        section = self._part(self._part(reading, agent, "the reading set"), name, f"the reading set of {agent}")
        for kind in LEADS:
            if kind in section:
                lead = section[kind]
                if self.leads is not None:
                    lead = self.leads[kind].get(lead) if isinstance(lead, int) else None
                if not isinstance(lead, str):
                    raise BadRow(f"section {name} of the reading set has no text but {shorten(lead)}", hint=BUILD)
                yield check_text(lead, kind, empty_ok=True)
        if self.leads is None:
            facts = section.get("fun_facts") or []
            if not isinstance(facts, list):
                raise BadRow(f"'fun_facts' of section {name} must be a list, got {shorten(facts)}", hint=BUILD)
            # Empty: deleted before the build.
            yield from (check_text(fact, "fun_facts") for fact in facts if fact)

    @staticmethod
    def _part(values: Mapping[str, Any], name: str, of: str) -> Mapping[str, Any]:
        """Returns the object under a name; an empty one where there is none."""
        part = values.get(name) or {}
        if not isinstance(part, Mapping):
            raise BadRow(f"{shorten(name)} of {of} must be a JSON object, got {shorten(part)}", hint=BUILD)
        return part


def overlap_f1(one: str, other: str) -> float:
    """Returns token F1 of two texts, all words counted, in lower case."""
    first, second = (Counter(unicode_words(text)) for text in (one, other))
    num_words = first.total() + second.total()
    return 2 * (first & second).total() / num_words if num_words else 0.0


@lru_cache(maxsize=2)
def _read(files: tuple[tuple[Path, int], ...]) -> ReadingSets:
    parsed: list[dict[str, Any]] = []
    for file, _ in files:
        hint = "fetch the file again"
        try:
            values = json.loads(file.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            place = f"{file}, line {getattr(error, 'lineno', 1)}"
            raise UserError(f"broken JSON: {error}", place=place, hint=hint) from error
        if not isinstance(values, dict):
            raise UserError(f"must be a JSON object, got {shorten(values)}", place=str(file), hint=hint)
        parsed.append(values)
    sets, *wiki = parsed
    if not wiki:
        return ReadingSets(sets, None)
    leads = {}
    for kind in LEADS:
        numbers = wiki[0].get(kind)
        if not isinstance(numbers, dict) or not all(isinstance(number, int) for number in numbers.values()):
            problem = f"must have {' and '.join(LEADS)}, each with texts and their numbers"
            raise UserError(problem, place=str(files[1][0]), hint=f"fetch {WIKI} again")
        leads[kind] = {number: text for text, number in numbers.items()}
    return ReadingSets(sets, leads)


ADDRESS = "https://github.com/alexa/Topical-Chat"
SPLIT_NAMES = {
    "train": "train",
    "validation": "valid_freq",
    "test": "test_freq",
    "validation_rare": "valid_rare",  # of things that training hardly speaks of
    "test_rare": "test_rare",
}
TURNS = {split: [f"{name}_turns.jsonl"] for split, name in SPLIT_NAMES.items()}
RAW = {split: [f"conversations/{name}.json"] for split, name in SPLIT_NAMES.items()}
LAYOUTS = {"turns": TURN_FIELDS, "conversations": ("content",)}


@dataclass(frozen=True, kw_only=True)
class TopicalChat(ConversationSource):
    """Turns with the sentence of the named sections that they share most words with, without labels.

    Both people's turns are read: each is the wizard of their turns. Ids of official conversations are
    `<conversation>:<turn>`. A turn that names no section, or shares too few words with those it names, is dropped.

    Args:
        path: The official folder, its `conversations`, or a folder or file of turns.
        min_overlap: Token F1 that a turn must have with its sentence.
    """

    name: ClassVar[str] = "topical_chat"
    embedded_layout: ClassVar[str | None] = "topical_chat"
    official_files: ClassVar[Sequence[Patterns]] = (TURNS, RAW)
    address: ClassVar[str] = ADDRESS
    min_overlap: float = 0.2

    def __post_init__(self) -> None:
        check_value("min_overlap", self.min_overlap, Share)

    def companions(self, file: Path) -> list[Path]:
        """Returns the reading sets that belong to a file of conversations."""
        root = file.parent.parent
        if (built := root / BUILT / file.name).is_file():
            return [built]
        return [sets for sets in (root / UNBUILT / file.name, root / WIKI) if sets.is_file()]

    def conversations(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        if not all(isinstance(values, Mapping) and "content" in values for values in row.values.values()):
            row.layout(LAYOUTS)  # raises BadRow with the fields that were looked for
        talks = Path(row.file)
        files = self.companions(talks)
        if not files or (files[0].parent.name == UNBUILT.name and len(files) == 1):
            wanted = talks.parent.parent / BUILT / talks.name
            raise UserError("the conversations have no reading sets", place=str(wanted), hint=BUILD)
        sets = _read(tuple((file, file.stat().st_mtime_ns) for file in files))
        state = "built" if sets.leads is None else "not built: Wikipedia alone"
        report.count(f"layout: conversations, reading sets {state}", len(row.values))
        for conversation, values in row.values.items():
            with report.rejecting(row, f"conversation {conversation[:80]}", values):
                yield from list(self._conversation(row.inside(values), conversation, sets, split, report))

    def _conversation(
        self, row: Row, conversation: str, sets: ReadingSets, split: str, report: ReadReport
    ) -> Iterator[Example]:
        earlier: list[tuple[str, str]] = []
        check_text(conversation, "the conversation's id")
        for position, values in enumerate(row.items("content")):
            with reading(f"turn {position}"):  # a bad one rejects the others too: they would lack their history
                turn = row.inside(values)
                agent, text = turn.text("agent"), turn.text("message", empty_ok=True)
                sentences = sets.sentences(conversation, agent, turn.texts("knowledge_source"))
            if not text.strip():
                report.count(EMPTY)
                continue
            scored = [(overlap_f1(text, sentence), section, sentence) for section, sentence in sentences]
            overlap, section, best = max(scored, key=lambda one: one[0], default=(0.0, "", ""))  # the first of equals
            if not earlier:
                report.count(OPENS)
            elif not scored:
                report.count("dropped: no knowledge named")
            elif overlap < self.min_overlap:
                report.count("dropped: little in common with the knowledge named")
            else:
                yield Example(
                    id=f"{conversation}:{position}",
                    source=self.name,
                    split=split,
                    group=conversation,
                    knowledge=best,
                    history=tuple(Turn(speaker=WIZARD if a == agent else SEEKER, text=t) for a, t in earlier),
                    response=text,
                    reference=text,
                    meta={
                        "knowledge_source": section,
                        "candidates": len(sentences),
                        "overlap_f1": round(overlap, 3),
                    },
                )
            earlier.append((agent, text))
