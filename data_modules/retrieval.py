"""Retrieves knowledge for examples that have none: the passages of a folder of texts that are nearest to the response.

A passage is a paragraph; a longer one is divided behind sentences. The query is the last turn and the response.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.bm25 import Bm25
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError
from faithkit.records import Example
from faithkit.sentences import sentences

KEY = "retrieval.path"
SUFFIXES = (".txt", ".md")
MAX_WORDS = 120  # of a passage


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Examples with what was found for those that had no knowledge.

    Args:
        num_found: Examples that got knowledge.
        num_without: Examples that had none, found or not.
    """

    examples: list[Example]
    num_found: int
    num_without: int


def read_passages(path: str) -> list[str]:
    """Reads the passages of a folder or file of texts, or `embedded`: the knowledge of the embedded corpus.

    Raises:
        UserError: There is none, or it is no text.
    """
    if path == EMBEDDED:
        source = build_source(EMBEDDED, EMBEDDED)
        every = (one for split in source.split_names() for one in read_examples(source, split, ReadReport()))
        return list(dict.fromkeys(one.knowledge for one in every if one.knowledge.strip()))
    root = Path(path).expanduser()
    files = [root] if root.is_file() else sorted(f for f in root.rglob("*") if f.suffix.lower() in SUFFIXES)
    passages = list(dict.fromkeys(passage for file in files for passage in split_passages(_read(file))))
    if not passages:
        problem = "the texts are empty" if files else "no texts are here" if root.exists() else "no such folder"
        hint = f"name a folder with {' or '.join(SUFFIXES)} files"
        raise UserError(f"{KEY}: {problem}", place=path, hint=hint)
    return passages


def split_passages(text: str) -> Iterator[str]:
    """Divides a text into paragraphs, and long ones behind sentences; white space becomes single spaces."""
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        words = 0
        passage: list[str] = []
        for sentence in sentences(" ".join(paragraph.split())):
            size = len(sentence.split())
            if passage and words + size > MAX_WORDS:
                yield " ".join(passage)
                passage, words = [], 0
            passage.append(sentence)
            words += size
        if passage:
            yield " ".join(passage)


def with_retrieved(examples: Sequence[Example], index: Bm25, num_passages: int) -> Retrieved:
    """Returns each example without knowledge the best passages, a paragraph each; others stay as they are."""
    found, num_found, num_without = [], 0, 0
    for example in examples:
        if example.knowledge.strip():
            found.append(example)
            continue
        num_without += 1
        last = example.history[-1].text if example.history else ""
        passages = index.best(f"{last}\n{example.response}", num_passages)
        num_found += bool(passages)
        found.append(replace(example, knowledge="\n\n".join(passages)) if passages else example)
    return Retrieved(found, num_found, num_without)


def fingerprint(passages: Sequence[str]) -> str:
    """Names the passages by a short hash."""
    return hashlib.sha256("\0".join(passages).encode(errors="surrogatepass")).hexdigest()[:12]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{KEY}: this file is no UTF-8 text", place=str(file), hint="save it as UTF-8") from error
    except OSError as error:
        problem = f"{KEY}: this file cannot be read: {error.strerror}"
        raise UserError(problem, place=str(file), hint=f"chmod u+r {file}") from error
