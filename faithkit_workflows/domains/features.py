"""The features of domains' rows that cheap baselines read: counts, an encoder's cosine, an NLI model's score.

What a model gives is kept in the run's folder, so that an interrupted run computes none of it twice. The model is known
by its content: another one at the same path is read anew.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.baselines.counted_features import FEATURES, count_features
from faithkit.baselines.word_overlap import unsupported_grams
from faithkit.entailment import ENTAILMENT
from faithkit.files.atomic import atomic_file
from faithkit.records import Example
from faithkit_workflows.domains.model_key import model_key
from faithkit_workflows.domains.recipes import COSINE, GRAMS, NLI, Values

PIECE_WORDS = 100  # of a long knowledge, the piece most like the response decides
BATCH_SIZE = 32
MAX_TOKENS = 160


class Features:
    """Computes features, and keeps those of models in a folder.

    Args:
        folder: Where they are kept.
        encoder: Weights of an encoder; None leaves its cosine out.
    """

    def __init__(self, folder: Path, *, encoder: str | None = None):
        self.folder, self.encoder = folder, encoder
        self._model_key = cache(model_key)  # a model's files are hashed once, and not for every domain

    def columns(self, *, nli: bool) -> list[str]:
        """Names the features."""
        return [*FEATURES, GRAMS, *([COSINE] if self.encoder else []), *([NLI] if nli else [])]

    def of(self, name: str, examples: Sequence[Example], nli: str | None) -> Values:
        """Gives the features of examples [examples, features].

        Args:
            name: Of the examples, in file names.
            nli: An NLI model or a critic; None leaves it out.
        """
        knowledge, response = [e.knowledge for e in examples], [e.response for e in examples]
        found = [count_features(knowledge, response)] if examples else [np.zeros((0, len(FEATURES)))]
        grams = [unsupported_grams(*pair) for pair in zip(knowledge, response, strict=True)]
        found.append(np.array(grams, np.float64)[:, None])
        if self.encoder:
            encoder = self.encoder
            found.append(self._kept(name, examples, encoder, lambda: cosines(encoder, knowledge, response))[:, None])
        if nli:
            found.append(self._kept(name, examples, nli, lambda: _not_entailed(nli, knowledge, response))[:, None])
        return np.concatenate(found, axis=1)

    def _kept(self, name: str, examples: Sequence[Example], model: str, compute: Callable[[], Values]) -> Values:
        digest = hashlib.blake2b(self._model_key(model).encode(), digest_size=8)
        for example in examples:
            digest.update("\0".join((example.id, example.knowledge, example.response)).encode(errors="surrogatepass"))
        path = self.folder / f"{name}-{digest.hexdigest()}.npy"
        if path.exists():
            kept: Values = np.load(path, allow_pickle=False)
            return kept
        self.folder.mkdir(parents=True, exist_ok=True)
        values = compute()
        with atomic_file(path) as file:
            np.save(file, values, allow_pickle=False)
        return values


def pieces_of(text: str) -> list[str]:
    """Cuts a text into pieces of up to `PIECE_WORDS` words; a text without words is one piece."""
    words = text.split()
    return [" ".join(words[i : i + PIECE_WORDS]) for i in range(0, len(words), PIECE_WORDS)] or [text]


def cosines(encoder: str, knowledge: Sequence[str], response: Sequence[str]) -> Values:
    """Computes the cosine of each response with the piece of its knowledge that is most like it [pairs]."""
    from faithkit.metrics.responses.pretrained import load_pretrained

    if not len(response):
        return np.zeros(0)
    model, tokenizer, device = load_pretrained("AutoModel", encoder)
    texts = set(response) | {piece for text in knowledge for piece in pieces_of(text)}
    vectors = _mean_vectors(model, tokenizer, device, sorted(texts, key=lambda text: (len(text), text)))
    return np.array(
        [
            max(float(vectors[piece] @ vectors[said]) for piece in pieces_of(known))
            for known, said in zip(knowledge, response, strict=True)
        ]
    )


def _mean_vectors(model: Any, tokenizer: Any, device: Any, texts: Sequence[str]) -> dict[str, Values]:
    """Encodes texts as the mean of their tokens' last states, of length 1."""
    import torch

    found: dict[str, Values] = {}
    with torch.inference_mode():
        for begin in range(0, len(texts), BATCH_SIZE):
            part = list(texts[begin : begin + BATCH_SIZE])
            inputs = tokenizer(part, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
            states = model(**inputs.to(device)).last_hidden_state.float()  # [texts, tokens, hidden]
            present = inputs["attention_mask"][..., None].float()
            mean = (states * present).sum(1) / present.sum(1).clamp(min=1)
            units = torch.nn.functional.normalize(mean, dim=-1).double().cpu().numpy()
            found |= dict(zip(part, units, strict=True))
    return found


def _not_entailed(nli: str, knowledge: Sequence[str], response: Sequence[str]) -> Values:
    """Computes the probability that a knowledge does not entail its response [pairs]."""
    from faithkit_workflows.detectors.entailment import load_entailment

    found: Values = 1 - load_entailment(nli).entailment(knowledge, response)[:, ENTAILMENT]
    return found
