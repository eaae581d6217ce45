"""Shows the negatives of a dataset: counts by kind, and some of them in full.

python -m data_modules.negatives wow --path DIR --split validation --show 5
"""

import argparse
import json
import sys
from collections.abc import Sequence

from data_modules.build import build_source
from data_modules.data_options import KINDS
from data_modules.negatives.make import WEIGHTS, cached_negatives
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the command line; returns the exit code."""
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m data_modules.negatives", description=summary)
    parser.add_argument("dataset", help="faithdial, wow, cmu_dog, topical_chat, ...")
    parser.add_argument("--path", default=EMBEDDED, help="its files; without it the embedded corpus in its layout")
    parser.add_argument("--split", help="default: test, or the only one")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--num", type=int, default=4, help="the most negatives of an example")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default=WEIGHTS, help="a spaCy model, for entity swaps")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="examples to print")
    options = parser.parse_args(arguments)
    try:
        source = build_source(options.dataset, options.path)
        examples = list(read_examples(source, options.split, ReadReport()))
        settings = {name: getattr(options, name) for name in ("kinds", "num", "seed", "weights")}
        made = cached_negatives(examples, **settings)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    step = max(1, len(examples) // max(1, options.show))  # evenly over the split
    for place in range(0, len(examples), step)[: options.show]:
        example = examples[place]
        print(f"{example.id}\n  knowledge: {example.knowledge}\n  response: {example.response}")
        for kind, text in zip(made.kinds[place], made.texts[place], strict=True):
            print(f"  {kind}: {text}")
    print(json.dumps({"examples": len(examples), **made.counts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
