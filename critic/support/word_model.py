"""The small fitted part of the detector: from features of words to log-odds of words and of the response.

    log-odds of a word     = w x + v tanh(H x + b) + c,  x: the standardised features
    log-odds of a response = p . (log sum exp(word log-odds), mean(word log-odds), log(number of words),
                                  share of unknown 4-grams, weakest word, whether a value is unsupported, 1)

The weakest word is a soft minimum of the words' closeness to the context, as in `critic.token_support`. It and the
4-grams rank the responses of unseen domains well.

A response is labelled by its probability. A value that the context does not have makes it at least the share of such
responses that were hallucinated. In a hallucinated one the words above the span threshold are marked, at least
the worst one; in a faithful one none.

The model is a JSON file of some kilobytes with a hash of its content, and with the hash of its encoder's weights. It is
fitted by gradient descent on the labels of responses and, where they are known, of their words.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from critic.support.alignment import FEATURES
from critic.support.word_states import WordEncoder, encode_and_align
from critic.token_support import SHARPNESS
from data_modules.encoding.encoder import question_text
from faithkit.calibration import sigmoid
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import write_text
from faithkit.files.jsonl import read_strict_json
from faithkit.records import HALLUCINATED, Example

FORMAT = 2
BALANCED, RECALL, PRECISION = AIMS = ("balanced", "recall", "precision")
HINT = "install faithkit again, or fit the file again with `python -m faithkit_workflows.fit_support`"
DIGITS = 5  # significant digits of a weight
LIMIT = 6.0  # standard deviations to which a feature is clipped
Floats = NDArray[np.float64]
ARRAYS = {"mean": 1, "scale": 1, "direct": 1, "hidden": 2, "hidden_bias": 1, "output": 1, "pooling": 1}  # dimensions
VALUE = FEATURES.index("value that the context does not have")
POOLED = 7  # features of a response
UNITS = 16  # hidden units
EPOCHS, BATCH, RATE = 80, 256, 1e-2
WORD_LOSS = 0.5  # weight of the words' labels against those of responses
PENALTY = 6e-3  # of squared weights
# Weights of unknown 4-grams, of the weakest word, and of a value that the context does not have: not fitted, because
# domains differ.
FIXED_POOLING = (2.0, 5.0, 6.0)
MIN_SPREAD = 1e-6
ROWS_AT_ONCE = 200  # rows that are encoded together


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The fitted weights.

    Args:
        mean: Mean of each feature [features].
        scale: Its standard deviation [features].
        direct: Weight of each feature [features].
        hidden: Weights of the hidden units [units, features].
        hidden_bias: [units].
        output: Weights of the hidden units' values [units].
        bias: Of a word's log-odds.
        pooling: p.
    """

    mean: Floats
    scale: Floats
    direct: Floats
    hidden: Floats
    hidden_bias: Floats
    output: Floats
    bias: float
    pooling: Floats

    def word_logits(self, features: Floats) -> Floats:
        """Computes the log-odds of each word being unsupported [words]."""
        inputs = np.clip((features - self.mean) / self.scale, -LIMIT, LIMIT)
        return inputs @ self.direct + np.tanh(inputs @ self.hidden.T + self.hidden_bias) @ self.output + self.bias

    def response_logit(self, words: Floats, features: Floats) -> float:
        """Computes the log-odds of a response from the log-odds [words] and features of its words; -inf without."""
        if not len(words):
            return -np.inf
        top = words.max()
        worst = top + np.log(np.exp(words - top).sum())
        return float(self.pooling @ (worst, words.mean(), np.log(len(words)), *unsupported(features), 1.0))


