"""Detectors with one fault each, a good one, and functions that misbehave, as a user would write them."""

import random
import re
import time
from collections.abc import Callable
from typing import Any

from faithkit.words import sentences, unicode_words

Rows = list[dict[str, Any]]
CHANCE = random.Random(0)


def _plain(text: str) -> str:
    return " ".join(unicode_words(text.removeprefix("According to the text, ")))


def _unsupported(context: str, answer: str, change: Callable[[str], str] = _plain) -> float:
    """Whether the context lacks any of the answer's sentences, word for word."""
    known = change(context)
    return float(any(change(sentence) not in known for sentence in sentences(" ".join(answer.split()))))


def good(rows: Rows) -> list[float]:
    return [_unsupported(row["context"], row["answer"]) for row in rows]


def always_yes(rows: Rows) -> list[bool]:
    return [True] * len(rows)


def by_length(rows: Rows) -> list[float]:
    return [len(row["answer"]) / (len(row["answer"]) + 90) for row in rows]


def by_words(rows: Rows) -> list[bool]:
    return [len(row["answer"].split()) > 12 for row in rows]


def mean_of_sentences(rows: Rows) -> list[float]:
    def score(row: dict[str, Any]) -> float:
        parts = [_unsupported(row["context"], sentence) for sentence in sentences(" ".join(row["answer"].split()))]
        return 0.9 * sum(parts) / len(parts)

    return [score(row) for row in rows]


def first_sentence(rows: Rows) -> list[float]:
    return [_unsupported(row["context"], sentences(" ".join(row["answer"].split()))[0]) for row in rows]


def without_last_passage(rows: Rows) -> list[float]:
    return [_unsupported(" ".join(row["passages"][:-1] or row["passages"]), row["answer"]) for row in rows]


def with_noise(rows: Rows) -> list[float]:
    """Gives the other verdict for a tenth of the calls."""
    return [1 - score if CHANCE.random() < 0.1 else score for score in good(rows)]


def by_overlap(rows: Rows) -> list[bool]:
    found = []
    for row in rows:
        known = set(unicode_words(row["context"]))
        found.append(any(word not in known for word in unicode_words(row["answer"])))
    return found


def by_batch(rows: Rows) -> list[float]:
    """Normalises by the highest score of the batch."""
    scores = [0.2 + _unsupported(row["context"], row["answer"]) * len(row["answer"]) / 100 for row in rows]
    return [score / max(scores) for score in scores]


def first_words(rows: Rows) -> list[float]:
    """Reads 250 words of the context."""
    return [_unsupported(" ".join(row["context"].split()[:250]), row["answer"]) for row in rows]


def without_numbers(rows: Rows) -> list[float]:
    def change(text: str) -> str:
        return _plain(re.sub(r"\d[\d.,]*", "", text))

    return [_unsupported(row["context"], row["answer"], change) for row in rows]


def deaf_to_not(rows: Rows) -> list[float]:
    """Never calls an answer with `not` hallucinated, although its probability moves."""
    return [score * (0.4 if " not " in row["answer"] else 1) for row, score in zip(rows, good(rows), strict=True)]


def with_chance(rows: Rows) -> list[float]:
    return [min(1.0, _unsupported(row["context"], row["answer"]) * 0.9 + CHANCE.random() * 0.1) for row in rows]


def reading_history(rows: Rows) -> list[float]:
    """Takes earlier turns as evidence."""
    known = [[row["context"], *(turn["text"] for turn in row["history"])] for row in rows]
    return [_unsupported("\n".join(texts), row["answer"]) for texts, row in zip(known, rows, strict=True)]


def distrusting(rows: Rows) -> list[float]:
    """Calls whatever the assistant repeats hallucinated."""
    repeats = [any(turn["text"] == row["answer"] for turn in row["history"]) for row in rows]
    return [max(score, float(is_said)) for score, is_said in zip(good(rows), repeats, strict=True)]


def disturbed_by_turns(rows: Rows) -> list[float]:
    """Calls answers faithful after any turn of the assistant."""
    spoken = [any(turn["speaker"] == "assistant" for turn in row["history"]) for row in rows]
    return [0.0 if has_spoken else score for score, has_spoken in zip(good(rows), spoken, strict=True)]


def marking(rows: Rows) -> list[dict[str, Any]]:
    """Marks the last word of whatever it calls hallucinated, which is rarely the change."""
    found = []
    for row, score in zip(rows, good(rows), strict=True):
        end = len(row["answer"])
        found.append({"probability": score, "spans": [{"start": end - 1, "end": end}] if score >= 0.5 else []})
    return found


def raising(rows: Rows) -> list[float]:
    raise RuntimeError("the model is not loaded")


def raising_at_negations(rows: Rows) -> list[float]:
    if any(" not " in row["answer"] for row in rows):
        raise KeyError("not")
    return good(rows)


def nan(rows: Rows) -> list[float]:
    return [float("nan")] * len(rows)


def one_too_many(rows: Rows) -> list[float]:
    return [0.5] * (len(rows) + 1)


def sleeping(rows: Rows) -> list[float]:
    time.sleep(60)
    return good(rows)


def slow(rows: Rows) -> list[float]:
    time.sleep(0.005 * len(rows))
    return good(rows)
