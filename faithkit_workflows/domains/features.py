"""Computes the features that cheap baselines read: counts, an encoder's cosine, an NLI model's score.

Features of a model are kept in the run's folder, so that a resumed run does not compute them again. The model is
identified by its content, because other weights may have been saved at the same path.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.baselines.counted_features import FEATURES, Values, count_features
from faithkit.baselines.word_overlap import unsupported_grams
from faithkit.detector import ENTAILMENT
from faithkit.files.atomic import atomic_file
from faithkit.files.hashes import hash_files
from faithkit.files.model_folder import CARD, find_folder
from faithkit.records import Example
from faithkit.weights.local import LOCAL
from faithkit.weights.resolve import is_hub_name, resolve

GRAMS, COSINE, NLI = "unknown 4-grams", "cosine", "not entailed"
PIECE_WORDS = 100  # long knowledge is compared piece by piece, and the most similar piece counts
BATCH_SIZE = 32
MAX_TOKENS = 160


class Features:
    """Computes features, and keeps those of models in a folder.

    Args:
        folder: The folder for kept features.
        encoder: Weights of an encoder; None leaves its cosine out.
    """

    def __init__(self, folder: Path, *, encoder: str | None = None):
        self.folder, self.encoder = folder, encoder
        self._model_key = cache(model_key)  # the files of a model are hashed once for all domains

    def columns(self, *, nli: bool) -> list[str]:
        """Lists the names of the features."""
        return [*FEATURES, GRAMS, *([COSINE] if self.encoder else []), *([NLI] if nli else [])]

    def compute(self, name: str, examples: Sequence[Example], nli: str | None) -> Values:
        """Computes the features of examples [examples, features].

        Args:
            name: A name for the examples in file names.
            nli: An NLI model or a critic; None leaves it out.
        """
        knowledge, responses = [e.knowledge for e in examples], [e.response for e in examples]
        blocks = [count_features(knowledge, responses)]
        grams = [unsupported_grams(*pair) for pair in zip(knowledge, responses, strict=True)]
        blocks.append(np.array(grams, np.float64)[:, None])
        if encoder := self.encoder:
            cosines = self._load_or(name, examples, encoder, lambda: compute_cosines(encoder, knowledge, responses))
            blocks.append(cosines[:, None])
        if nli:
            scores = self._load_or(name, examples, nli, lambda: _not_entailed(nli, knowledge, responses))
            blocks.append(scores[:, None])
        return np.concatenate(blocks, axis=1)

    def _load_or(self, name: str, examples: Sequence[Example], model: str, compute: Callable[[], Values]) -> Values:
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


def model_key(name: str) -> str:
    """Hashes the files of a model, or of a run's model; a name of the hub is returned unchanged.

    Raises:
        UserError: There is no such model.
    """
    if name not in LOCAL and is_hub_name(name):
        return name
    folder = Path(resolve(name)) if name in LOCAL else find_folder(name)
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    hashed = [name for name in names if name != CARD and not name.startswith(".")]
    lines = [f"{name} {digest}" for name, digest in hash_files(folder, hashed).items()]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()


def split_pieces(text: str) -> list[str]:
    """Splits a text into pieces of up to `PIECE_WORDS` words; a text without words is one piece."""
    words = text.split()
    return [" ".join(words[i : i + PIECE_WORDS]) for i in range(0, len(words), PIECE_WORDS)] or [text]


def compute_cosines(encoder: str, knowledge: Sequence[str], responses: Sequence[str]) -> Values:
    """Computes the cosine of each response with the most similar piece of its knowledge [pairs]."""
    from faithkit.metrics.responses.pretrained import load_pretrained

    if not len(responses):
        return np.zeros(0)
    model, tokenizer, device = load_pretrained("AutoModel", encoder)
    texts = set(responses) | {piece for text in knowledge for piece in split_pieces(text)}
    vectors = _mean_vectors(model, tokenizer, device, sorted(texts, key=lambda text: (len(text), text)))
    return np.array(
        [
            max(float(vectors[piece] @ vectors[response]) for piece in split_pieces(text))
            for text, response in zip(knowledge, responses, strict=True)
        ]
    )


def _mean_vectors(model: Any, tokenizer: Any, device: Any, texts: Sequence[str]) -> dict[str, Values]:
    """Encodes texts as the mean of their tokens' last states, scaled to length 1."""
    import torch

    vectors: dict[str, Values] = {}
    with torch.inference_mode():
        for begin in range(0, len(texts), BATCH_SIZE):
            batch = list(texts[begin : begin + BATCH_SIZE])
            inputs = tokenizer(batch, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
            states = model(**inputs.to(device)).last_hidden_state.float()  # [texts, tokens, hidden]
            present = inputs["attention_mask"][..., None].float()
            mean = (states * present).sum(1) / present.sum(1).clamp(min=1)
            units = torch.nn.functional.normalize(mean, dim=-1).double().cpu().numpy()
            vectors |= dict(zip(batch, units, strict=True))
    return vectors


def _not_entailed(nli: str, knowledge: Sequence[str], responses: Sequence[str]) -> Values:
    """Computes the probability that a knowledge does not entail its response [pairs]."""
    from faithkit_workflows.detectors.entailment import load_entailment

    scores: Values = 1 - load_entailment(nli).entailment(knowledge, responses)[:, ENTAILMENT]
    return scores
