"""A report of a corpus of marked responses: tables on the terminal, `corpus.json` and plots in a folder.

`report_corpus(examples, "analysis")` is all that is needed; plots need matplotlib: pip install '.[plots]'.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from faithkit.evaluation.corpus_plots import write_plots
from faithkit.evaluation.corpus_stats import ALL, Bucket, CorpusStats, corpus_stats, in_order
from faithkit.evaluation.plotting import require_plots
from faithkit.evaluation.published.corpus import Row, basic_rows, bucket_rows, citation, model_rows, part_note
from faithkit.evaluation.tables import figures_table, harmless, show
from faithkit.files.atomic import write_json
from faithkit.records import Example

PAPER = "  paper"


def report_corpus(
    examples: Iterable[Example], folder: str | Path, *, title: str = "", plots: bool = True, published: bool = False
) -> CorpusStats:
    """Prints the tables of a corpus and writes its numbers and plots to `folder`.

    Args:
        published: The corpus is RAGTruth, or a part: the paper's figures stand beside.

    Returns:
        The numbers, as `corpus.json` has them.

    Raises:
        UserError: No example has marked spans; the folder cannot be written; plots are wanted without matplotlib.
    """
    if plots:
        require_plots()
    stats = corpus_stats(examples)
    write_json(Path(folder) / "corpus.json", stats.to_dict())
    if plots:
        write_plots(stats, folder)
    show(*corpus_tables(stats, title=title, published=published))
    return stats


def corpus_tables(stats: CorpusStats, *, title: str = "", published: bool = False) -> list[Table]:
    """Makes the tables of a corpus: one of generators only where they are told."""
    prefix = f"{title}: " if title else ""
    tables = [_basic(stats, f"{prefix}responses and hallucination", published)]
    if stats.models:
        tables.append(_models(stats, f"{prefix}by generator", published))
    tables.append(_types(stats, f"{prefix}types of spans"))
    for by, found in (("context", stats.context_buckets), ("response", stats.response_buckets)):
        paper = bucket_rows(by) if published else {}
        tables.append(_buckets(found, paper, f"{prefix}by length of the {by}"))
    return tables


def _basic(stats: CorpusStats, title: str, published: bool) -> Table:
    names = ("sources", "responses", "context", "response", "hallucinated", "spans")
    table = figures_table(title, "task", names, show_edge=True)
    for name, line in stats.basic.items():
        cells = (
            f"{line.num_sources:,}",
            f"{line.counts.num_responses:,}",
            f"{line.context.mean:,.0f} / {line.context.max:,}",
            f"{line.response.mean:,.0f} / {line.response.max:,}",
            f"{line.counts.num_hallucinated:,} ({line.counts.share:.1%})",
            f"{line.counts.num_spans:,}",
        )
        _add(table, name, *cells)
        if published and (row := basic_rows().get(name)):
            table.add_row(
                PAPER,
                f"{row['sources']:,}",
                f"{row['responses']:,}",
                f"{row['context_mean']:,} / {row['context_max']:,}",
                f"{row['response_mean']:,} / {row['response_max']:,}",
                f"{row['hallucinated']:,} ({row['hallucinated_percent']:.1f}%)",
                f"{row['spans']:,}",
            )
    lines = [_unmarked(stats) + "context and response: mean and maximum in words"]
    if published:
        whole = stats.basic.get(ALL) or next(iter(stats.basic.values()))
        lines += [f"paper: {citation()}", part_note(whole.counts.num_responses)]
    table.caption = Text("\n".join(filter(None, lines)))
    return table


def _models(stats: CorpusStats, title: str, published: bool) -> Table:
    heads = ("responses", "hallucinated", "spans", "density")
    table = figures_table(title, ["generator", "task"], heads, show_edge=True)
    for model, tasks in stats.models.items():
        for place, (task, counts) in enumerate(tasks.items()):
            _add(
                table,
                "" if place else model,
                task,
                f"{counts.num_responses:,}",
                f"{counts.num_hallucinated:,} ({counts.share:.1%})",
                f"{counts.num_spans:,}",
                f"{counts.density:.2f}",
            )
            if published and (row := model_rows().get((model.lower(), task))):
                density = "-" if row["density"] is None else f"{row['density']:.2f}"
                table.add_row("", PAPER, "-", f"{row['hallucinated']:,}", f"{row['spans']:,}", density)
        table.add_section()
    table.caption = Text("density: spans per hundred words")
    return table


def _types(stats: CorpusStats, title: str) -> Table:
    labels = in_order(label for counts in stats.types.values() for label in counts)
    table = figures_table(title, "task", [label.replace("_", " ") for label in labels], show_edge=True)
    for name, counts in stats.types.items():
        total = max(1, sum(counts.values()))
        shares = (f"{counts.get(label, 0):,} ({counts.get(label, 0) / total:.0%})" for label in labels)
        _add(table, name, *shares)
    return table


def _buckets(by_task: Mapping[str, list[Bucket]], paper: Mapping[str, Sequence[Row]], title: str) -> Table:
    table = figures_table(title, "task", ("words", "responses", "hallucinated", "spans each"), show_edge=True)
    for task, found in by_task.items():
        for place, bucket in enumerate(found):
            _add(
                table,
                "" if place else task,
                f"{'(' if place else '['}{bucket.low:,}, {bucket.high:,}]",
                f"{bucket.counts.num_responses:,}",
                f"{bucket.counts.share:.1%}",
                f"{bucket.counts.spans_each:.2f}",
            )
        for row in paper.get(task, ()):
            table.add_row(PAPER, f"({row['low']:,}, {row['high']:,}]", "-", "-", f"{row['spans_each']:.2f}")
        table.add_section()
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(harmless(cell), style="bold" if cells[0] == ALL else "") for cell in cells))


def _unmarked(stats: CorpusStats) -> str:
    return f"{stats.num_unmarked:,} examples without marked spans are left out; " if stats.num_unmarked else ""
