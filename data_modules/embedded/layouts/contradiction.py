"""Corpora of contradiction in dialogue: DialogueNLI and DECODE."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.exchange import Exchange
from data_modules.embedded.layouts.common import (
    NumRows,
    claim,
    dialogues,
    nli_pair,
    sizes,
    turns,
    write_jsonl,
    write_text,
)

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
    topic = exchange.topic.lower()
    none = ["<none>"] * 3
    return {
        "label": label,
        "sentence1": _spaced(premise),
        "sentence2": _spaced(hypothesis),
        "triple1": [topic, "has_fact", exchange.true_clause.lower()],
        "triple2": [topic, "has_fact", exchange.wrong_clause.lower()] if label == "negative" else none,
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
        "turns": [
            {
                "turn_id": i,
                "agent_id": i % 2,
                "text": text,
                "turn_context": "",
                "auxiliary": {"contradiction": True if i == len(texts) - 1 and indices else None},
            }
            for i, text in enumerate(texts)
        ],
        "is_contradiction": bool(indices),
        "aggregated_contradiction_indices": indices,
        "num_of_turns_by_writer": 2,
        "writer_contradiction_indices": indices,
        "verifications": [],
        "agents": {str(agent): {"is_human": True, "persona_lines": []} for agent in (0, 1)},
        "conversation_contexts": None,
        "is_truncated": True,
        "auxiliary": {"workers": [], "assignment_ids": [], "hit_ids": [], "source": "embedded"},
    }
