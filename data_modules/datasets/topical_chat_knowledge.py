"""Topical-Chat's reading sets: the texts that each of the two people was given, by section.

The official build (`src/build.py`) fetches fun facts from Reddit and articles from the Washington Post and writes
`reading_sets/post-build/<split>.json`. Where it was not run, `reading_sets/pre-build/<split>.json` with
`src/wiki/wiki.json`, both part of the repository, still give the sections' texts from Wikipedia; these alone are read
then, and the report says so.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from data_modules.reading.rows import BadRow, check_text
from faithkit.errors import UserError, shorten
from faithkit.sentences import sentence_places
from faithkit.words import unicode_words

BUILT, UNBUILT = Path("reading_sets", "post-build"), Path("reading_sets", "pre-build")
WIKI = Path("src", "wiki", "wiki.json")
LEADS = ("shortened_wiki_lead_section", "summarized_wiki_lead_section")
AGENTS = ("agent_1", "agent_2")
NO_SECTION = "Personal Knowledge"
BUILD = "run the official src/build.py, or keep reading_sets/pre-build and src/wiki/wiki.json as they come"


class BestSentence(NamedTuple):
    """The sentence that a turn shares most words with."""

    text: str
    section: str
    overlap: float


@dataclass(frozen=True)
class ReadingSets:
    """The reading sets of one split; `leads` turns Wikipedia's numbers into texts where the build was not run."""

    sets: Mapping[str, Any]
    leads: Mapping[str, Mapping[int, str]] | None

    @property
    def state(self) -> str:
        return "built" if self.leads is None else "not built: Wikipedia alone"

    def sentences(self, conversation: str, agent: str, sections: Sequence[str]) -> list[tuple[str, str]]:
        """The sections that a turn names, sentence by sentence: (section, sentence), each once, in their order."""
        if conversation not in self.sets:
            problem = f"the reading sets have no conversation {conversation}"
            raise BadRow(problem, hint="check that conversations and reading sets are of one release")
        if agent not in AGENTS:
            raise BadRow(f"field 'agent' is {agent!r}; known: {', '.join(AGENTS)}")
        named = [name for name in sections if name != NO_SECTION]
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
        """The object under a name; an empty one where there is none."""
        part = values.get(name) or {}
        if not isinstance(part, Mapping):
            raise BadRow(f"{shorten(name)} of {of} must be a JSON object, got {shorten(part)}", hint=BUILD)
        return part


def best_sentence(response: str, sentences: Sequence[tuple[str, str]]) -> BestSentence | None:
    """The sentence of highest token F1 with the response; among equals, the first."""
    every = (BestSentence(text, section, overlap_f1(response, text)) for section, text in sentences)
    return max(every, key=lambda best: best.overlap, default=None)


def overlap_f1(one: str, other: str) -> float:
    """Token F1 of two texts, all words counted, in lower case."""
    first, second = (Counter(unicode_words(text)) for text in (one, other))
    num_words = first.total() + second.total()
    return 2 * (first & second).total() / num_words if num_words else 0.0


def files_beside(conversations: Path) -> list[Path]:
    """The files of reading sets that belong to a file of conversations."""
    root = conversations.parent.parent
    if (built := root / BUILT / conversations.name).is_file():
        return [built]
    return [file for file in (root / UNBUILT / conversations.name, root / WIKI) if file.is_file()]


def read_reading_sets(conversations: Path) -> ReadingSets:
    """Reads the reading sets of a file of conversations; files that did not change are read once."""
    files = files_beside(conversations)
    if not files or (files[0].parent.name == UNBUILT.name and len(files) == 1):
        wanted = conversations.parent.parent / BUILT / conversations.name
        raise UserError("no reading sets beside the conversations", place=str(wanted), hint=BUILD)
    return _read(tuple((file, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=2)
def _read(files: tuple[tuple[Path, int], ...]) -> ReadingSets:
    sets, *wiki = (_read_json(file) for file, _ in files)
    if not wiki:
        return ReadingSets(sets, None)
    return ReadingSets(sets, {kind: _texts_by_number(wiki[0].get(kind), files[1][0]) for kind in LEADS})


def _texts_by_number(numbers: object, file: Path) -> dict[int, str]:
    if not isinstance(numbers, dict) or not all(isinstance(number, int) for number in numbers.values()):
        problem = f"must have {' and '.join(LEADS)}, each with texts and their numbers"
        raise UserError(problem, place=str(file), hint=f"fetch {WIKI} again")
    return {number: text for text, number in numbers.items()}


def _read_json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise UserError(f"broken JSON: {error}", place=f"{file}, line {line}", hint="fetch the file again") from error
    if not isinstance(values, dict):
        raise UserError(f"must be a JSON object, got {shorten(values)}", place=str(file), hint="fetch the file again")
    return values
