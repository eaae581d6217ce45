"""BERTScore: tokens of response and knowledge matched by their hidden states (Zhang et al. 2020, section 3).

precision = mean over response tokens of max over knowledge tokens of the cosine of their states; recall the other way
round; F1 of both. Use it where paraphrases should count as support. It hardly sees a swapped number or a negation, and
its values compare only under one encoder and layer.

Values equal the package bert-score's, without idf weights; `RescaledBertScore` rescales them. Distinct texts are
encoded once, in batches of like lengths. Where the package differs with the batch (padding counts there as a similarity
of 0) or fails (an empty text), ours does neither: a text without tokens has 0 of everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import ModuleList
from torch.nn.utils.rnn import pad_sequence

from faithkit.errors import UserError
from faithkit.fast import plan_batches
from faithkit.statistics.spread import Values
from faithkit.weights.load import load_pretrained, longest_input

PAIRS_AT_ONCE = 2048  # pairs of texts with hidden states in memory at once
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 2048, 32_768
# bert-score's F1 of unrelated English sentences, by encoder and layer (a test compares it with that package's file).
BASELINES = {("roberta-large", 17): 0.83122575}


class BertScore:
    """An encoder and its tokenizer, ready to score.

    Args:
        max_length: Tokens that are read of a text; `num_cut` counts the texts that were longer.
        prefix: What every text begins with; with a space RoBERTa's tokenizer splits the first word like any other.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, max_length: int, batch_tokens: int | None = None, prefix: str = ""
    ):
        self.prefix = prefix
        self.model, self.tokenizer, self.max_length = model.eval(), tokenizer, max_length
        self.device = next(model.parameters()).device
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS)
        self.num_cut = 0

    @classmethod
    def load(cls, weights: str, *, num_layers: int | None = None, device: str | None = None) -> "BertScore":
        """Loads an encoder by folder, local name or hub name.

        Args:
            num_layers: Layers up to the one that is compared; None takes all.
        """
        model, tokenizer, _ = load_pretrained("AutoModel", weights, device=device)
        longest = longest_input(model, tokenizer)
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        if num_layers is not None:
            total = model.config.num_hidden_layers
            if not 1 <= num_layers <= total:
                hint = f"use 1 to {total}: this encoder has {total}"
                raise UserError(f"bert_score num_layers is {num_layers}", hint=hint)
            for module in list(model.modules()):
                for name, child in list(module.named_children()):  # what follows the last layer (a norm) stays
                    if isinstance(child, ModuleList) and len(child) == total:
                        setattr(module, name, child[:num_layers])
        return cls(model, tokenizer, max_length=longest)

    @torch.inference_mode()
    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> dict[str, Values]:
        """`bertscore_precision`, `bertscore_recall` and `bertscore_f1` of each pair [N]."""
        precision, recall = found = np.zeros((2, len(responses)))
        for first in range(0, len(responses), PAIRS_AT_ONCE):
            texts = responses[first : first + PAIRS_AT_ONCE], knowledge[first : first + PAIRS_AT_ONCE]
            encoded = self._encode(list(dict.fromkeys([*texts[0], *texts[1]])))
            pairs = [(encoded[response], encoded[passage]) for response, passage in zip(*texts, strict=True)]
            counted = [row for row, (one, other) in enumerate(pairs) if one.counts.any() and other.counts.any()]
            counted.sort(key=lambda row: len(pairs[row][0].units) * len(pairs[row][1].units))
            for begin in range(0, len(counted), 64):
                rows = counted[begin : begin + 64]
                matched = greedy_match([pairs[row][0] for row in rows], [pairs[row][1] for row in rows])
                found[:, [first + row for row in rows]] = torch.stack(matched).cpu().numpy()
        total = precision + recall
        f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total != 0)
        return {"bertscore_precision": precision, "bertscore_recall": recall, "bertscore_f1": f1}

    def _encode(self, texts: list[str]) -> dict[str, "Encoded"]:
        stripped = [text.strip() for text in texts]
        begun = [self.prefix + text for text in stripped]
        rows = self.tokenizer(begun, truncation=True, max_length=self.max_length)["input_ids"]
        lengths = np.array([len(row) for row in rows], np.int32)
        self.num_cut += int((lengths >= self.max_length).sum())
        special = torch.tensor([i for i in (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id) if i is not None])
        encoded: dict[str, Encoded] = {}
        for batch in plan_batches(np.maximum(1, lengths), None, self.batch_tokens, None):
            ids = [torch.tensor(rows[i], dtype=torch.int64) for i in batch]
            padded = pad_sequence(ids, batch_first=True, padding_value=self.tokenizer.pad_token_id)
            mask = (torch.arange(padded.shape[1]) < torch.from_numpy(lengths[batch])[:, None]).long()
            hidden = self.model(padded.to(self.device), attention_mask=mask.to(self.device)).last_hidden_state
            units = hidden / hidden.norm(dim=-1, keepdim=True)
            for place, i in enumerate(batch):
                counts = ~torch.isin(ids[place], special) & bool(stripped[i])
                encoded[texts[i]] = Encoded(units[place, : lengths[i]], counts.to(self.device))
        return encoded


@dataclass(frozen=True, slots=True)
class RescaledBertScore:
    """BERTScore and the F1 of unrelated sentences, which becomes 0."""

    scorer: BertScore
    baseline: float

    @classmethod
    def of(cls, scorer: BertScore, baseline: float) -> "RescaledBertScore":
        """Takes the model of another scorer, and puts a space before RoBERTa's texts, as older bert-scores did."""
        options: dict[str, Any] = {"max_length": scorer.max_length, "batch_tokens": scorer.batch_tokens}
        return cls(BertScore(scorer.model, scorer.tokenizer, prefix=" ", **options), baseline)

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> Values:
        """Rescaled F1 of each pair [N]; below 0 where they are less alike than unrelated sentences."""
        found = self.scorer.score(responses, knowledge)
        return (found["bertscore_f1"] - self.baseline) / (1 - self.baseline)


def load_with_baseline(
    encoder: str, num_layers: int | None, baseline: float | None = None
) -> tuple[BertScore, float | None]:
    """Loads an encoder, and finds its baseline: the given one, else the published one, if there is one.

    An encoder, a folder or hub name, is known by the last part of its name.
    """
    if baseline is None:
        baseline = BASELINES.get((PurePath(encoder).name, num_layers or 0))
    return BertScore.load(encoder, num_layers=num_layers), baseline


class Encoded(NamedTuple):
    """Holds a text's tokens as vectors of length 1 [tokens, hidden], and which of them count [tokens].

    The special tokens at both ends may be matched, but do not count.
    """

    units: Tensor
    counts: Tensor


def greedy_match(responses: Sequence[Encoded], passages: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
    """Computes precision and recall [N]: the mean best similarity of each side's tokens to the other's."""
    first, second = (pad_sequence([one.units for one in side], batch_first=True) for side in (responses, passages))
    similarity = torch.bmm(first, second.transpose(1, 2))
    inside = []
    for side, padded in ((responses, first), (passages, second)):
        lengths = torch.tensor([len(one.units) for one in side], device=padded.device)
        inside.append(torch.arange(padded.shape[1], device=padded.device) < lengths[:, None])
    similarity.masked_fill_(~(inside[0][:, :, None] & inside[1][:, None, :]), -torch.inf)
    return _mean(similarity.amax(2), responses), _mean(similarity.amax(1), passages)


def _mean(best: Tensor, side: Sequence[Encoded]) -> Tensor:
    counts = pad_sequence([one.counts for one in side], batch_first=True)
    return torch.where(counts, best, 0.0).sum(1) / counts.sum(1)
