"""Parts that the writers share: rows for each split, turns and dialogues of the corpus, and the file formats."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_modules.embedded.corpus import Exchange, dialogue_of, exchanges
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file

NumRows = Mapping[str, int] | int
SPLITS = ("train", "validation", "test")
PART = 12_000_000  # turns between parts of the corpus that have no dialogue in common


def sizes(num_rows: NumRows, splits: Sequence[str] = SPLITS) -> dict[str, int]:
    """Returns the rows of each split: one number for all, or a mapping's; splits without rows are left out."""
    if isinstance(num_rows, int):
        return dict.fromkeys(splits, num_rows)
    unknown = set(num_rows) - set(SPLITS)
    if unknown:
        raise UserError(f"unknown splits {sorted(unknown)}", hint="choose from: " + ", ".join(SPLITS))
    return {split: num_rows[split] for split in splits if num_rows.get(split)}


def dialogues(split: str, num_turns: int, seed: int, start: int = 0) -> Iterator[tuple[int, list[Exchange]]]:
    """Yields dialogues with their numbers until they have `num_turns` turns; the last one may be cut short.

    Args:
        start: The first turn's position in the split, at the start of a block: a multiple of 12.
    """
    index, end = start, start + num_turns
    while index < end:
        number, length, _ = dialogue_of(index)
        turns = exchanges(split, seed, number, min(length, end - index))
        yield number, turns
        index += len(turns)


def turns(split: str, num_turns: int, seed: int, start: int = 0) -> Iterator[tuple[int, Exchange]]:
    """Yields single turns with their positions."""
    every = (turn for _, dialogue in dialogues(split, num_turns, seed, start) for turn in dialogue)
    yield from enumerate(every, start)


def claim(exchange: Exchange, clause: str) -> str:
    """Writes a plain sentence that states the clause about the exchange's topic."""
    topic = exchange.topic
    return f"{topic[0].upper()}{topic[1:]} {clause}."


def nli_pair(exchange: Exchange) -> tuple[str, str, str]:
    """Makes a premise, a hypothesis and their NLI label."""
    premise = " ".join(exchange.sentences)
    reply = exchange.hallucinated
    if not exchange.hallucinated_first:
        return premise, claim(exchange, exchange.true_clause), "entailment"
    if reply.kind == "subjective":
        return premise, reply.text[slice(*reply.marks[0][:2])], "neutral"
    return premise, claim(exchange, exchange.wrong_clause), "neutral" if reply.kind == "addition" else "contradiction"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout in which each file holds one part of a split.

    Args:
        rows: Makes the rows of a split, a size and a seed from the turn with a number on.
        write: Writes rows to a file.
        train: The files of the split, with spaces between them; the first one takes the first part of the corpus, the
            next one another part. Likewise the others.
    """

    rows: Callable[[str, int, int, int], Iterable[Any]]
    write: Callable[[Path, Iterable[Any]], object]
    train: str = ""
    validation: str = ""
    test: str = ""

    def __call__(self, folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
        """Writes files of `num_rows` rows each (of dialogues, turns) for each split; returns their folder."""
        for split, size in sizes(num_rows).items():
            for place, name in enumerate(getattr(self, split).split()):
                self.write(folder / name, self.rows(split, size, seed, place * PART))
        return folder


def write_text(path: Path, pieces: Iterable[str], encoding: str = "utf-8") -> None:
    """Writes a file so that it appears whole or not at all."""
    with atomic_file(path) as file:
        text = io.TextIOWrapper(file, encoding=encoding, newline="")
        text.writelines(pieces)
        text.detach()


def write_json(path: Path, items: Iterable[Any]) -> None:
    """Writes one JSON list, item by item."""

    def pieces() -> Iterator[str]:
        yield "["
        for i, item in enumerate(items):
            yield (",\n" if i else "\n") + json.dumps(item, ensure_ascii=False)
        yield "\n]\n"

    write_text(path, pieces())


def write_json_line(path: Path, items: Iterable[Any]) -> None:
    """Writes one JSON list on one line."""
    write_text(path, [json.dumps(list(items))])


def write_json_object(path: Path, values: Mapping[str, Any]) -> None:
    """Writes one JSON object over several lines."""
    write_text(path, [json.dumps(values, ensure_ascii=False, indent=1), "\n"])


def write_tsv(
    path: Path, rows: Iterable[Sequence[str]], *, header: Sequence[str], end: str = "\n", bom: bool = False
) -> None:
    """Writes tab-separated values without quotes."""

    def pieces() -> Iterator[str]:
        yield "\t".join(header) + end
        for row in rows:
            yield "\t".join(" ".join(cell.split()) for cell in row) + end

    write_text(path, pieces(), encoding="utf-8-sig" if bom else "utf-8")


def write_csv(path: Path, rows: Iterable[Sequence[str]], *, header: Sequence[str]) -> None:
    """Writes comma-separated values, quoted where needed."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, [buffer.getvalue()])