@dataclass(frozen=True, kw_only=True)
class WordModel(Weights):
    """A fitted model with its thresholds and its encoder.

    Args:
        version: Of the fitted file.
        encoder: The name of the encoder.
        encoder_sha256: The hash of its weights.
        threshold: P(hallucinated) from which a response is labelled hallucinated.
        unsure_from: Below it a response is called faithful without reservation.
        aims: For each aim the threshold, the recall and false alarms that it had on rows of authors left out, and by
            author the numbers of found, missed, wrongly called and rightly passed answers.
        value_probability: The least probability of a response with a value that the context does not have: the share of
            such responses that were hallucinated, among rows that the model was not fitted on.
        span_threshold: Probability from which a word of such a response is marked.
        description: What it was fitted on, with licences, and its figures in cross-validation.
    """

    version: str
    encoder: str
    encoder_sha256: str
    threshold: float
    unsure_from: float
    aims: dict[str, dict[str, Any]]
    value_probability: float
    span_threshold: float
    description: dict[str, Any]

    def write(self, path: Path) -> None:
        """Writes the model with a hash of its content."""
        stored: dict[str, Any] = {"features": list(FEATURES)}
        for field in fields(self):
            value = getattr(self, field.name)
            stored[field.name] = _round(value) if isinstance(value, np.ndarray | float) else value
        write_fitted(path, FORMAT, stored)

    @classmethod
    def read(cls, path: Path) -> "WordModel":
        """Reads a model, and verifies its hash, its features and its shapes.

        Raises:
            UserError: The file was changed, or is of another version.
        """
        stored = read_fitted(path, FORMAT, HINT)
        if stored.pop("features") != list(FEATURES):
            problem = "the detector file has other features than this version computes"
            raise UserError(problem, place=str(path), hint=HINT)
        try:
            stored |= {name: np.array(stored[name], np.float64) for name in ARRAYS}
            model = cls(**stored)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"broken detector file: {shorten(error)}", place=str(path), hint=HINT) from error
        try:
            decisions = [one[name] for one in model.aims.values() for name in ("threshold", "recall", "false_alarms")]
            valid = model.aims.keys() == set(AIMS) and all(
                isinstance(v, float) for v in [*decisions, model.unsure_from, model.value_probability]
            )
        except (KeyError, TypeError, AttributeError):
            valid = False
        if not valid:
            raise UserError("broken detector file: wrong thresholds", place=str(path), hint=HINT)
        units, count = len(model.output), len(FEATURES)
        shapes: dict[str, tuple[int, ...]] = {
            "mean": (count,),
            "scale": (count,),
            "direct": (count,),
            "hidden": (units, count),
        }
        shapes |= {"hidden_bias": (units,), "output": (units,), "pooling": (POOLED,)}
        if wrong := [name for name, shape in shapes.items() if getattr(model, name).shape != shape]:
            raise UserError(f"broken detector file: wrong shape of {wrong[0]}", place=str(path), hint=HINT)
        return model

    def with_threshold(self, threshold: float) -> "WordModel":
        """Returns the model with another threshold of responses."""
        return replace(self, threshold=threshold, unsure_from=min(self.unsure_from, threshold))


def unsupported(features: Floats) -> tuple[float, float, float]:
    """Computes features of a response from those of its words: unknown 4-grams, weakest word, unsupported value."""
    known, closest = features[:, FEATURES.index("known 4-grams")], features[:, FEATURES.index("closest word")]
    weakest = float(np.log(np.exp(-SHARPNESS * closest).mean()) / SHARPNESS)
    return 1 - float(known.mean()), weakest, float(features[:, VALUE].max())


def write_fitted(path: Path, version: int, stored: dict[str, Any]) -> None:
    """Writes the fitted numbers of a detector with their version and hash."""
    stored = {"format": version, **stored}
    write_text(path, json.dumps(stored | {"sha256": _content_hash(stored)}, indent=None) + "\n")


