"""Beam search by transformers' own `generate`, over prompts of like lengths."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig

from inference.decoding import Completion, Decoding, Prompt

if TYPE_CHECKING:
    from inference.transformers_engine import TransformersEngine


def search_beams(engine: "TransformersEngine", prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
    """The best beams of each prompt, likeliest first."""
    size = max(1, engine.batch_size // decoding.num_beams)
    settings = GenerationConfig(
        num_beams=decoding.num_beams,
        do_sample=False,
        max_new_tokens=decoding.max_new_tokens,
        min_new_tokens=decoding.min_new_tokens or None,
        repetition_penalty=decoding.repetition_penalty,
        num_return_sequences=decoding.num_samples,
        eos_token_id=engine.eos_id,
        pad_token_id=engine.pad_id,
        decoder_start_token_id=engine.decoder_prefix[0] if engine.is_seq2seq else None,
    )
    with _no_other_settings(engine.model):
        for begin in range(0, len(prompts), size):
            yield from _search(engine, prompts[begin : begin + size], settings, decoding.num_samples)


def _search(
    engine: "TransformersEngine", prompts: Sequence[Prompt], settings: GenerationConfig, num_samples: int
) -> Iterator[Completion]:
    inputs = _inputs(engine, prompts)
    skip = len(engine.decoder_prefix) if engine.is_seq2seq else inputs["input_ids"].shape[1]
    found = engine.model.generate(**inputs, generation_config=settings)[:, skip:].tolist()
    owners = [prompt for prompt in prompts for _ in range(num_samples)]
    texts = [_cut(ids, engine.eos_id) for ids in found]
    logprobs = _logprobs(engine, owners, texts)
    for row, (prompt, ids, logprob) in enumerate(zip(owners, texts, logprobs, strict=True)):
        finished = bool(ids) and ids[-1] == engine.eos_id
        yield Completion(prompt.id, row % num_samples, tuple(ids[:-1] if finished else ids), logprob, finished)


def _inputs(engine: "TransformersEngine", prompts: Sequence[Prompt]) -> dict[str, Tensor]:
    """Padded on the side where nothing is written behind it."""
    width = max(len(prompt.ids) for prompt in prompts)
    ids = np.full((len(prompts), width), engine.pad_id, np.int64)
    mask = np.zeros((len(prompts), width), np.int64)
    for row, prompt in enumerate(prompts):
        place = slice(0, len(prompt.ids)) if engine.is_seq2seq else slice(width - len(prompt.ids), width)
        ids[row, place], mask[row, place] = prompt.ids, 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    if engine.is_seq2seq:
        inputs["decoder_input_ids"] = np.tile(np.array(engine.decoder_prefix), (len(prompts), 1))
    return {name: torch.from_numpy(array).to(engine.model.device) for name, array in inputs.items()}


def _cut(ids: list[int], eos_id: int) -> list[int]:
    """Up to the end token; what generate pads behind it goes."""
    return ids[: ids.index(eos_id) + 1] if eos_id in ids else ids


def _logprobs(engine: "TransformersEngine", prompts: Sequence[Prompt], texts: Sequence[list[int]]) -> list[float]:
    """Of texts, the end token included, under the model's own distribution."""
    inputs = _inputs(engine, prompts)
    width = max(len(ids) for ids in texts)
    labels = torch.full((len(texts), width), engine.pad_id)
    real = torch.zeros(len(texts), width)
    for row, ids in enumerate(texts):
        labels[row, : len(ids)] = torch.tensor(ids)
        real[row, : len(ids)] = 1
    labels, real = labels.to(engine.model.device), real.to(engine.model.device)
    name = "decoder_input_ids" if engine.is_seq2seq else "input_ids"
    first = inputs[name].shape[1] - 1
    inputs[name] = torch.cat([inputs[name], labels[:, :-1]], 1)
    if not engine.is_seq2seq:
        inputs["attention_mask"] = torch.cat([inputs["attention_mask"], real[:, :-1].long()], 1)
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp_min(0)
    logits = engine.model(**inputs).logits[:, first:].float()
    each = logits.log_softmax(-1).gather(2, labels[:, :, None])[:, :, 0]
    return (each * real).sum(1).tolist()


@contextmanager
def _no_other_settings(model: Any) -> Iterator[None]:
    """Hides the settings that came with the weights: what is not set explicitly would be taken from there."""
    before = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = before
