"""Statistics of a corpus with labels: how much is hallucinated in each part, and of which types.

The numbers are those of DiaHalu's Table 2 and Figure 5 and of HalluDial's section 2.4, for any corpus with labels.

>>> from faithkit.records import Example
>>> def row(id, label, domain):
...     return Example(
...         id=id, source="diahalu", split="all", group=id, knowledge="", response="A1: Hi", label=label,
...         meta={"domain": domain},
...     )
>>> rows = [row("1", "hallucinated", "task"), row("2", "faithful", "task"), row("3", "faithful", "chit-chat")]
>>> stats = label_stats(rows)
>>> {part: (counts.examples, counts.hallucinated) for part, counts in stats.parts.items()}
{'chit-chat': (1, 0), 'task': (2, 1), 'all': (3, 1)}
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from faithkit.evaluation.published.judges import ALL, published_counts
from faithkit.evaluation.tables import figures_table, harmless
from faithkit.records import FAITHFUL, HALLUCINATED, Example

# The fields of `meta` that part a dataset's examples, the paper's first; and those that only hallucinated ones have.
PARTS = {"halludial": ("scenario",), "halueval": ("task",), "diahalu": ("domain", "model")}
TYPES = {"diahalu": "type"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCounts:
    """Counts of some examples; those without a label are left out."""

    examples: int
    hallucinated: int
    groups: int
    mean_words: float  # of a response

    @property
    def rate(self) -> float:
        return self.hallucinated / max(1, self.examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStats:
    """The numbers of a corpus.

    Args:
        parts: By scenario, task or domain; `all` comes last.
        types: By part, then type, the most frequent first.
        mean_rounds: Of a dialogue, where the examples tell it.
        num_unlabelled: Examples that were left out.
    """

    parts: dict[str, LabelCounts]
    types: dict[str, dict[str, int]]
    mean_rounds: float | None
    num_unlabelled: int


def label_stats(examples: Iterable[Example]) -> LabelStats:
    """Counts the labels of examples of one dataset, by the field of `PARTS`."""
    every = list(examples)
    labelled = [example for example in every if example.label in (FAITHFUL, HALLUCINATED)]
    field = next((PARTS[example.source][0] for example in labelled if example.source in PARTS), "")
    by_part: dict[str, list[Example]] = {}
    for example in labelled:
        if field in example.meta:
            by_part.setdefault(str(example.meta[field]), []).append(example)
    types = {
        part: Counter(name for one in rows for name in one.meta.get("types", ())) for part, rows in by_part.items()
    }
    rounds = [example.meta["rounds"] for example in labelled if "rounds" in example.meta]
    return LabelStats(
        parts={part: _count(by_part[part]) for part in sorted(by_part)} | {ALL: _count(labelled)},
        types={part: dict(types[part].most_common()) for part in sorted(types) if types[part]},
        mean_rounds=sum(rounds) / len(rounds) if rounds else None,
        num_unlabelled=len(every) - len(labelled),
    )


def divide(examples: Sequence[Example], fields: Mapping[str, Sequence[str]]) -> list[tuple[str, str, list[Example]]]:
    """Divides examples by each field of `meta`: field, value, examples; a second field of one value divides nothing.

    Args:
        fields: By dataset, as in `PARTS`.
    """
    found = []
    for field in dict.fromkeys(name for example in examples for name in fields.get(example.source, ())):
        by_value: dict[str, list[Example]] = {}
        for example in examples:
            if example.meta.get(field) is not None:
                by_value.setdefault(str(example.meta[field]), []).append(example)
        if len(by_value) > 1 or any(names[0] == field for names in fields.values()):
            found += [(field, value, rows) for value, rows in sorted(by_value.items())]
    return found


def _count(rows: Sequence[Example]) -> LabelCounts:
    return LabelCounts(
        examples=len(rows),
        hallucinated=sum(row.label == HALLUCINATED for row in rows),
        groups=len({row.group for row in rows}),
        mean_words=sum(len(row.response.split()) for row in rows) / max(1, len(rows)),
    )


def label_stats_tables(stats: LabelStats, *, title: str = "", dataset: str = "") -> list[Table]:
    """Shows the parts with the paper's figures under ours, and the types.

    Args:
        dataset: Whose published counts stand beside; empty for none.
    """
    heads = ("examples", "hallucinated", "groups", "words")
    table = figures_table(f"{title} labels".strip(), "part", heads, no_wrap=heads, show_edge=True)
    paper, citation = published_counts(dataset)
    for part, counts in stats.parts.items():
        share = f"{counts.hallucinated:,} ({counts.rate:.1%})"
        cells = (f"{counts.examples:,}", share, f"{counts.groups:,}", f"{counts.mean_words:.1f}")
        table.add_row(Text(harmless(part), style="bold" if part == ALL else ""), *cells)
        if part in paper:
            examples, hallucinated = paper[part]
            table.add_row("  paper", f"{examples:,}", f"{hallucinated:,} ({hallucinated / examples:.1%})", "-", "-")
    lines = [f"paper: {citation}"] if citation else []
    lines += [f"rounds of a dialogue: {stats.mean_rounds:.2f} in the mean"] if stats.mean_rounds is not None else []
    table.caption = Text("\n".join([*lines, f"{stats.num_unlabelled:,} examples have no label"]))
    return [table, *([_types(stats.types, title)] if stats.types else [])]


def _types(types: Mapping[str, Mapping[str, int]], title: str) -> Table:
    names = sorted({name for counts in types.values() for name in counts})
    table = figures_table(f"{title} types".strip(), "part", names, show_edge=True)
    for part, counts in types.items():
        total = sum(counts.values())
        cells = [f"{counts.get(name, 0):,} ({counts.get(name, 0) / total:.0%})" for name in names]
        table.add_row(Text(harmless(part)), *cells)
    return table
