"""Defines `EntailmentChecker`: windows of a document times claims of a response, and how their scores are combined."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from critic.entailment.models import load_entailment_model, support
from critic.entailment.split import counter, divide, split_sentences
from critic.runtime.onnx_model import ONNX
from critic.runtime.precision import apply_precision, calibration_pairs, check_precision
from critic.sequence.pair_odds import default_batch_tokens
from faithkit import arguments
from faithkit.arguments import read_examples
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.training.batch_planning import plan_batches
from faithkit.weights.known_detectors import MEAN, SENTENCES, THRESHOLD, KnownDetector

RESPONSES_AT_ONCE = 512  # responses that are tokenised and sorted together


def split_claims(response: str, claims: str) -> list[str]:
    """Divides a response into its claims; at least one."""
    return (split_sentences(response) if claims == SENTENCES else []) or [response]


def combine(scores: NDArray[np.float64], over_claims: str) -> float:
    """Combines P(supported) [windows, claims]: the best window of each claim, then over the claims."""
    best = scores.max(axis=0)
    return float(best.mean() if over_claims == MEAN else best.min())


@dataclass(frozen=True, slots=True)
class Pairs:
    """What the model reads about some responses.

    Args:
        rows: Token ids of each distinct pair of window and claim.
        places: For each response the row of each pair [windows, claims].
    """

    rows: list[list[int]]
    places: list[NDArray[np.int64]]


class EntailmentChecker:
    """Checks responses with an entailment model of others, by the rules of its declaration.

    A document that several responses share is divided once, and equal pairs of window and claim are read once. Pairs
    are batched by length, and scores do not depend on the batch, up to float rounding (1e-6 in fp32).

    Args:
        known: The declaration.
        model: The model that it declares.
        batch_tokens: Tokens of a batch; changes the speed, not the scores. None chooses by the device.
        threshold: P(hallucinated) from which a response is labelled hallucinated.
    """

    def __init__(
        self,
        known: KnownDetector,
        model: Any,
        tokenizer: Any,
        *,
        batch_tokens: int | None = None,
        threshold: float = THRESHOLD,
    ):
        self.known, self.model, self.tokenizer, self.threshold = known, model, tokenizer, threshold
        self.batch_tokens = arguments.read_count("batch_tokens", batch_tokens) or default_batch_tokens(model)

    @classmethod
    def load(
        cls,
        known: KnownDetector,
        source: str,
        base: str = "",
        *,
        precision: str = "32-true",
        batch_tokens: int | None = None,
        device: str | None = None,
    ) -> "EntailmentChecker":
        """Loads the model of a declaration.

        Args:
            source: A folder or hub name of its repository.
            base: The repository of its configuration and tokenizer, if it has none of its own.
            precision: 32-true, bf16, int8 (CPU), or auto.
        """
        check_precision(precision)
        if precision == ONNX:
            raise UserError(f"{known.name} has no ONNX graph", hint="leave precision out, or use bf16, int8 or auto")
        model, tokenizer = load_entailment_model(known, source, base)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        checker = cls(known, model.to(device), tokenizer, batch_tokens=batch_tokens)
        checker.model = apply_precision(
            checker.model, precision, device, lambda: checker.supported(*calibration_pairs())
        )
        return checker

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated."""
        self.threshold = threshold

    def __repr__(self) -> str:
        return f"EntailmentChecker({self.known.name!r}, threshold={self.threshold:.4g}, device={str(self.device)!r})"

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in their order."""
        examples, quiet = read_examples(examples), not arguments.read_flag("progress", progress)
        for begin in tqdm(range(0, len(examples), RESPONSES_AT_ONCE), "checking", disable=quiet, unit="chunk"):
            chunk = examples[begin : begin + RESPONSES_AT_ONCE]
            found = self.supported([one.knowledge for one in chunk], [one.response for one in chunk])
            for example, score in zip(chunk, (1 - found).tolist(), strict=True):
                label = HALLUCINATED if score >= self.threshold else FAITHFUL
                yield Prediction(id=example.id, label=label, score=score)

    def supported(self, documents: Sequence[str], responses: Sequence[str]) -> NDArray[np.float64]:
        """Computes P(supported) of each response [responses]."""
        pairs = self._pair(documents, responses)
        scores = np.zeros(len(pairs.rows))
        lengths = np.array([len(row) for row in pairs.rows], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None) if pairs.rows else ():
            read = [pairs.rows[row] for row in batch]
            scores[batch] = support(self.known, self.model, read, self.tokenizer.pad_token_id)
        return np.array([combine(scores[places], self.known.over_claims) for places in pairs.places])

    def _pair(self, documents: Sequence[str], responses: Sequence[str]) -> Pairs:
        known, windows = self.known, {}
        unit = known.windows.unit if known.windows else ""
        count = counter(unit, self.tokenizer, known.max_length)
        for document in dict.fromkeys(documents):
            windows[document] = divide(document, known.windows, count)
        row_of: dict[tuple[str, str], int] = {}
        places = []
        for document, response in zip(documents, responses, strict=True):
            claims = split_claims(response, known.claims)
            rows = [
                [row_of.setdefault((window, claim), len(row_of)) for claim in claims] for window in windows[document]
            ]
            places.append(np.array(rows, np.int64))
        return Pairs(self.encode(list(row_of)), places)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Returns the token ids of each pair of window and claim, cut to the declared length."""
        if not pairs:
            return []
        known, tokenizer = self.known, self.tokenizer
        if known.text:
            texts = [fill_text(known.text, tokenizer.eos_token or "", *pair) for pair in pairs]
            cut = {"truncation": True, "max_length": known.max_length} if known.max_length else {}
            return list(tokenizer(texts, return_attention_mask=False, **cut)["input_ids"])
        claims = tokenizer([claim for _, claim in pairs], add_special_tokens=False)["input_ids"]
        room = known.max_length - tokenizer.num_special_tokens_to_add(pair=True)
        rows: list[list[int]] = [[] for _ in pairs]
        for strategy in ("only_first", "longest_first"):  # a claim that leaves no room for its window is cut too
            is_cut = [(len(claim) >= room) == (strategy == "longest_first") for claim in claims]
            chosen = [row for row, wanted in enumerate(is_cut) if wanted]
            if not chosen:
                continue
            first, second = zip(*(pairs[row] for row in chosen), strict=True)
            found = tokenizer(list(first), list(second), truncation=strategy, max_length=known.max_length)
            for row, ids in zip(chosen, found["input_ids"], strict=True):
                rows[row] = ids
        return rows

    @property
    def device(self) -> torch.device:
        """The model's device."""
        device: torch.device = self.model.device
        return device


def fill_text(text: str, end: str, document: str, claim: str) -> str:
    """Fills the text that a model reads; braces in document and claim are unchanged.

    >>> fill_text("{document}{eos}{claim}", "</s>", "It is {red}.", "It is blue.")
    'It is {red}.</s>It is blue.'
    """
    before, _, rest = text.replace("{eos}", end).partition("{document}")
    between, _, after = rest.partition("{claim}")
    return before + document + between + claim + after
