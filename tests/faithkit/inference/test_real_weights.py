"""The real local weights write the same in any batch, and what transformers' own generate writes."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from faithkit.inference.decoding import Decoding, Prompt
from faithkit.inference.transformers_engine import TransformersEngine


@pytest.fixture
def own_home() -> None:
    """Real weights come from the user's cache, where they may lie already."""


def load(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

    from faithkit.weights.resolve import resolve

    folder = resolve(name)
    kind: Any = AutoModelForSeq2SeqLM if "t5" in name else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config = GenerationConfig()
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.mark.network
@pytest.mark.parametrize("name", ["flan-t5-small", "smollm2-135m"])
def test_greedy_in_any_batch_is_greedy_alone(name: str) -> None:
    from transformers import GenerationConfig

    from data_modules.embedded.corpus import generate

    model, tokenizer = load(name)
    seq2seq = model.config.is_encoder_decoder
    prompts = [
        Prompt(e.id, np.array(tokenizer(f"{e.knowledge} {e.response}")["input_ids"], np.int32))
        for e in generate("test", 24)
    ]
    start = model.config.decoder_start_token_id if seq2seq else None
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    settings = GenerationConfig(max_new_tokens=12, do_sample=False, decoder_start_token_id=start, **ids)
    expected = {}
    for prompt in prompts:
        asked = torch.from_numpy(prompt.ids[None].astype(np.int64))
        written = model.generate(asked, attention_mask=torch.ones_like(asked), generation_config=settings)[0].tolist()
        written = written[1 if seq2seq else len(prompt.ids) :]
        end = written.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in written else len(written)
        expected[prompt.id] = tuple(written[:end])
    shuffled = list(prompts)
    random.Random(0).shuffle(shuffled)
    for batch_size, asked_for in ((1, prompts), (16, prompts), (16, shuffled)):
        engine = TransformersEngine(
            model,
            eos_id=tokenizer.eos_token_id,
            pad_id=tokenizer.pad_token_id,
            decoder_prefix=(start,) if seq2seq else (),
            batch_size=batch_size,
        )
        assert {c.id: c.ids for c in engine.generate(asked_for, Decoding(max_new_tokens=12))} == expected
