"""Fits the model of words: by gradient descent on the labels of responses and, where they are known, of their words."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from critic.support.alignment import FEATURES
from critic.support.word_model import LIMIT, Floats, Weights, unsupported
from critic.support.word_states import WordEncoder, encode_and_align
from data_modules.encoding.encoder import question_text
from faithkit.records import HALLUCINATED, Example

UNITS = 16  # hidden units
EPOCHS, BATCH, RATE = 80, 256, 1e-2
WORD_LOSS = 0.5  # weight of the words' labels against those of responses
PENALTY = 6e-3  # of squared weights
# Weights of unknown 4-grams, of the weakest word, and of a value that the context does not have: not fitted, because
# domains differ.
POOLED = (2.0, 5.0, 6.0)
MIN_SPREAD = 1e-6
ROWS_AT_ONCE = 200  # rows that are encoded together


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
    weights = _row_weights(dataset, labels.numpy())
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


def _row_weights(dataset: NDArray[Any], labels: NDArray[Any]) -> Tensor:
    _, group, count = np.unique(2 * dataset + labels, return_inverse=True, return_counts=True)
    return torch.tensor(np.minimum(len(group) / len(count) / count[group], 8.0), dtype=torch.float32)


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
        return torch.cat([pooled, torch.ones(size, 1)], 1) @ self.pooling + of_responses @ torch.tensor(POOLED)

    def penalty(self) -> Tensor:
        squares = [(layer.weight**2).sum() for layer in (self.direct, self.output, self.output, self.output)]
        return PENALTY * torch.stack(squares).sum() + 1e-3 * (self.dataset_bias**2).sum()

    def to_fit(self, mean: Floats, scale: Floats) -> Weights:
        def values(tensor: Tensor) -> Floats:
            return tensor.detach().numpy().astype(np.float64)

        pooling = np.insert(values(self.pooling), 3, POOLED)
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
