"""A teacher that labels pairs without human labels: classifiers on a frozen encoder, trained on about 1,000 labels.

Its probability comes from the mean log-odds of two classifiers: a logistic regression on how well the encoder's token
vectors match, and a forest on that and on the words. It generalises better than fine-tuning on the same labels, and a
cross-encoder trained on its probabilities for many pairs becomes better than both.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_modules.encoding.tokens import load_tokenizer
from faithkit.records import LABELS, Example
from faithkit.weights.load import load_model
from faithkit.weights.resolve import loading
from faithkit.words import STOP_WORDS, clitic_tokens, greedy_runs, word_set

PAIRS_AT_ONCE = 1000  # pairs with vectors in memory at a time
_MAX_PROBABILITY = 0.99  # of either classifier, so that neither outweighs the other

log = logging.getLogger("faithkit")


class Teacher:
    """Learns from labelled examples to estimate P(hallucinated) of unlabelled ones.

    Args:
        weights: A folder, hub name or local name of an encoder.
    """

    def __init__(self, weights: str, *, seed: int = 0):
        from sklearn.ensemble import ExtraTreesClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from transformers import AutoModel

        with loading(weights) as source:
            self.model = load_model(AutoModel, source, head_may_be_new=True).eval()
            self.tokenizer = load_tokenizer(source)
        self.linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
        self.forest = ExtraTreesClassifier(600, min_samples_leaf=3, random_state=seed)

    def fit(self, examples: Sequence[Example]) -> "Teacher":
        """Trains both classifiers on examples, all of them labelled."""
        labels = [LABELS.index(example.label or "") for example in examples]
        features = self._features([(e.knowledge, e.response) for e in examples])
        self.linear.fit(features[:, NUM_WORD_FEATURES:], labels)
        self.forest.fit(features, labels)
        return self

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Estimates P(hallucinated) of each (knowledge, response)."""
        features = self._features(pairs)
        linear = self.linear.predict_proba(features[:, NUM_WORD_FEATURES:])[:, 1]
        forest = self.forest.predict_proba(features)[:, 1]
        clipped = np.clip([linear, forest], 1 - _MAX_PROBABILITY, _MAX_PROBABILITY)
        log_odds = np.log(clipped) - np.log1p(-clipped)
        return 1 / (1 + np.exp(-(log_odds[0] + log_odds[1]) / 2))

    def _features(self, pairs: Sequence[tuple[str, str]]) -> NDArray[Any]:
        rows: list[list[float]] = []
        for begin in range(0, len(pairs), PAIRS_AT_ONCE):
            chunk = pairs[begin : begin + PAIRS_AT_ONCE]
            vectors = text_vectors(self.model, self.tokenizer, [text for pair in chunk for text in pair])
            rows += [word_features(k, r) + vector_features(vectors[k], vectors[r]) for k, r in chunk]
            log.info("teacher: %d of %d pairs measured", begin + len(chunk), len(pairs))
        return np.array(rows)


NUM_WORD_FEATURES, NUM_VECTOR_FEATURES = 25, 10
FILLERS = word_set(
    "yes yeah yea well oh no not really wow actually sure ok okay right absolutely indeed know think also heard"
)
FIRST_PERSON = word_set("i me my myself mine we our us")


def word_features(knowledge: str, response: str) -> list[float]:
    """Measures lengths, overlap, novel words and numbers, copied runs, and signs of small talk."""
    tokens, known = clitic_tokens(response), [token for token in clitic_tokens(knowledge) if token[0].isalnum()]
    words = [token for token in tokens if token[0].isalnum()]
    content, known_content = [_stem(w) for w in words if w not in STOP_WORDS], set(_content_stems(known))
    known_stems, known_words = {_stem(word) for word in known}, set(known)
    novel = [word for word in content if word not in known_content and word not in FILLERS]
    numbers = [word for word in words if any(c.isdigit() for c in word)]
    runs = greedy_runs([_stem(word) for word in words], [_stem(word) for word in known])
    num_negations = [sum(word.endswith("n't") or word in ("not", "never", "no") for word in w) for w in (words, known)]
    num_words, num_content = max(1, len(words)), max(1, len(content))
    return [
        len(words),
        len(known),
        len(words) / max(1, len(known)),
        sum(word in known_content for word in content) / num_content,
        len(novel),
        len(novel) / num_content,
        sum(_stem(word) in known_stems for word in words) / num_words,
        sum(word in FIRST_PERSON for word in words),
        sum(word in ("you", "your") for word in words),
        *(tokens.count(mark) for mark in "?!."),
        len(numbers),
        sum(number not in known_words for number in numbers),
        sum(runs) / num_words,
        sum(run * run for run in runs) / num_words,
        max(runs, default=0),
        max(runs, default=0) / num_words,
        len(runs),
        len(known_content & set(content)) / max(1, len(known_content)),
        sum(stem not in known_content for stem in _content_stems(words[-5:])),
        sum(stem not in known_content for stem in _content_stems(words[:5])),
        sum(word in FILLERS for word in words),
        num_negations[0] - num_negations[1],
        len(content),
    ]


def _content_stems(words: Sequence[str]) -> list[str]:
    return [_stem(word) for word in words if word not in STOP_WORDS]


def _stem(word: str) -> str:
    suffix = next((s for s in ("ing", "ed", "es", "s", "ly") if word.endswith(s) and len(word) - len(s) >= 3), "")
    return word.removesuffix(suffix)


@dataclass(frozen=True, slots=True)
class TextVectors:
    """A text's vectors: the mean of its hidden states, and its tokens with a vector of length 1 each."""

    mean: NDArray[Any]  # (hidden,)
    units: NDArray[Any]  # (tokens, hidden), special tokens left out
    tokens: list[str]


@torch.inference_mode()
def text_vectors(
    model: Any, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 64, max_length: int = 100
) -> dict[str, TextVectors]:
    """Encodes each distinct text."""
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
    """Measures how well some knowledge token matches each response token, and the other way round."""
    norms = np.linalg.norm(knowledge.mean) * np.linalg.norm(response.mean)
    whole = float(knowledge.mean @ response.mean / max(norms, 1e-9))
    if not len(knowledge.units) or not len(response.units):  # nothing that the tokenizer knows
        return [whole] + [0.0] * (NUM_VECTOR_FEATURES - 1)
    similarity = response.units @ knowledge.units.T  # (response tokens, knowledge tokens)
    by_response, by_knowledge = similarity.max(1), similarity.max(0)
    skipped = STOP_WORDS | FILLERS
    chosen = [i for i, t in enumerate(response.tokens) if t.replace("##", "").isalnum() and t not in skipped]
    content = np.sort(by_response[chosen] if chosen else by_response)  # the worst matched words first
    return [
        whole,
        float(by_response.mean()),
        float(by_response.min()),
        float(content.mean()),
        float(content[0]),
        float(content[:3].mean()),
        float((content < 0.5).sum()),
        float((content < 0.6).mean()),
        float(by_knowledge.mean()),
        float(by_knowledge.min()),
    ]
