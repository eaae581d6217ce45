"""Tells what became of self-dialogues: how many there are of each domain, how long, and why some ended early."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.text import Text

from construction.chain.chain_rows import HOLE, Row, is_hole
from construction.diahalu import VERDICT
from faithkit.pages.tables import escape_terminal, new_number_table, print_tables


def tell_talks(rows: Iterable[Row], written: int, rounds: int) -> dict[str, Any]:
    """Prints the counts, and gives them for the manifest."""
    kinds: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    words: Counter[str] = Counter()
    for row in rows:
        if is_hole(row):
            kinds[f"left out: {row[HOLE]['why']}"] += 1
            continue
        kinds[f"domain {row['domain']}"] += 1
        kinds[f"model {row['model']}"] += 1
        sizes[len(row["turns"]) // 2] += 1
        for place, text in enumerate(row["turns"]):
            words["AB"[place % 2]] += len(text.split())
        if "ended" in row:
            kinds[f"ended early: {row['ended']['why']}"] += 1
        for name, field in {"turns cut at a further one": "cut", "turns in which B declines": "refused"}.items():
            kinds[name] += len(row.get(field, ()))
        kinds["dialogues edited by people"] += "edited" in row
        if VERDICT in row:
            verdict = row[VERDICT]
            kinds[f"{verdict['label']}, as {verdict['by']} says"] += 1
            kinds["verdicts weighed, not written"] += "weighed" in verdict
            kinds.update([f"first hallucination: {verdict['type']}"] if "type" in verdict else [])
    turns = max(1, sum(size * number for size, number in sizes.items()))
    result = {
        "dialogues": written,
        "of all rounds": sizes[rounds],
        "rounds, mean": round(turns / max(1, written), 2),
        "words of a turn of A, mean": round(words["A"] / turns, 1),
        "words of a turn of B, mean": round(words["B"] / turns, 1),
        **{name: number for name, number in sorted(kinds.items()) if number},
    }
    table = new_number_table("self-dialogues", "", ["number"], show_edge=True)
    for name, value in result.items():
        table.add_row(Text(escape_terminal(name)), f"{value:,}")
    print_tables(table)
    return result
