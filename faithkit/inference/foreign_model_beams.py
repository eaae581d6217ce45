"""Beam search with a published model (a question generator, say) under the generation settings that came with it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from faithkit.inference.decoding import BEAM, Decoding, Prompt
from faithkit.inference.transformers_engine import TransformersEngine

# Generation settings that may be ignored: `Decoding` has its own, or they do not change what is written.
IGNORED = {
    "bos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "max_length",
    "max_new_tokens",
    "num_beams",
    "num_return_sequences",
    "pad_token_id",
    "transformers_version",
    "use_cache",
}
CPU_BATCH_SIZE = 160  # beams at a time: they share a prompt's keys, and every weight is read once for all of them
Write = Callable[[Sequence[Sequence[int]], int, int], list[list[list[int]]]]


def beam_writer(model: Any) -> Write | None:
    """Makes a function that writes all beams of each prompt, the likeliest first.

    It takes (rows of token ids, number of beams, most new tokens).

    Returns:
        None where the model's own settings ask for more than a plain beam search, or the model is no encoder-decoder
        whose rows can begin one by one: transformers' `generate` must then be used.
    """
    settings = model.generation_config
    given = {name for name, value in settings.to_diff_dict().items() if value is not None and value is not False}
    special = {name for name in given if not name.startswith("_")} - IGNORED
    tokens = settings.decoder_start_token_id, settings.eos_token_id, settings.pad_token_id
    if special or not all(type(token) is int for token in tokens) or not model.config.is_encoder_decoder:
        return None
    start, eos_id, pad_id = tokens
    batch_size = CPU_BATCH_SIZE if model.device.type == "cpu" else None
    engine = TransformersEngine(model, eos_id=eos_id, pad_id=pad_id, decoder_prefix=(start,), batch_size=batch_size)
    if not engine.refills:
        return None

    def write(rows: Sequence[Sequence[int]], num_beams: int, max_new_tokens: int) -> list[list[list[int]]]:
        decoding = Decoding(strategy=BEAM, num_beams=num_beams, num_samples=num_beams, max_new_tokens=max_new_tokens)
        prompts = [Prompt(str(number), np.array(row, np.int32)) for number, row in enumerate(rows)]
        found: list[list[list[int]]] = [[[] for _ in range(num_beams)] for _ in rows]
        for done in engine.generate(prompts, decoding):
            found[int(done.id)][done.sample] = list(done.ids)
        return found

    return write
