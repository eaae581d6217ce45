"""Computes how well the knowledge supports the tokens of a response, with an encoder that is not fine-tuned.

    support of token t = max over tokens k of the knowledge of cos(state of t, state of k)
    weakest            = -1/20 log mean over tokens t of the response of exp(-20 support of t)
    log-odds of t      = 10 (1/2 - support of t)

A critic uses the weakest tokens (`model.evidence=words_and_tokens`): a soft minimum of the support, so that several
weak tokens count more than one, with the states of the second-to-last layer. A tagger uses the log-odds of each token
(`model.token_support=true`) with the last layer, and the history counts as support too. A threshold on a cosine
transfers between domains better than a threshold on word overlap (research/experiments/domains.md).

Both texts are encoded separately, so the encoder needs no training on pairs, and a knowledge text is encoded once for
all its responses. Special tokens are left out; long texts are read in consecutive windows: of a long knowledge all, or
those that share most tokens with a window of the response (`data_modules.encoding.window_choice`).

Use it for domains without training data. The encoder must not be fine-tuned, because fine-tuning on pairs changes its
states (research/experiments/domains.md).

The support of a response without tokens is 1; with an empty knowledge it is 0.

| Relative                        | Use it for                                                            |
|---------------------------------|-----------------------------------------------------------------------|
| `faithkit.baselines.word_features`        | the same for words, without a model |
| BERTScore (Zhang et al. 2020)   | the mean over tokens instead of the minimum: text similarity |

>>> import torch
>>> from critic.token_support import token_support, weakest
>>> knowledge, response = torch.eye(3)[:2], torch.tensor([[1.0, 0, 0], [0, 3, 4]])  # 2 tokens each, 3 dimensions
>>> support = token_support(response, knowledge)
>>> [round(value, 1) for value in support.tolist()], round(weakest(support, knowledge_tokens=2), 2)
([1.0, 0.6], 0.63)
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from critic.runtime import pad_inputs
from critic.weights import longest_sequence
from data_modules.encoding.encoder import Ragged
from data_modules.encoding.pair_encoder import WHOLE
from data_modules.encoding.tokens import Tokenizer, single_template
from data_modules.encoding.window_choice import rank_parts
from faithkit.fast import plan_batches, without_last_layer
from faithkit.training.checkpoints import is_in_shards

EMPTY_RESPONSE, EMPTY_KNOWLEDGE = 1.0, 0.0
CENTER, SCALE = 0.5, 10.0  # the support with log-odds 0 before calibration, and log-odds per unit of support
LAST, SECOND_TO_LAST = -1, -2  # layers, as indices of hidden states
SHARPNESS = 20.0  # of the soft minimum: a support that is lower by 0.05 has e times the weight
WINDOW = 512  # tokens of a window
BLOCK = 256  # responses with states in memory


def token_support(response: Tensor, knowledge: Tensor) -> Tensor:
    """Computes each response token's highest cosine to a knowledge token [tokens].

    Args:
        response: States [tokens, hidden].
        knowledge: States [knowledge tokens, hidden], at least one.
    """
    return (normalize(response, dim=-1) @ normalize(knowledge, dim=-1).T).amax(1)


def weakest(support: Tensor, *, knowledge_tokens: int) -> float:
    """Computes the soft minimum of a response's token support [tokens]; also for texts without tokens."""
    if not len(support):
        return EMPTY_RESPONSE
    if not knowledge_tokens:
        return EMPTY_KNOWLEDGE
    return float((math.log(len(support)) - torch.logsumexp(-SHARPNESS * support.double(), 0)) / SHARPNESS)


