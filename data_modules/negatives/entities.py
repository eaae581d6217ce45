"""Finds named entities with spaCy; nothing else of its pipeline is run."""

import json
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from faithkit.errors import UserError
from faithkit.weights.resolve import resolve

BATCH_SIZE = 256


class Entity(NamedTuple):
    """A named entity: its place in a text, and its type as in OntoNotes."""

    start: int
    end: int
    label: str


Finder = Callable[[Sequence[str]], list[list[Entity]]]


def spacy_model(weights: str) -> str:
    """Names the version of spaCy and of the model, without loading them."""
    try:
        spacy = version("spacy")
    except PackageNotFoundError as error:
        hint = "pip install spacy (a plain install of faithkit brings it), or leave entity_swap out of the kinds"
        raise UserError("entity swaps need spaCy, which is not installed", hint=hint) from error
    folder = Path(resolve(weights))
    if not (folder / "meta.json").is_file():
        raise UserError(f"{weights} is no spaCy model", place=str(folder), hint="use spacy-sm, or a model's folder")
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return f"spacy {spacy}, {meta.get('name')} {meta.get('version')}"


def find_entities(weights: str) -> Finder:
    """Returns a finder that loads its model at its first use."""

    def find(texts: Sequence[str]) -> list[list[Entity]]:
        import spacy

        spacy_model(weights)
        folder = resolve(weights)
        return entities_of(spacy.load(folder, exclude=_unneeded(folder)), texts)

    return find


def entities_of(pipeline: Any, texts: Sequence[str]) -> list[list[Entity]]:
    """Finds the entities of each text; each distinct text is read once."""
    distinct = list(dict.fromkeys(texts))
    documents = pipeline.pipe(distinct, batch_size=BATCH_SIZE, n_process=1)
    found = {
        text: [Entity(e.start_char, e.end_char, e.label_) for e in document.ents]
        for text, document in zip(distinct, documents, strict=True)
    }
    return [found[text] for text in texts]


def _unneeded(folder: str) -> list[str]:
    """Names the pipes that entity recognition does not need; in the small model it has a tok2vec of its own."""
    config = (Path(folder) / "config.cfg").read_text(encoding="utf-8")
    ner = config.partition("[components.ner.model.tok2vec]")[2].partition("\n[")[0]
    unneeded = ["tagger", "parser", "attribute_ruler", "lemmatizer", "senter", "morphologizer"]
    return unneeded if "Listener" in ner else ["tok2vec", *unneeded]
