"""python -m tests.faults --tries 20000: damages every kind of input, and prints what survived; the table is Markdown.

python -m tests.faults --only "sidecar" --seed 0 --number 17    repeats one try of one campaign
"""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.campaign import Campaign, Outcome, campaigns, run_campaign


def main() -> int:
    """Runs the campaigns; the exit code is 1 where a try failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--tries", type=int, default=20_000, help="over all campaigns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="campaigns whose name contains this")
    parser.add_argument("--number", type=int, help="a single try")
    options = parser.parse_args()
    logging.getLogger("faithkit").addHandler(logging.NullHandler())  # what is said of damage would fill the screen
    chosen = [campaign for campaign in campaigns() if options.only in campaign.name]
    shares = sum(campaign.share for campaign in chosen)
    results: list[tuple[Campaign, Outcome, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for place, campaign in enumerate(chosen):
            tries = max(1, round(options.tries * campaign.share / shares))
            numbers = range(tries) if options.number is None else [options.number]
            start = time.process_time()
            outcome = run_campaign(campaign, Path(folder) / f"{place}", seed=options.seed, numbers=numbers)
            results.append((campaign, outcome, time.process_time() - start))
            print(f"{campaign.name}: {len(numbers):,} tries, {len(outcome.failures)} failed", file=sys.stderr)
    for _, outcome, _ in results:
        for failure in outcome.failures[:5]:
            print(failure[:2000], file=sys.stderr)
    print(table(results))
    return int(any(outcome.failures for _, outcome, _ in results))


def table(results: list[tuple[Campaign, Outcome, float]]) -> str:
    """A row for each campaign, and their sum."""
    lines = [
        "| what is damaged | tried | used | refused | failed | CPU-seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows = [(campaign.name, o.used, o.refused, len(o.failures), seconds) for campaign, o, seconds in results]
    rows.append(("all", *(sum(row[column] for row in rows) for column in (1, 2, 3, 4))))  # type: ignore[misc]
    for name, used, refused, failed, seconds in rows:
        tried = used + refused + failed
        lines.append(f"| {name} | {tried:,} | {used:,} | {refused:,} | {failed:,} | {seconds:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