class TokenSupport:
    """Computes the support of tokenised responses with the encoder below a classifier.

    Args:
        model: A classifier of transformers; its head is not used.
        batch_tokens: Tokens of a batch; changes the speed, not the results.
        max_length: Tokens of a sequence, including special tokens, or fewer as the encoder has positions.
        layer: The layer whose states are compared.
        max_windows: Windows of a knowledge text that are read for each window of a response; None reads all.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        batch_tokens: int,
        max_length: int = WINDOW,
        layer: int = LAST,
        max_windows: int | None = None,
    ):
        max_length = min(max_length, longest_sequence(model) or max_length)
        in_shards = is_in_shards(model)  # and does not run in parts
        self.model, self.layer = model if in_shards else model.base_model, layer
        if not in_shards and layer == SECOND_TO_LAST and (shorter := without_last_layer(model)) is not None:
            self.model, self.layer = shorter, LAST
        self.reads_all = in_shards or self.layer != LAST
        self.pad, self.batch_tokens = tokenizer.pad_token_id, batch_tokens
        self.prefix, self.suffix = single_template(tokenizer)
        self.window, self.max_windows = max_length - len(self.prefix) - len(self.suffix), max_windows

    def weakest(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        """Computes the soft minimum of the support of each row [rows], from columns of a `PairEncoder`."""
        knowledge, response = columns.get(WHOLE, columns["knowledge"]), columns["response"]
        assert isinstance(knowledge, Ragged)
        assert isinstance(response, Ragged)
        rows = zip(self.supports(knowledge, response), knowledge.lengths, strict=True)
        return np.array([weakest(support, knowledge_tokens=int(size)) for support, size in rows], np.float64)

    def supports(self, knowledge: Ragged, response: Ragged) -> list[Tensor]:
        """Computes the support of each response token [tokens], row by row; equal texts are encoded once."""
        knowledge_texts, knowledge_index = _unique_texts(knowledge)
        responses, response_index = _unique_texts(response)
        rows = list(zip(knowledge_index, response_index, strict=True))
        starts = [range(0, len(text), self.window) for text in responses]  # of each response's windows
        support: dict[tuple[int, int], Tensor] = {}
        ordered = sorted(set(rows))
        for begin in range(0, len(ordered), BLOCK):
            pairs = ordered[begin : begin + BLOCK]
            asked = [(number, first) for number in sorted({number for _, number in pairs}) for first in starts[number]]
            states = {(number, first): found for number, first, found in self.encode_windows(responses, asked)}
            readers: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # of a window of knowledge
            for text, number in pairs:
                support[text, number] = torch.full((len(responses[number]),), -1.0, device=self.model.device)
                windows = np.arange(0, len(knowledge_texts[text]), self.window)
                for first in starts[number]:
                    chosen = windows
                    if self.max_windows is not None and len(windows) > self.max_windows:
                        part = responses[number][first : first + self.window]
                        ends = windows + self.window
                        ranked = rank_parts(part, knowledge_texts[text], windows, ends, self.max_windows)
                        chosen = windows[np.sort(ranked)]
                    for start in chosen.tolist():
                        readers[text, start].append((number, first))
            for text, start, window in self.encode_windows(knowledge_texts, list(readers)):  # held one batch at a time
                for number, first in readers[text, start]:
                    best = support[text, number][first : first + self.window]
                    best.copy_(torch.maximum(best, token_support(states[number, first], window)))
            for text, number in pairs:
                if not len(knowledge_texts[text]):
                    support[text, number].fill_(EMPTY_KNOWLEDGE)
                support[text, number] = support[text, number].cpu()
        return [support[row] for row in rows]

    @torch.no_grad()  # sharded weights need version counters, which inference mode leaves out
    def encode_windows(
        self, texts: Sequence[NDArray[np.int32]], windows: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int, Tensor]]:
        """Encodes windows of texts, and yields text number, first token and states [tokens, hidden] of each window.

        Args:
            windows: Text number and first token.
        """
        window_ids = [texts[text][start : start + self.window] for text, start in windows]
        if not windows:
            return
        special = len(self.prefix) + len(self.suffix)
        lengths = np.array([special + len(ids) for ids in window_ids], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None):
            sequences = [[*self.prefix, *window_ids[number].tolist(), *self.suffix] for number in batch]
            output = self.model(**pad_inputs(sequences, self.pad, self.model), output_hidden_states=self.reads_all)
            states = output.hidden_states[self.layer] if self.reads_all else output.last_hidden_state
            states = states.float()  # [windows, tokens, hidden]
            begin = len(self.prefix)
            for row, number in enumerate(batch):
                yield *windows[number], states[row, begin : begin + len(window_ids[number])]


def _unique_texts(texts: Ragged) -> tuple[list[NDArray[np.int32]], list[int]]:
    """Returns the unique texts, and the index of each row's text."""
    number: dict[bytes, int] = {}
    rows = [number.setdefault(texts.row(row).tobytes(), len(number)) for row in range(len(texts))]
    return [np.frombuffer(text, texts.values.dtype) for text in number], rows
