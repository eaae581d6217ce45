"""Compares our fast code with libraries that do the same: optimum, torchao, CTranslate2, continuous batching.

Each library runs in a process of an environment that has it (speed/peers/README.md), with one thread, from the same
texts or prompts; sides run in turns. A critic scores pairs; T5 and a causal model write.

python -m speed.library_speed --critic RUN --optimum PYTHON --libraries PYTHON
"""

import json
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from critic import Critic
from data_modules.embedded.corpus import generate as generate_examples
from faithkit.fast import place_model
from faithkit.files.model_folder import find_folder
from faithkit.inference.text import Prompt
from faithkit.inference.transformers_engine import TransformersEngine
from faithkit.weights.resolve import resolve
from generation.weights import load_checkpoint, load_weights
from speed.generate_speed import DECODING
from speed.measure import BenchmarkParser, alternate, rates, start_worker, table, write_results
from speed.samples import PAIRS, make_pairs

SCRIPT = str(Path(__file__).parent / "peers" / "library_worker.py")
PRECISIONS = {"fp32": "32-true", "bf16": "bf16", "int8": "int8"}
SCORERS = {"optimum, fp32": "optimum", "optimum, int8": "optimum_int8", "torchao, int8": "torchao_int8"}
WRITERS = {
    "CTranslate2, fp32": "ctranslate2",
    "CTranslate2, int8": "ctranslate2_int8",
    "continuous batching, fp32": "continuous",
    "continuous batching, bf16": "continuous_bf16",
}


def main() -> None:
    """Measures scoring, then writing of both models."""
    parser = BenchmarkParser(__doc__, timed=256, items=128)
    parser.add_argument("--critic", required=True, help="a run or hf/ folder")
    parser.add_argument("--optimum", required=True, help="the Python of the environment with optimum-onnx")
    parser.add_argument("--libraries", required=True, help="the Python of the environment with torchao and CTranslate2")
    options = parser.parse()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        compare_scoring(options, Path(folder))
        for name in DECODING:
            compare_writing(name, options, Path(folder))


def compare_scoring(options: Namespace, folder: Path) -> None:
    """Scores the same pairs by each side, in batches of similar length."""
    detectors = {name: Critic.load(options.critic, device="cpu", precision=p) for name, p in PRECISIONS.items()}
    examples = make_pairs(detectors["fp32"].encoder.tokenizer, options.timed)
    rows = write_rows(folder / "pairs.jsonl", [{"first": e.knowledge, "second": e.response} for e in examples])
    found: dict[str, np.ndarray] = {}
    with ExitStack() as stack:
        sides: dict[str, Callable[[], object]] = {}
        for name, how in SCORERS.items():
            python = options.optimum if how.startswith("optimum") else options.libraries
            command = (python, SCRIPT, "score", how, str(find_folder(options.critic)), rows)
            sides[name] = partial(
                ask_worker, stack.enter_context(start_worker(command, OMP_NUM_THREADS="1")), name, found
            )

        def score(name: str) -> None:
            found[name] = np.array([one.score for one in detectors[name].predict_examples(examples)])

        sides = {f"ours, {name}": partial(score, name) for name in detectors} | sides
        taken = alternate(sides, options.rounds, warm_up=True)
    moved = {name: np.abs(scores - found["fp32"]).max() for name, scores in found.items()}
    lines = [[*row, f"{moved[row[0].removeprefix('ours, ')]:.4f}"] for row in rates(taken, len(examples))]
    header = ["side", "pairs a CPU-second", "against ours, fp32", "largest change of P(hallucinated)"]
    about = f"{len(examples)} pairs; {PAIRS}. Libraries get padded batches of 32 of similar length."
    write_results("Libraries: scoring", about, table(header, lines), quick=options.quick)


def compare_writing(name: str, options: Namespace, folder: Path) -> None:
    """Writes greedily from the same prompts by each side."""
    loaded = load_checkpoint(resolve(name))
    examples, decoding = list(generate_examples("test", options.items)), DECODING[name]
    contexts = loaded.encoder.contexts(examples, Counter())
    tokenizer = loaded.encoder.tokenizer
    # CTranslate2 reads the tokens of the weights' folder, so markers of turns that we add are left out for all sides.
    known = set(AutoTokenizer.from_pretrained(resolve(name)).get_vocab().values())
    ids = [[i for i in contexts.row(n).tolist() if i in known] for n in range(len(examples))]
    prompts = [Prompt(e.id, np.array(row, np.int32)) for e, row in zip(examples, ids, strict=True)]
    special = {"eos_id": tokenizer.eos_token_id, "pad_id": tokenizer.pad_token_id}
    engines = {}
    for label, precision in (("ours, fp32", "32-true"), ("ours, bf16", "bf16")):
        model = place_model(load_weights(loaded), "cpu", precision)[0]
        prefix = (tokenizer.pad_token_id,) if model.config.is_encoder_decoder else ()  # as T5 begins by itself
        engines[label] = TransformersEngine(model, **special, decoder_prefix=prefix)
    seq2seq = bool(model.config.is_encoder_decoder)
    settings = {"max_new_tokens": decoding.max_new_tokens, "min_new_tokens": decoding.min_new_tokens}
    lines = [special | settings | {"seq2seq": seq2seq}, *({"ids": prompt.ids.tolist()} for prompt in prompts)]
    rows = write_rows(folder / f"{name}.jsonl", lines)
    texts: dict[str, list[list[int]]] = {}

    def write(side: str) -> None:
        done = {one.id: list(one.ids) for one in engines[side].generate(prompts, decoding)}
        texts[side] = [done[prompt.id] for prompt in prompts]

    with ExitStack() as stack:
        sides: dict[str, Callable[[], object]] = {side: partial(write, side) for side in engines}
        for side, how in WRITERS.items():
            if not (seq2seq and how.startswith("continuous")):  # it has no encoder
                command = (options.libraries, SCRIPT, "write", how, resolve(name), rows)
                sides[side] = partial(
                    ask_worker, stack.enter_context(start_worker(command, OMP_NUM_THREADS="1")), side, texts
                )
        taken = alternate(sides, options.rounds, warm_up=True)
    end = special["eos_id"]
    texts = {side: [[i for i in text if i != end] for text in found] for side, found in texts.items()}
    sizes = {side: sum(map(len, found)) for side, found in texts.items()}
    first = texts["ours, fp32"]
    same = {side: sum(map(list.__eq__, found, first)) for side, found in texts.items()}
    result = [[*row, f"{same[row[0]]} of {len(prompts)}"] for row in rates(taken, sizes)]
    header = ["side", "tokens written a CPU-second", "against ours, fp32", "texts equal to it"]
    about = f"{len(prompts)} dialogue turns of the embedded corpus, greedy, at most {decoding.max_new_tokens} tokens."
    write_results(f"Libraries: writing, {name}", about, table(header, result), quick=options.quick)


def write_rows(path: Path, rows: Sequence[Any]) -> str:
    """Writes the rows that a worker reads."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def ask_worker(ask: Callable[..., Any], name: str, found: dict[str, Any]) -> float:
    """Lets a worker run once; keeps what it found and returns its CPU-seconds."""
    answer = ask("run")
    found[name] = np.array(answer["found"]) if isinstance(answer["found"][0], float) else answer["found"]
    return float(answer["seconds"])


if __name__ == "__main__":
    main()