def read_fitted(path: Path, version: int, hint: str) -> dict[str, Any]:
    """Reads the fitted numbers of a detector, and verifies their version and hash.

    Args:
        hint: What to type about a broken file.

    Raises:
        UserError: The file was changed, or is of another version.
    """
    stored: Any = read_strict_json(path, hint=hint)
    if not isinstance(stored, dict) or stored.get("format") != version:
        raise UserError("this is no detector file of this version", place=str(path), hint=hint)
    expected = stored.pop("sha256", None)
    if _content_hash(stored) != expected:
        problem = "the detector file was changed: its hash is not that of its content"
        raise UserError(problem, place=str(path), hint=hint)
    del stored["format"]
    return stored


def _content_hash(stored: dict[str, Any]) -> str:
    """Hashes the content of a file, without its hash."""
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def _round(values: Any) -> Any:
    """Rounds to DIGITS significant digits, as plain values."""
    if isinstance(values, float):
        return float(f"{values:.{DIGITS}g}")
    return [_round(value) for value in np.asarray(values).tolist()] if np.ndim(values) else _round(float(values))


def find_spans(
    places: Sequence[tuple[int, int]], sentences: Sequence[int], gaps: Sequence[int], logits: Floats, cut: float
) -> list[tuple[int, int, float]]:
    """Joins marked words to spans: start, end and mean probability of the marked words.

    Args:
        places: First character of each word and the one after its last.
        sentences: The sentence of each word.
        gaps: Number of stop words before each word; words with at most one between them are joined.
        logits: Log-odds of each word.
        cut: Log-odds from which a word is marked.
    """
    spans: list[tuple[int, int, list[float]]] = []
    last = -2
    for number in np.flatnonzero(logits >= cut).tolist():
        (start, end), probability = places[number], float(sigmoid(logits[number]))
        if number == last + 1 and sentences[number] == sentences[last] and gaps[number] <= 1:
            spans[-1] = (spans[-1][0], end, [*spans[-1][2], probability])
        else:
            spans.append((start, end, [probability]))
        last = number
    return [(start, end, float(np.mean(scores))) for start, end, scores in spans]


class LabelledWords(NamedTuple):
    """The features of a labelled response's words.

    Args:
        features: [words, features].
        word_labels: 1 for a word in a marked span, else 0; NaN where the spans are unknown [words].
        label: 1 for hallucinated.
        dataset: Each dataset has a separate bias in the fit.
    """

    features: Floats
    word_labels: Floats
    label: int
    dataset: str


def label_words(encoder: WordEncoder, examples: Sequence[Example]) -> list[LabelledWords]:
    """Computes the features and labels of the words of labelled examples; each has at least one word."""
    rows: list[LabelledWords] = []
    for begin in range(0, len(examples), ROWS_AT_ONCE):
        chunk = examples[begin : begin + ROWS_AT_ONCE]
        texts = [(example.knowledge or "", question_text(example), example.response) for example in chunk]
        for example, aligned in zip(chunk, encode_and_align(encoder, texts), strict=True):
            label = int(example.label == HALLUCINATED)
            known = not label or bool(example.spans)
            words = np.full(len(aligned.places), 0.0 if known else np.nan)
            for span in example.spans or ():
                covered = [
                    w.start < span.end and span.start < w.end for w in (aligned.words[p] for p in aligned.places)
                ]
                words[covered] = 1
            rows.append(LabelledWords(aligned.features, words, label, example.source))
    return rows


