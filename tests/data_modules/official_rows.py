"""Every dataset's official file with invented rows, and helpers to write and read them.

The rows are in `tests.data_modules.official`; each dataset's give at least one example each.
"""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import find_dataset
from data_modules.reading.dataset import Source, read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example
from tests.data_modules.official import Rows
from tests.data_modules.official.benchmark_sets import (
    AGGREFACT,
    FAITHBENCH,
    LETTUCE_CODE,
    LETTUCE_PROSE,
    MESSAGES,
    PLUS_PLUS_SPANS,
    PSILOQA,
    SUMMEDITS,
    TRUE_SETS,
    WICE,
)
from tests.data_modules.official.dialogues import FAITHDIAL, TURNS, WOW
from tests.data_modules.official.inference import CONJNLI, DECODE, DNLI, MNLI, SNLI
from tests.data_modules.official.judged import AUDIT_GOLD, BEGIN
from tests.data_modules.official.judgements import DIAHALU, HALLUDIAL, HALUEVAL_QA
from tests.data_modules.official.spans import RAGTRUTH, RAGTRUTH_SOURCES, XSUM_TOKENS

# Name: the official file, its rows, and the fields of knowledge, response and label (None: not a flat field).
CASES: dict[str, tuple[str, Rows, tuple[str, str, str] | None]] = {
    "faithdial": ("test.json", FAITHDIAL, None),
    "faithcritic": ("test.json", FAITHDIAL, None),
    "wow": ("wow_test.json", WOW, None),
    "cmu_dog": ("cmu_dog_test_turns.jsonl", TURNS, None),
    "topical_chat": ("test_freq_turns.jsonl", TURNS, None),
    "begin": ("begin_test_wow.tsv", BEGIN[:3], ("knowledge", "response", "begin_label")),
    "audit": ("wow.csv", AUDIT_GOLD[:4], ("evidence", "response", "BEGIN")),
    "mnli": ("multinli_1.0_dev_matched.jsonl", MNLI[:3], ("sentence1", "sentence2", "gold_label")),
    "snli": ("snli_1.0_test.jsonl", SNLI[:3], ("sentence1", "sentence2", "gold_label")),
    "conjnli": ("conj_dev.tsv", CONJNLI, ("Premise", "Hypothesis", "Label")),
    "dnli": ("dialogue_nli_test.jsonl", DNLI, ("sentence1", "sentence2", "label")),
    "decode": ("test.jsonl", DECODE, None),
    "ragtruth": ("response.jsonl", RAGTRUTH, None),
    "xsum_tokens": ("xsum_token_labels.jsonl", XSUM_TOKENS, None),
    "halludial": ("spontaneous/spontaneous_test.json", HALLUDIAL, ("knowledge", "response", "target")),
    "halueval": ("qa_data.json", HALUEVAL_QA, None),
    "diahalu": ("DiaHalu.jsonl", DIAHALU, None),
    "aggrefact": ("test.jsonl", AGGREFACT, ("doc", "claim", "label")),
    "psiloqa": ("test.jsonl", PSILOQA, None),
    "faithbench": ("batch_1.json", FAITHBENCH, None),
    "ragtruth_plus_plus": ("messages.csv", MESSAGES, None),
    "summedits": ("summedits_news.json", SUMMEDITS[:3], ("doc", "summary", "label")),
    "wice": ("claim/test.jsonl", WICE, None),
    "lettucedetect_code": ("test.jsonl", LETTUCE_CODE, None),
    "lettucedetect_prose": ("test.jsonl", LETTUCE_PROSE, None),
    "true_sets": ("frank_valid_download.csv", TRUE_SETS, ("grounding", "generated_text", "label")),
}
COMPANIONS = {  # a second file that the first needs
    "ragtruth": ("source_info.jsonl", RAGTRUTH_SOURCES),
    "ragtruth_plus_plus": ("hallucination_spans.csv", PLUS_PLUS_SPANS),
}
FLAT = [name for name, case in CASES.items() if case[2]]


def encode(rows: Rows, suffix: str, *, as_list: bool = False) -> str:
    """Rows as a file of that suffix holds them."""
    if suffix == ".tsv":
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        return "".join("\t".join(cells) + "\r\n" for cells in lines)
    if suffix == ".csv":
        buffer = io.StringIO(newline="")
        writer = csv.DictWriter(buffer, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue()
    if suffix == ".json" or as_list:
        return json.dumps(rows, indent=1)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def write(path: Path, rows: Rows, *, as_list: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(rows, path.suffix, as_list=as_list).encode())
    return path


def write_case(folder: Path, name: str) -> Path:
    file, rows, _ = CASES[name]
    if name in COMPANIONS:
        write(folder / COMPANIONS[name][0], COMPANIONS[name][1])
    return write(folder / file, rows, as_list=name == "dnli")


def make(name: str, path: Path | str, **options: Any) -> Source:
    return find_dataset(name)(path=str(path), **options)


def read(source: Source, split: str | None = None, **options: Any) -> tuple[list[Example], Counter[str]]:
    """Examples and counts."""
    report = ReadReport(**options)
    return list(read_examples(source, split, report)), report.counts


def labels(examples: list[Example]) -> Counter[str | None]:
    return Counter(example.label for example in examples)


def read_around_a_bad_row(name: str, path: Path, message: str, place: str = "") -> list[Example]:
    """Sees that one row stops the reading with this message and place, and is left out on demand; gives the others."""
    with pytest.raises(UserError, match=message) as caught:
        read(make(name, path))
    assert place in str(caught.value)
    examples, counts = read(make(name, path), on_bad_row="skip")
    assert counts["rejected: bad row"] == 1
    return examples
