"""Small corpora in every dataset's layouts, to be damaged: files as bytes, and how their rows are read and written."""

import csv
import io
import json
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from data_modules.embedded.layouts import WRITERS
from data_modules.registry import SOURCES
from tests.data_modules.datasets import test_topical_chat
from tests.data_modules.official.common import Rows
from tests.data_modules.official.dialogues import WOW_PARLAI
from tests.data_modules.official.judged import AUDIT_DOHA, AUDIT_GPT2, BEGIN_2021
from tests.data_modules.official.judgements import HALUEVAL_DIALOGUE, HALUEVAL_GENERAL, HALUEVAL_SUMMARIZATION
from tests.data_modules.official.spans import PAIRS
from tests.data_modules.official_rows import CASES, write, write_case
from tests.faults.mutations import mutate_bytes, mutate_value

# Layouts that `CASES` lacks: the dataset, a file and its rows.
OTHERS: dict[str, tuple[str, str, Rows]] = {
    "wow, ParlAI": ("wow", "train.json", WOW_PARLAI),
    "begin, 2021": ("begin", "dev_05_24_21.tsv", BEGIN_2021),
    "audit, DoHA": ("audit", "doha_processed_wow.csv", AUDIT_DOHA),
    "audit, GPT2": ("audit", "gpt2_processed_wow.csv", AUDIT_GPT2),
    "pairs": ("pairs", "test.csv", PAIRS),
    "halueval, dialogue": ("halueval", "dialogue_data.json", HALUEVAL_DIALOGUE),
    "halueval, summarization": ("halueval", "summarization_data.json", HALUEVAL_SUMMARIZATION),
    "halueval, general": ("halueval", "general_data.json", HALUEVAL_GENERAL),
}


@cache
def corpora() -> dict[str, tuple[str, dict[str, bytes]]]:
    """By name: the dataset, and its files by their paths."""
    found: dict[str, tuple[str, dict[str, bytes]]] = {}
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        for name in CASES:
            write_case(root / "official" / name, name)
            found[name] = name, _files(root / "official" / name)
        for name, (dataset, file, rows) in OTHERS.items():
            write(root / name / file, rows)
            found[name] = dataset, _files(root / name)
        for name in (
            "faithdial",
            "wow",
            "cmu_dog",
            "topical_chat",
            "audit",
            "decode",
            "ragtruth",
            "halludial",
            "diahalu",
        ):
            layout = SOURCES[name].embedded_layout
            assert layout is not None
            WRITERS[layout](root / "embedded" / name, 9)
            found[f"{name}, embedded"] = name, _files(root / "embedded" / name)
        WRITERS["wow_faithdial"](root / "weak", 12)
        found["wow, weak"] = "wow", _files(root / "weak")
        unbuilt = {"unbuilt": test_topical_chat.UNBUILT, "wiki": test_topical_chat.WIKI}
        for name, sets in {"built": {"built": test_topical_chat.BUILT}, "not built": unbuilt}.items():
            test_topical_chat.corpus(root / name, **sets)
            found[f"topical_chat, {name}"] = "topical_chat", _files(root / name)
    return found


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def damage(data: bytes, suffix: str, rng: random.Random) -> bytes:
    """Damages the bytes of a file, or a value of one of its rows."""
    return mutate_bytes(data, rng) if rng.random() < 0.4 else mutate_row(data, suffix, rng)


def mutate_row(data: bytes, suffix: str, rng: random.Random) -> bytes:
    """Damages one row; the file stays one of its kind."""
    text = data.decode("utf-8-sig")
    if suffix == ".tsv":
        lines = [line.split("\t") for line in text.splitlines()]
        return "".join("\t".join(cells) + "\n" for cells in _mutate_cells(lines, rng)).encode(errors="replace")
    if suffix == ".csv":
        buffer = io.StringIO(newline="")
        csv.writer(buffer).writerows(_mutate_cells(list(csv.reader(io.StringIO(text, newline=""))), rng))
        return buffer.getvalue().encode(errors="replace")
    if suffix == ".jsonl" and not text.startswith("["):
        rows = [json.loads(line) for line in text.splitlines()]
        place = rng.randrange(len(rows))
        rows[place] = mutate_value(rows[place], rng)
        return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    return json.dumps(mutate_value(json.loads(text), rng)).encode()


def _mutate_cells(table: list[list[str]], rng: random.Random) -> list[list[str]]:
    place = rng.randrange(len(table))
    changed = mutate_value(table[place], rng)
    cells: list[Any] = changed if isinstance(changed, list) else [changed]
    return [*table[:place], [cell if isinstance(cell, str) else str(cell) for cell in cells], *table[place + 1 :]]
