"""Inference corpora in their official layouts, with the fields that their loaders read."""

import re
import uuid
from collections.abc import Iterator
from typing import Any

from data_modules.embedded.layouts.common import PART, claim, dialogues, nli_pair, turns

GENRES = (
    ("fiction", "government", "slate", "telephone", "travel"),
    ("facetoface", "letters", "nineeleven", "oup", "verbatim"),
)


def conjnli_rows(split: str, size: int, seed: int, start: int) -> Iterator[tuple[str, str, str]]:
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, label = nli_pair(exchange)
        # Cells begin with quotation marks that quote no cell, as those of 245 rows of the release.
        yield re.sub(r"^(\w+)", r'"\1"', premise) if index % 60 == 3 else premise, hypothesis, label


def _gold_label(label: str, index: int, split: str) -> str:
    """Returns `-` where no label has three of five votes; a training pair has one vote."""
    return "-" if split != "train" and index % 40 == 7 else label


def mnli_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    genres = GENRES[start // PART]  # the mismatched ones in the second part
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, label = nli_pair(exchange)
        yield {
            "genre": genres[index % 5],
            "gold_label": _gold_label(label, index, split),
            "pairID": f"{index}{label[0]}",
            "promptID": str(index),
            "sentence1": premise,
            "sentence2": hypothesis,
        }


def snli_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, label = nli_pair(exchange)
        yield {
            "gold_label": _gold_label(label, index, split),
            "pairID": f"{4_000_000 + index}.jpg#{index % 5}r1{label[0]}",
            "sentence1": premise,
            "sentence2": hypothesis,
        }


DNLI_LABELS = {"entailment": "positive", "neutral": "neutral", "contradiction": "negative"}
CONTRADICTIONS = ("contradiction", "entity_swap", "number_swap")


def _spaced(text: str) -> str:
    return re.sub(r"([.,!?])", r" \1", text.lower())


def dnli_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes DialogueNLI's rows: lower-case, spaced sentences."""
    types = {"positive": "matchingtriple_up", "neutral": "miscutterance_up", "negative": "e2swap_up"}
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, nli = nli_pair(exchange)
        label = DNLI_LABELS[nli]
        yield {
            "label": label,
            "sentence1": _spaced(premise),
            "sentence2": _spaced(hypothesis),
            "dtype": types[label],
            "id": f"dialogue_nli_{'dev' if split == 'validation' else split}_{index}",
        }


def decode_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes DECODE's dialogues: in half of them the last turn contradicts an earlier one of its speaker."""
    num_written = 0
    for number, exchanges in dialogues(split, 12 * (size + 12), seed, start):
        if num_written == size:
            return
        if len(exchanges) > 1:
            *earlier, last = exchanges
            texts = [text for exchange in earlier for text in (exchange.history[-1].text, exchange.faithful.text)]
            texts.append(last.history[-1].text)
            contradicted = next(
                (i for i, exchange in enumerate(earlier) if exchange.hallucinated.kind in CONTRADICTIONS), None
            )
            if (number % 2 == 0) and contradicted is not None:
                texts.append(f"{last.faithful.text} {claim(last, earlier[contradicted].wrong_clause)}")
                indices = [2 * contradicted + 1, len(texts) - 1]
            else:
                texts.append(f"{last.faithful.text} {claim(last, earlier[0].true_clause)}")
                indices = []
            name = f"embedded:{seed}:{split}:{number}"
            yield {
                "conversation_id": f"{uuid.uuid5(uuid.NAMESPACE_URL, name)}#truncated#{len(texts) - 2}",
                "record_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name + ":record")),
                "turns": [{"turn_id": i, "agent_id": i % 2, "text": text} for i, text in enumerate(texts)],
                "is_contradiction": bool(indices),
                "aggregated_contradiction_indices": indices,
            }
            num_written += 1
