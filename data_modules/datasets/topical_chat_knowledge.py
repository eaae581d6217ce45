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

from data_modules.reading.rows import BadRow
from faithkit.errors import UserError
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
        reading = self.sets[conversation]
        if name.startswith("AS"):
            if text := (reading.get("article") or {}).get(name):
                yield text
            return
        section = reading[agent].get(name) or {}
        for kind in LEADS:
            if kind in section:
                lead = section[kind] if self.leads is None else self.leads[kind].get(section[kind])
                if not isinstance(lead, str):
                    raise BadRow(f"section {name} of the reading set has no text but {lead!r}", hint=BUILD)
                yield lead
        if self.leads is None:
            yield from (fact for fact in section.get("fun_facts", ()) if fact)  # empty: deleted before the build


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
    return ReadingSets(sets, {kind: {number: text for text, number in wiki[0][kind].items()} for kind in LEADS})


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"broken JSON: {error}", place=str(file), hint="fetch the file again") from error
