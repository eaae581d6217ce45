"""Tiny random language models of every family, made in the test, and prompts of mixed lengths."""

from functools import cache
from typing import Any

import numpy as np
import torch

from faithkit.inference.text import Prompt
from faithkit.inference.transformers_engine import TransformersEngine
from tests.tiny import T5_SIZE

VOCABULARY, EOS, PAD, BEGIN = 60, 1, 0, 5
FAMILIES = ("llama", "sliding", "gpt2", "t5", "bart")
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}


@cache
def model_of(family: str) -> Any:
    """The model of a family; its weights are large, so that tokens are rarely near ties."""
    return make_model(family).eval()


def make_model(family: str) -> Any:
    """A new model of a family, in training mode."""
    import transformers as t

    torch.manual_seed(0)
    shared = {"vocab_size": VOCABULARY, "bos_token_id": 2, "eos_token_id": EOS, "pad_token_id": PAD}
    llama = {**shared, **SMALL, "intermediate_size": 64, "initializer_range": 0.4}
    if family == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**llama))
    if family == "sliding":
        return t.MistralForCausalLM(t.MistralConfig(**llama, sliding_window=5, head_dim=8))
    if family == "gpt2":
        return t.GPT2LMHeadModel(
            t.GPT2Config(**shared, n_embd=32, n_layer=2, n_head=2, n_positions=128, initializer_range=0.4)
        )
    if family == "t5":
        return t.T5ForConditionalGeneration(t.T5Config(**shared, **T5_SIZE, initializer_factor=2.0))
    if family == "mt5":  # T5 with gated feed-forward layers and unscaled logits
        return t.MT5ForConditionalGeneration(t.MT5Config(**shared, **T5_SIZE, initializer_factor=2.0))
    if family == "t5gemma":  # an encoder-decoder whose heads share keys
        side = {**shared, **SMALL, "head_dim": 8, "intermediate_size": 64}
        config = t.T5GemmaConfig(encoder=side, decoder={**side, "cross_attention_hidden_size": 48}, **shared)
        config.initializer_range = config.encoder.initializer_range = config.decoder.initializer_range = 0.3
        return t.T5GemmaForConditionalGeneration(config)
    sides = ("layers", "attention_heads", "ffn_dim")
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in zip(sides, (2, 2, 64), strict=True)}
    config = t.BartConfig(**shared, **sizes, d_model=32, max_position_embeddings=128, init_std=0.3)
    return t.BartForConditionalGeneration(config)


def engine_of(family: str, batch_size: int = 16, model: Any = None) -> TransformersEngine:
    model = model or model_of(family)
    prefix = (BEGIN,) if model.config.is_encoder_decoder else ()
    return TransformersEngine(model, eos_id=EOS, pad_id=PAD, decoder_prefix=prefix, batch_size=batch_size)


def prompts(count: int = 14, longest: int = 20) -> list[Prompt]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, longest, count)
    return [Prompt(f"p{i}", rng.integers(3, VOCABULARY, n).astype(np.int32)) for i, n in enumerate(lengths)]


def by_huggingface(family: str, prompt: Prompt, **options: Any) -> tuple[tuple[int, ...], bool]:
    """Runs transformers' own generate on one prompt alone; gives the tokens and whether they came to an end."""
    return beams_by_huggingface(family, prompt, **options)[0]


def beams_by_huggingface(family: str, prompt: Prompt, **options: Any) -> list[tuple[tuple[int, ...], bool]]:
    """Does the same for all the sequences that generate returns."""
    from transformers import GenerationConfig

    model = model_of(family)
    seq2seq = model.config.is_encoder_decoder
    model.generation_config = GenerationConfig()
    ids = torch.tensor(prompt.ids[None].astype(np.int64))
    begin = {"decoder_input_ids": torch.tensor([[BEGIN]])} if seq2seq else {}
    settings = GenerationConfig(
        do_sample=False,
        eos_token_id=EOS,
        pad_token_id=PAD,
        decoder_start_token_id=BEGIN if seq2seq else None,
        **options,
    )
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings, **begin).tolist()
    found = []
    for written in (one[1 if seq2seq else len(prompt.ids) :] for one in whole):
        finished = EOS in written
        found.append((tuple(written[: written.index(EOS)] if finished else written), finished))
    return found


def logprob_by_hand(family: str, prompt: Prompt, ids: tuple[int, ...], finished: bool) -> float:
    """Computes a text's log-probability by one forward pass over the whole of it."""
    model = model_of(family)
    targets = torch.tensor([*ids, EOS] if finished else list(ids))
    asked = torch.tensor(prompt.ids[None].astype(np.int64))
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            logits = model(input_ids=asked, decoder_input_ids=torch.tensor([[BEGIN, *targets[:-1]]])).logits[0]
        else:
            logits = model(input_ids=torch.cat([asked, targets[None, :-1]], 1)).logits[0, asked.shape[1] - 1 :]
    return float(logits.log_softmax(-1).gather(1, targets[:, None]).sum())
