"""Candidate answers in a response, by spaCy: its entities and noun chunks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from faithkit.errors import UserError
from faithkit.weights.resolve import resolve
from faithkit.words import apostrophe_words

PERSONS = frozenset({"i", "me", "you"})  # of these alone no question can be asked of the knowledge


class Candidates(Protocol):
    """Finds answers to ask about."""

    def candidates(self, texts: Sequence[str]) -> list[tuple[str, ...]]: ...


class SpacyCandidates:
    """Finds entities, then those noun chunks that are no entity; each once, case aside.

    Args:
        pipeline: A spaCy pipeline with a parser and entities.
    """

    def __init__(self, pipeline: Any, *, batch_size: int = 256):
        self.pipeline, self.batch_size = pipeline, batch_size

    @classmethod
    def load(cls, name: str) -> "SpacyCandidates":
        """Loads a pipeline by local name, folder, or name of an installed package."""
        import spacy

        try:
            source = name if spacy.util.is_package(name) else resolve(name)
            pipeline = spacy.load(Path(source) if Path(source).is_dir() else source, exclude=["lemmatizer"])
        except OSError as error:
            hint = "use spacy-sm (local weights), a folder, or an installed pipeline such as en_core_web_sm"
            raise UserError(f"no spaCy pipeline {name!r}: {error}", hint=hint) from error
        return cls(pipeline)

    def candidates(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Finds the candidate answers of each text, in the order in which they are asked about."""
        found = []
        for document in self.pipeline.pipe(texts, batch_size=self.batch_size):
            distinct: dict[str, str] = {}
            for span in (*document.ents, *document.noun_chunks):
                if not PERSONS.issuperset(apostrophe_words(span.text)):
                    distinct.setdefault(span.text.lower(), span.text)
            found.append(tuple(distinct.values()))
        return found
