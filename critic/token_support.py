"""How well the knowledge supports the tokens of a response, by an encoder that was not trained for it.

    support of token t = max over tokens k of the knowledge of cos(state of t, state of k)
    weakest            = -1/20 log mean over tokens t of the response of exp(-20 support of t)
    log-odds of t      = 10 (1/2 - support of t)

A critic weighs the weakest tokens (`model.evidence=words_and_tokens`): the lowest support, softened, so that a few weak
tokens count for more than one and a single odd mark for less. It takes the states of the last layer but one. A tagger
takes the log-odds of each token (`model.token_support=true`), by the last layer, and the turns before the response
support it too: who repeats the question invents nothing. A cosine means the same in every
domain, and so does a threshold on it: it carries over where a threshold on words does not (EXPERIMENTS.md, Spans over
domains).

Both texts are read apart, so an encoder needs to have seen no pair, and a knowledge is read once for all its responses.
Special tokens are left out; texts longer than the encoder's sequence are read window behind window to their end.

Use it for domains that nothing was trained on. The encoder must stay as it came, since fine-tuning for pairs makes its
states others (EXPERIMENTS.md, Over domains).

A response without tokens says nothing that needs support: 1. Under a knowledge without tokens nothing has any: 0.

| Relative                        | Use it for                                                            |
|---------------------------------|-----------------------------------------------------------------------|
| `faithkit.baselines.word_evidence`        | the same question asked of words, without a model                     |
| BERTScore (Zhang et al. 2020)   | the mean over tokens instead of the lowest: how alike two texts are   |

>>> import torch
>>> from critic.token_support import token_support, weakest
>>> knowledge, response = torch.eye(3)[:2], torch.tensor([[1.0, 0, 0], [0, 3, 4]])  # 2 tokens each, 3 numbers a state
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

from critic.runtime.last_layer import reads_first_token, without_last_layer
from critic.weights import longest_sequence
from data_modules.encoding.pairs import WHOLE
from data_modules.encoding.ragged import Ragged, stack_rows
from data_modules.encoding.tokens import Tokenizer, single_template
from faithkit.training.batching import plan_batches

NOTHING_SAID, NOTHING_KNOWN = 1.0, 0.0
EVEN, SCALE = 0.5, 10.0  # a support that is as likely right as wrong before anything is fitted, and a step of a tenth
LAST, LAST_BUT_ONE = -1, -2  # layers, as transformers counts hidden states
SHARPNESS = 20.0  # of the softened minimum: a support that is lower by 0.05 counts for 2.7 times as much
WINDOW = 512  # tokens that a text is read by alone; fewer where the encoder has places for fewer
BLOCK_TOKENS = 32_768  # of the responses whose states are held at a time


def token_support(response: Tensor, knowledge: Tensor) -> Tensor:
    """Computes each response token's highest cosine to a knowledge token [tokens].

    Args:
        response: States [tokens, hidden].
        knowledge: States [knowledge tokens, hidden], one at least.
    """
    return (normalize(response, dim=-1) @ normalize(knowledge, dim=-1).T).amax(1)


def weakest(support: Tensor, *, knowledge_tokens: int) -> float:
    """Takes the lowest support of a response's tokens [tokens], softened; also where one of the texts has none."""
    if not len(support):
        return NOTHING_SAID
    if not knowledge_tokens:
        return NOTHING_KNOWN
    return float((math.log(len(support)) - torch.logsumexp(-SHARPNESS * support.double(), 0)) / SHARPNESS)


def support_logits(supports: Sequence[Tensor]) -> NDArray[np.float32]:
    """Turns the supports of all rows into logits of two classes, supported and hallucinated [tokens, 2]."""
    every = torch.cat([*supports, torch.zeros(0)]).numpy()
    return np.stack([np.zeros_like(every), SCALE * (EVEN - every)], axis=1).astype(np.float32)


