"""What an audit asks about: documents for changed copies, and labelled rows; what cannot be used is counted."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from data_modules.datasets.pair_columns import AUTO, field_of
from data_modules.reading.formats import read_sections
from faithkit.errors import UserError
from faithkit.records import Example
from faithkit_workflows.answering.retrieval import SUFFIXES
from faithkit_workflows.audit.mutations import Document, is_english, list_sentences
from faithkit_workflows.audit.target import PASSAGES

BUILT_IN = "the built-in documents"
MAX_DOCUMENTS = 200
Item = TypeVar("Item", Example, Document)
SEPARATOR = "\x1e"  # between the passages of a row: no text has it
COLUMNS = {"knowledge": AUTO, "response": AUTO, "label": AUTO, "history": AUTO, "id": None, "group": AUTO}


@dataclass(slots=True, kw_only=True)
class Material:
    """Documents and rows of an audit.

    Args:
        source: Where the documents are from, for the report.
        others: Documents that irrelevant passages and foreign names are taken from.
        rows: Rows with their labels of people; those without are not among them.
        left_out: How many documents and rows are not used, by reason.
    """

    documents: list[Document]
    source: str
    others: list[Document]
    rows: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_material(config: Mapping[str, Any]) -> Material:
    """Reads documents and rows; without documents those of the rows are used, without rows the built-in ones.

    Raises:
        UserError: A file cannot be read, or nothing in it can be used.
    """
    left_out: Counter[str] = Counter()
    rows = _sample(list(_read_rows(config, left_out)), config["num_rows"], config["seed"], left_out)
    built_in = read_built_in()
    if config["documents"]:
        root = Path(config["documents"]).expanduser()
        files = [root] if root.is_file() else sorted(one for one in root.rglob("*") if one.suffix.lower() in SUFFIXES)
        if not files:
            hint = f"a folder with {' or '.join(SUFFIXES)} files"
            raise UserError("documents: no texts are here", place=config["documents"], hint=hint)
        read = []
        for file in files:
            try:
                text = file.read_text(encoding="utf-8-sig")
            except (UnicodeDecodeError, OSError):
                left_out["document: not UTF-8 text, or not readable"] += 1
                continue
            read.append(Document.of(str(file.relative_to(root)) if file != root else file.name, text))
        documents, source = _usable(read, left_out), config["documents"]
    elif rows:
        texts = dict.fromkeys("\n\n".join(row.meta[PASSAGES]) for row in rows)
        named = [Document.of(f"source {number}", text) for number, text in enumerate(texts, start=1)]
        documents, source = _usable(named, left_out), "the sources of the rows"
    else:
        documents, source = built_in, BUILT_IN
    if not documents and not rows:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items())
        hint = "name a folder of .txt or .md files in English"
        raise UserError(f"no document can be used ({reasons})", place=config["documents"], hint=hint)
    documents = _sample(documents, MAX_DOCUMENTS, config["seed"], left_out, "document: more than are needed")
    others = built_in if documents is not built_in else []
    labelled = [row for row in rows if row.label is not None]
    return Material(documents=documents, source=source, others=others, rows=labelled, left_out=left_out)


def read_built_in() -> list[Document]:
    """Reads the documents that come with faithkit."""
    sections = read_sections(Path(__file__).with_name("documents.txt"))
    return [Document.of(title, "\n".join(lines)) for title, lines in sections]


def _usable(documents: Iterable[Document], left_out: Counter[str]) -> list[Document]:
    kept = []
    for document in documents:
        text = " ".join(document.passages)
        if not text.strip():
            left_out["document: empty"] += 1
        elif not is_english(text):
            left_out["document: not in English"] += 1
        elif not list_sentences(document):
            left_out["document: no whole sentence of 5 to 45 words"] += 1
        else:
            kept.append(document)
    return kept


def _read_rows(config: Mapping[str, Any], left_out: Counter[str]) -> Iterator[Example]:
    """Reads the rows of a table and of a benchmark."""
    if config["rows"]:
        from faithkit_workflows.tables.user_table import SPANS, open_user_table

        table = open_user_table(config["rows"], COLUMNS, join=SEPARATOR.join, on_bad_row="skip", without=[SPANS])
        if count := sum(table.report.counts[key] for key in table.report.counts if key.startswith("rejected")):
            left_out["row: cannot be read"] += count
        label = table.found.label if table.found else None
        for values, row in table:
            if row is None:
                continue
            if row.label is None:
                given = str(field_of(values, label) or "").strip() if label else ""
                left_out["row: a label of unknown meaning" if given else "row: no label"] += 1
            yield replace(with_passages(row), id=f"row/{row.id}")
    if block := config.get("benchmark"):
        from data_modules.build import read_benchmark

        found = read_benchmark({**block, "on_bad_row": "skip"}, seed=config["seed"])
        left_out.update(
            {f"row: {reason}": count for reason, count in found.summary["counts"].items() if "rej" in reason}
        )
        for example in found.examples:
            if not example.knowledge.strip() or not example.response.strip():
                left_out["row: no knowledge or no response"] += 1
                continue
            yield replace(with_passages(example), id=f"row/{example.id}")


def with_passages(example: Example) -> Example:
    """Reads the passages of a row whose knowledge was joined by SEPARATOR; a single text has some at empty lines."""
    parts = example.knowledge.split(SEPARATOR)
    passages = parts if len(parts) > 1 else [part for part in parts[0].split("\n\n") if part.strip()]
    return replace(example, knowledge="\n\n".join(passages), meta={**example.meta, PASSAGES: tuple(passages)})


def _sample(
    items: list[Item], size: int, seed: int, left_out: Counter[str], reason: str = "row: more than num_rows"
) -> list[Item]:
    if len(items) <= size:
        return items
    left_out[reason] += len(items) - size
    kept = sorted(random.Random(seed).sample(range(len(items)), size))
    return [items[place] for place in kept]
