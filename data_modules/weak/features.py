"""Features of a pair that need no training: 25 about its words, 10 about the token vectors of a frozen encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from faithkit.token_overlap import greedy_runs
from faithkit.words import STOP_WORDS, clitic_tokens, word_set

NUM_WORD_FEATURES, NUM_VECTOR_FEATURES = 25, 10
FILLERS = word_set(
    "yes yeah yea well oh no not really wow actually sure ok okay right absolutely indeed know think also heard"
)
FIRST_PERSON = word_set("i me my myself mine we our us")
_SUFFIXES = ("ing", "ed", "es", "s", "ly")
_NEGATIONS = ("not", "never", "no")


def word_features(knowledge: str, response: str) -> list[float]:
    """Counts lengths, overlap, novel words and numbers, copied runs, and manners of speaking."""
    marks, asked = clitic_tokens(response), _words(knowledge)
    said = [token for token in marks if token[0].isalnum()]
    content, known_content = [_stem(w) for w in said if w not in STOP_WORDS], set(_content_stems(asked))
    known_stems, known_words = {_stem(word) for word in asked}, set(asked)
    novel = [word for word in content if word not in known_content and word not in FILLERS]
    numbers = [word for word in said if any(c.isdigit() for c in word)]
    runs = greedy_runs([_stem(word) for word in said], [_stem(word) for word in asked])
    n, num_content = max(1, len(said)), max(1, len(content))
    return [
        len(said),
        len(asked),
        len(said) / max(1, len(asked)),
        sum(word in known_content for word in content) / num_content,
        len(novel),
        len(novel) / num_content,
        sum(_stem(word) in known_stems for word in said) / n,
        sum(word in FIRST_PERSON for word in said),
        sum(word in ("you", "your") for word in said),
        *(marks.count(mark) for mark in "?!."),
        len(numbers),
        sum(number not in known_words for number in numbers),
        sum(runs) / n,
        sum(run * run for run in runs) / n,
        max(runs, default=0),
        max(runs, default=0) / n,
        len(runs),
        len(known_content & set(content)) / max(1, len(known_content)),
        sum(stem not in known_content for stem in _content_stems(said[-5:])),
        sum(stem not in known_content for stem in _content_stems(said[:5])),
        sum(word in FILLERS for word in said),
        _num_negations(said) - _num_negations(asked),
        len(content),
    ]


def _words(text: str) -> list[str]:
    return [token for token in clitic_tokens(text) if token[0].isalnum()]


def _content_stems(words: Sequence[str]) -> list[str]:
    return [_stem(word) for word in words if word not in STOP_WORDS]


def _stem(word: str) -> str:
    suffix = next((s for s in _SUFFIXES if word.endswith(s) and len(word) - len(s) >= 3), "")
    return word.removesuffix(suffix)


def _num_negations(words: Sequence[str]) -> int:
    return sum(word.endswith("n't") or word in _NEGATIONS for word in words)


@dataclass(frozen=True, slots=True)
class TextVectors:
    """A text's vectors in the encoder: the mean of its hidden states, and each token's state at length 1."""

    mean: NDArray[Any]
    units: NDArray[Any]  # (tokens, hidden), special tokens left out
    tokens: list[str]


@torch.inference_mode()
def text_vectors(
    model: Any, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 64, max_length: int = 100
) -> dict[str, TextVectors]:
    """Computes the vectors of each distinct text, in batches of texts about as long."""
    vectors = {}
    ordered = sorted(set(texts), key=lambda text: (len(text), text))
    for begin in range(0, len(ordered), batch_size):
        part = ordered[begin : begin + batch_size]
        inputs = tokenizer(part, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
        special = torch.tensor(tokenizer.all_special_ids)
        hidden = model(**inputs).last_hidden_state
        for text, ids, present, states in zip(part, inputs["input_ids"], inputs["attention_mask"], hidden, strict=True):
            plain = present.bool() & ~torch.isin(ids, special)
            units = torch.nn.functional.normalize(states[plain], dim=-1).numpy()
            tokens = tokenizer.convert_ids_to_tokens(ids[plain].tolist())
            vectors[text] = TextVectors(states[present.bool()].mean(0).numpy(), units, tokens)
    return vectors


def vector_features(knowledge: TextVectors, response: TextVectors) -> list[float]:
    """Similarity of response and knowledge: as a whole, of each token to its best match, and the other way round."""
    norms = np.linalg.norm(knowledge.mean) * np.linalg.norm(response.mean)
    whole = float(knowledge.mean @ response.mean / max(norms, 1e-9))
    if not len(knowledge.units) or not len(response.units):  # nothing that the tokenizer knows
        return [whole] + [0.0] * (NUM_VECTOR_FEATURES - 1)
    similarity = response.units @ knowledge.units.T  # (response tokens, knowledge tokens), cosines
    best, back = similarity.max(1), similarity.max(0)
    ordinary = STOP_WORDS | FILLERS
    chosen = [i for i, t in enumerate(response.tokens) if t.replace("##", "").isalnum() and t not in ordinary]
    content = np.sort(best[chosen] if chosen else best)
    return [
        whole,
        float(best.mean()),
        float(best.min()),
        float(content.mean()),
        float(content[0]),
        float(content[:3].mean()),
        float((content < 0.5).sum()),
        float((content < 0.6).mean()),
        float(back.mean()),
        float(back.min()),
    ]
