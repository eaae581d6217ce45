"""Inference corpora in their official layouts, with the fields that their loaders read."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.dialogue import Exchange
from data_modules.embedded.layouts.common import (
    NumRows,
    claim,
    dialogues,
    nli_pair,
    sizes,
    turns,
    write_text,
    write_tsv,
)
from faithkit.files.jsonl import write_jsonl

MNLI_FILES = {
    "train": ("multinli_1.0_train.jsonl",),
    "validation": ("multinli_1.0_dev_matched.jsonl", "multinli_1.0_dev_mismatched.jsonl"),
}
SNLI_FILES = {"train": "snli_1.0_train.jsonl", "validation": "snli_1.0_dev.jsonl", "test": "snli_1.0_test.jsonl"}
CONJNLI_FILES = {"train": "adversarial_train_15k.tsv", "validation": "conj_dev.tsv", "test": "conj_test.tsv"}
GENRES = (
    ("fiction", "government", "slate", "telephone", "travel"),
    ("facetoface", "letters", "nineeleven", "oup", "verbatim"),
)

_UNSURE_EVERY = 40  # one pair in this many has no label that most annotators agreed on
_MISMATCHED_START = 12_000_000


def write_mnli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes MultiNLI. It has no labelled test set: a test size is taken for its matched and mismatched dev files."""
    wanted = sizes(num_rows)
    for split, files in MNLI_FILES.items():
        names = ("validation", "test") if split == "validation" else (split,)
        size = max(wanted.get(name, 0) for name in names)
        for place, file in enumerate(files):
            if size:
                write_jsonl(folder / file, _mnli(split, size, seed, place))
    return folder


def write_snli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes SNLI."""
    for split, size in sizes(num_rows).items():
        write_jsonl(folder / SNLI_FILES[split], _snli(split, size, seed))
    return folder


def write_conjnli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes ConjNLI; its files begin with a byte-order mark."""
    for split, size in sizes(num_rows).items():
        rows = (nli_pair(exchange) for _, exchange in turns(split, size, seed))
        write_tsv(folder / CONJNLI_FILES[split], ("Premise", "Hypothesis", "Label"), rows, bom=True)
    return folder


def _gold_label(label: str, index: int, split: str) -> str:
    """Returns `-` where no label has three of five votes; a training pair has one vote."""
    return "-" if split != "train" and index % _UNSURE_EVERY == 7 else label


def _mnli(split: str, size: int, seed: int, place: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, place * _MISMATCHED_START):
        premise, hypothesis, label = nli_pair(exchange)
        yield {
            "genre": GENRES[place][index % 5],
            "gold_label": _gold_label(label, index, split),
            "pairID": f"{index}{label[0]}",
            "promptID": str(index),
            "sentence1": premise,
            "sentence2": hypothesis,
        }


def _snli(split: str, size: int, seed: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed):
        premise, hypothesis, label = nli_pair(exchange)
        yield {
            "gold_label": _gold_label(label, index, split),
            "pairID": f"{4_000_000 + index}.jpg#{index % 5}r1{label[0]}",
            "sentence1": premise,
            "sentence2": hypothesis,
        }


DNLI_FILES = {
    "train": "dialogue_nli_train.jsonl",
    "validation": "dialogue_nli_dev.jsonl",
    "test": "dialogue_nli_test.jsonl",
}
DECODE_FILES = {"train": "train.jsonl", "validation": "dev.jsonl", "test": "test.jsonl"}
DNLI_LABELS = {"entailment": "positive", "neutral": "neutral", "contradiction": "negative"}
DNLI_TYPES = {"positive": "matchingtriple_up", "neutral": "miscutterance_up", "negative": "e2swap_up"}
CONTRADICTIONS = ("contradiction", "entity_swap", "number_swap")


def write_dnli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes DialogueNLI: lower-case, spaced sentences; each file is one JSON list on one line, despite its name."""
    import json

    for split, size in sizes(num_rows).items():
        rows = [_dnli(exchange, split, index) for index, exchange in turns(split, size, seed)]
        write_text(folder / DNLI_FILES[split], [json.dumps(rows)])
    return folder


def write_decode(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes DECODE: in half of the dialogues the last turn contradicts an earlier one of its speaker."""
    for split, size in sizes(num_rows).items():
        write_jsonl(folder / DECODE_FILES[split], _decode(split, size, seed))
    return folder


def _spaced(text: str) -> str:
    return re.sub(r"([.,!?])", r" \1", text.lower())


def _dnli(exchange: Exchange, split: str, index: int) -> dict[str, Any]:
    premise, hypothesis, nli = nli_pair(exchange)
    label = DNLI_LABELS[nli]
    return {
        "label": label,
        "sentence1": _spaced(premise),
        "sentence2": _spaced(hypothesis),
        "dtype": DNLI_TYPES[label],
        "id": f"dialogue_nli_{'dev' if split == 'validation' else split}_{index}",
    }


def _decode(split: str, size: int, seed: int) -> Iterator[dict[str, Any]]:
    num_written = 0
    for number, exchanges in dialogues(split, 12 * (size + 12), seed):
        if num_written == size:
            return
        if len(exchanges) > 1:
            yield _conversation(split, seed, number, exchanges, contradict=number % 2 == 0)
            num_written += 1


def _conversation(split: str, seed: int, number: int, exchanges: list[Exchange], contradict: bool) -> dict[str, Any]:
    *earlier, last = exchanges
    texts = [text for exchange in earlier for text in (exchange.history[-1].text, exchange.faithful.text)]
    texts.append(last.history[-1].text)
    contradicted = next((i for i, exchange in enumerate(earlier) if exchange.hallucinated.kind in CONTRADICTIONS), None)
    if contradict and contradicted is not None:
        texts.append(f"{last.faithful.text} {claim(last, earlier[contradicted].wrong_clause)}")
        indices = [2 * contradicted + 1, len(texts) - 1]
    else:
        texts.append(f"{last.faithful.text} {claim(last, earlier[0].true_clause)}")
        indices = []
    name = f"embedded:{seed}:{split}:{number}"
    return {
        "conversation_id": f"{uuid.uuid5(uuid.NAMESPACE_URL, name)}#truncated#{len(texts) - 2}",
        "record_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name + ":record")),
        "turns": [{"turn_id": i, "agent_id": i % 2, "text": text} for i, text in enumerate(texts)],
        "is_contradiction": bool(indices),
        "aggregated_contradiction_indices": indices,
    }
