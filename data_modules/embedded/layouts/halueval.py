"""HaluEval: two responses of each question, dialogue and document, and judged responses to general queries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.exchange import Exchange
from data_modules.embedded.layouts.common import NumRows, claim, dialogues, sizes, turns, write_jsonl
from data_modules.embedded.layouts.contradiction import CONTRADICTIONS
from data_modules.embedded.layouts.judged import transcript

FILES = ("qa", "dialogue", "summarization", "general")
_START = 12_000_000  # between the files: no two have a dialogue in common
_LONG_EVERY = 3  # one hallucinated answer in this many is a whole sentence more: they are longer, as the corpus's are
_GENERAL_EVERY = 5  # one general response in this many is hallucinated


def write_halueval(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes all four files with about equal parts of the examples of all splits, since there are no splits."""
    wanted = sizes(num_rows)
    for place, file in enumerate(FILES):
        write_jsonl(folder / f"{file}_data.json", _every(file, place, wanted, seed))
    return folder


def _every(file: str, place: int, wanted: dict[str, int], seed: int) -> Iterator[dict[str, Any]]:
    number = 0
    for split, size in wanted.items():
        share = -(-size // len(FILES))
        rows = share if file == "general" else -(-share // 2)
        for row in WRITERS[file](split, rows, seed, place * _START):
            number += 1
            yield {"ID": str(number), **row} if file == "general" else row


def _qa(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, start):
        wrong = claim(exchange, exchange.wrong_clause)
        if exchange.hallucinated.kind == "subjective" or index % _LONG_EVERY == 0:
            wrong = exchange.hallucinated.text
        yield {
            "knowledge": " ".join(exchange.sentences),
            "question": exchange.history[-1].text,
            "right_answer": claim(exchange, exchange.true_clause),
            "hallucinated_answer": wrong,
        }


def _dialogue(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for _, exchange in turns(split, size, seed, start):
        yield {
            "knowledge": " ".join(exchange.sentences),
            "dialogue_history": transcript(exchange),
            "right_response": exchange.faithful.text,
            "hallucinated_response": exchange.hallucinated.text,
        }


def _summarization(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    written = 0
    for _, exchanges in dialogues(split, 12 * (size + 12), seed, start):
        false = next((e for e in exchanges if e.hallucinated.kind in CONTRADICTIONS), None)
        if false is None:
            continue  # only what contradicts the document is wrong wherever else the document speaks of it
        if written == size:
            return
        written += 1
        yield {
            "document": " ".join(" ".join(exchange.sentences) for exchange in exchanges),
            "right_summary": _summary(exchanges, None),
            "hallucinated_summary": _summary(exchanges, false),
        }


def _summary(exchanges: list[Exchange], false: Exchange | None) -> str:
    return " ".join(claim(one, one.wrong_clause if one is false else one.true_clause) for one in exchanges)


def _general(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, start):
        is_wrong = index % _GENERAL_EVERY == 0
        reply = exchange.hallucinated if is_wrong else exchange.faithful
        yield {
            "user_query": f"{' '.join(exchange.sentences)} {exchange.history[-1].text}",
            "chatgpt_response": reply.text,
            "hallucination": "yes" if is_wrong else "no",
            "hallucination_spans": [reply.text[start:end] for start, end, _ in reply.marks],
        }


WRITERS = {"qa": _qa, "dialogue": _dialogue, "summarization": _summarization, "general": _general}