def fit(rows: Sequence[LabelledWords], *, seed: int = 0) -> Weights:
    """Fits a model to rows; each class of each dataset has the same total weight."""
    torch.manual_seed(seed)
    order = np.random.default_rng(seed)
    features = np.concatenate([row.features for row in rows])
    mean, scale = features.mean(0), features.std(0) + MIN_SPREAD
    inputs = torch.tensor(np.clip((features - mean) / scale, -LIMIT, LIMIT), dtype=torch.float32)
    word_labels = torch.tensor(np.concatenate([row.word_labels for row in rows]), dtype=torch.float32)
    labels = torch.tensor([row.label for row in rows], dtype=torch.float32)
    names, dataset = np.unique([row.dataset for row in rows], return_inverse=True)
    _, group, count = np.unique(2 * dataset + labels.numpy(), return_inverse=True, return_counts=True)
    weights = torch.tensor(np.minimum(len(group) / len(count) / count[group], 8.0), dtype=torch.float32)
    of_responses = torch.tensor([unsupported(row.features) for row in rows], dtype=torch.float32)
    starts = np.concatenate([[0], np.cumsum([len(row.features) for row in rows])])
    network = _Network(len(FEATURES), len(names))
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    size = min(BATCH, len(rows))
    steps = EPOCHS * (len(rows) // size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 50) * (1 - step / steps))
    for _ in range(EPOCHS):
        shuffled = order.permutation(len(rows))
        for begin in range(0, len(rows) - size + 1, size):
            batch = shuffled[begin : begin + size]
            words = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in batch])
            owner = torch.tensor(np.repeat(np.arange(size), starts[batch + 1] - starts[batch]))
            odds = network(inputs[words])
            response = network.pool(odds, owner, size, of_responses[batch]) + network.dataset_bias[dataset[batch]]
            weight = weights[batch]
            loss = (cross_entropy(response, labels[batch], reduction="none") * weight).mean()
            known = ~word_labels[words].isnan()
            of_words = cross_entropy(odds[known], word_labels[words][known], reduction="none")
            loss = loss + WORD_LOSS * (of_words * weight[owner[known]]).mean() + network.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.to_fit(mean, scale)


class _Network(nn.Module):
    def __init__(self, num_features: int, num_datasets: int):
        super().__init__()
        self.direct, self.hidden = nn.Linear(num_features, 1), nn.Linear(num_features, UNITS)
        self.output = nn.Linear(UNITS, 1, bias=False)
        self.pooling = nn.Parameter(torch.tensor([1.0, 0, 0, 0]))
        self.dataset_bias = nn.Parameter(torch.zeros(num_datasets))
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.direct.weight)
        nn.init.constant_(self.direct.bias, -2.0)  # few words are unsupported

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.direct(inputs) + self.output(torch.tanh(self.hidden(inputs))))[:, 0]

    def pool(self, odds: Tensor, owner: Tensor, size: int, of_responses: Tensor) -> Tensor:
        """Pools the log-odds of words to those of responses [size], as `WordModel.response_logit`."""
        count = torch.zeros(size).index_add(0, owner, torch.ones_like(odds))
        top = torch.full((size,), -torch.inf).scatter_reduce(0, owner, odds, "amax").detach()
        total = torch.zeros(size).index_add(0, owner, torch.exp(odds - top[owner]))
        mean = torch.zeros(size).index_add(0, owner, odds) / count
        pooled = torch.stack([top + torch.log(total), mean, torch.log(count)], 1)
        return torch.cat([pooled, torch.ones(size, 1)], 1) @ self.pooling + of_responses @ torch.tensor(FIXED_POOLING)

    def penalty(self) -> Tensor:
        squares = [(layer.weight**2).sum() for layer in (self.direct, self.output, self.output, self.output)]
        return PENALTY * torch.stack(squares).sum() + 1e-3 * (self.dataset_bias**2).sum()

    def to_fit(self, mean: Floats, scale: Floats) -> Weights:
        def values(tensor: Tensor) -> Floats:
            return tensor.detach().numpy().astype(np.float64)

        pooling = np.insert(values(self.pooling), 3, FIXED_POOLING)
        pooling[-1] += float(self.dataset_bias.detach().mean())
        return Weights(
            mean=mean,
            scale=scale,
            direct=values(self.direct.weight)[0],
            hidden=values(self.hidden.weight),
            hidden_bias=values(self.hidden.bias),
            output=values(self.output.weight)[0],
            bias=float(self.direct.bias.detach()),
            pooling=pooling,
        )