class TokenSupport:
    """Computes the support of tokenised responses with the encoder below a classifier.

    Args:
        model: A classifier of transformers; its head is not used.
        max_length: Tokens of a sequence, special tokens counted.
        batch_tokens: Tokens of a batch; changes the speed, not the figures.
        layer: Whose states are compared.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, *, max_length: int, batch_tokens: int, layer: int = LAST):
        self.model, self.layer = model.base_model, layer
        if layer == LAST_BUT_ONE and reads_first_token(model):
            self.model, self.layer = without_last_layer(model), LAST
        self.pad, self.batch_tokens = tokenizer.pad_token_id, batch_tokens
        self.prefix, self.suffix = single_template(tokenizer)
        self.window = max_length - len(self.prefix) - len(self.suffix)

    @classmethod
    def of(cls, model: Any, tokenizer: Tokenizer, *, batch_tokens: int, layer: int = LAST) -> "TokenSupport":
        """Reads by windows as long as the encoder takes, `WINDOW` at most."""
        window = min(WINDOW, longest_sequence(model) or WINDOW)
        return cls(model, tokenizer, max_length=window, batch_tokens=batch_tokens, layer=layer)

    def weakest(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        """Computes the weakest tokens' support of each row [rows], from columns of a `PairEncoder`."""
        knowledge, response = columns.get(WHOLE, columns["knowledge"]), columns["response"]
        assert isinstance(knowledge, Ragged)
        assert isinstance(response, Ragged)
        rows = zip(self.supports(knowledge, response), knowledge.lengths, strict=True)
        return np.array([weakest(own, knowledge_tokens=int(size)) for own, size in rows], np.float64)

    def supports(self, knowledge: Ragged, response: Ragged) -> list[Tensor]:
        """Computes each response token's support [tokens], row by row; equal texts are read once."""
        known, known_of = _distinct(knowledge)
        said, said_of = _distinct(response)
        found: dict[tuple[int, int], Tensor] = {}
        for pairs in _blocks(sorted(set(zip(known_of, said_of, strict=True))), said):
            found |= self._block(pairs, known, said)
        return [found[pair] for pair in zip(known_of, said_of, strict=True)]

    def best(self, sources: Sequence[Ragged], response: Ragged) -> list[Tensor]:
        """Computes each response token's support by the source that supports it best [tokens], row by row."""
        pairs = self.supports(stack_rows(sources), stack_rows([response] * len(sources)))
        return [torch.stack(pairs[row :: len(response)]).amax(0) for row in range(len(response))]

    def _block(
        self, pairs: Sequence[tuple[int, int]], known: Sequence[NDArray[np.int32]], said: Sequence[NDArray[np.int32]]
    ) -> dict[tuple[int, int], Tensor]:
        """Computes the supports of some pairs of texts; states of knowledge are held for a batch alone."""
        spoken = {one: said[one] for _, one in pairs}
        parts: dict[int, dict[int, Tensor]] = defaultdict(dict)  # of each response its windows' states
        for text, start, states in self._states(spoken):
            parts[text][start] = states
        whole = {text: torch.cat([own[start] for start in sorted(own)]) for text, own in parts.items()}
        support = {pair: torch.full((len(said[pair[1]]),), -1.0, device=self.model.device) for pair in pairs}
        responses_of = defaultdict(list)
        for text, one in pairs:
            if one in whole:
                responses_of[text].append(one)
        for text, _, window in self._states({text: known[text] for text in responses_of}):
            for one in responses_of[text]:
                support[text, one] = torch.maximum(support[text, one], token_support(whole[one], window))
        return {
            pair: own.cpu() if len(known[pair[0]]) else torch.full(own.shape, NOTHING_KNOWN)
            for pair, own in support.items()
        }

    @torch.inference_mode()
    def _states(self, texts: Mapping[int, NDArray[np.int32]]) -> Iterator[tuple[int, int, Tensor]]:
        """Reads texts window by window: of each its text, its first token, its states [tokens, hidden]."""
        windows = [(text, start) for text, ids in texts.items() for start in range(0, len(ids), self.window)]
        shown = [texts[text][start : start + self.window] for text, start in windows]
        if not windows:
            return
        special = len(self.prefix) + len(self.suffix)
        lengths = np.array([special + len(ids) for ids in shown], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None):
            width = int(lengths[batch].max())
            ids = torch.full((len(batch), width), self.pad)
            mask = torch.zeros((len(batch), width), dtype=torch.long)
            for row, number in enumerate(batch):
                sequence = [*self.prefix, *shown[number].tolist(), *self.suffix]
                ids[row, : len(sequence)], mask[row, : len(sequence)] = torch.tensor(sequence), 1
            inputs = {"input_ids": ids.to(self.model.device)}
            if not bool(mask.all()):  # where nothing is masked, attention takes its faster way
                inputs["attention_mask"] = mask.to(self.model.device)
            states = self._of_layer(inputs).float()  # [windows, tokens, hidden]
            begin = len(self.prefix)
            for row, number in enumerate(batch):
                yield *windows[number], states[row, begin : begin + len(shown[number])]

    def _of_layer(self, inputs: Mapping[str, Tensor]) -> Any:
        if self.layer == LAST:
            return self.model(**inputs).last_hidden_state
        return self.model(**inputs, output_hidden_states=True).hidden_states[self.layer]


def _distinct(texts: Ragged) -> tuple[list[NDArray[np.int32]], list[int]]:
    """Finds the distinct texts, and which of them each row has."""
    number: dict[bytes, int] = {}
    rows = [number.setdefault(texts.row(row).tobytes(), len(number)) for row in range(len(texts))]
    return [np.frombuffer(text, texts.values.dtype) for text in number], rows


def _blocks(pairs: Sequence[tuple[int, int]], said: Sequence[NDArray[np.int32]]) -> Iterator[list[tuple[int, int]]]:
    """Cuts pairs into blocks whose responses have about `BLOCK_TOKENS` tokens together, one pair at least."""
    block: list[tuple[int, int]] = []
    size = 0
    for pair in pairs:
        if block and size + len(said[pair[1]]) > BLOCK_TOKENS:
            yield block
            block, size = [], 0
        block.append(pair)
        size += len(said[pair[1]])
    if block:
        yield block
