"""What plain transformers does, for comparison: the loss of a padded batch, and `generate` in batches."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig

from faithkit.inference.decoding import Decoding, Prompt
from faithkit.training.language_model import INPUTS

IGNORED = -100  # labels that transformers leaves out of its loss
Texts = dict[str, tuple[int, ...]]  # token ids by the prompt's id


def padded_loss(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Computes the loss as transformers does, from the logits of every token."""
    inputs = {name: batch[name] for name in INPUTS if name in batch and name != "position_ids"}
    logits = model(**inputs, use_cache=False).logits.flatten(0, 1)
    labels = torch.full((len(logits),), IGNORED).index_copy(0, batch["target_at"], batch["target"].long())
    return cross_entropy(logits.float(), labels, ignore_index=IGNORED)


def generate(
    model: Any, tokenizer: Any, decoding: Decoding, start_id: int | None, batch_size: int, prompts: Sequence[Prompt]
) -> Texts:
    """Runs transformers' `generate` in batches of the given order, padded at the side that the model needs."""
    seq2seq, eos_id = model.config.is_encoder_decoder, tokenizer.eos_token_id
    special = {"eos_token_id": eos_id, "pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": start_id}
    limits = {"max_new_tokens": decoding.max_new_tokens, "min_new_tokens": decoding.min_new_tokens or None}
    settings = GenerationConfig(**limits, **special, do_sample=False)
    tokenizer.padding_side = "right" if seq2seq else "left"
    texts: Texts = {}
    for begin in range(0, len(prompts), batch_size):
        part = prompts[begin : begin + batch_size]
        padded = tokenizer.pad({"input_ids": [prompt.ids.tolist() for prompt in part]}, return_tensors="pt")
        written = model.generate(**padded, generation_config=settings)[
            :, 1 if seq2seq else padded["input_ids"].shape[1] :
        ]
        for prompt, row in zip(part, written.tolist(), strict=True):
            texts[prompt.id] = tuple(row[: row.index(eos_id)] if eos_id in row else row)
    return texts
