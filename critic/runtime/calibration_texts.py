"""Texts that int8 measures the ranges of its activations on: always the same, of different lengths."""

from critic.requests import Request
from data_modules.encoding.spans import question_text


def calibration_pairs(count: int = 48) -> tuple[list[str], list[str]]:
    """Knowledge of different lengths with responses, always the same: int8 measures its ranges on them."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 8 * count))
    knowledge = [" ".join(e.knowledge for e in examples[i : i + 1 + i % 8]) for i in range(count)]
    return knowledge, [example.response for example in examples[:count]]


def calibration_requests(count: int = 24) -> list[Request]:
    """Knowledge of different lengths with responses, always the same: int8 measures its ranges on them."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 8 * count))
    contexts = [" ".join(e.knowledge for e in examples[8 * i : 8 * i + 1 + i % 8]) for i in range(count)]
    return [Request(text, question_text(e), e.response) for text, e in zip(contexts, examples[::8], strict=True)]
