"""The tables of a corpus, with the papers' figures under ours where they count the same."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.published.figures import (
    Row,
    basic_rows,
    bucket_rows,
    count_rows,
    model_rows,
    part_note,
    published_counts,
    ragtruth_citation,
)
from faithkit_workflows.corpus import dialogue_tables
from faithkit_workflows.corpus.dialogue_tables import NONE, PAPER, add_row, framed
from faithkit_workflows.corpus.stats import Basic, Bucket, CorpusStats, Counts, in_order

RAGTRUTH = "ragtruth"


def corpus_tables(stats: CorpusStats, *, title: str = "", dataset: str = "", full: bool = False) -> list[Table]:
    """The tables that the corpus gives rise to: RAGTruth's own; of other corpora those that there is something for.

    Args:
        dataset: Whose published figures stand beside; empty for none.
        full: The tables of lengths, dialogues, facets and tags too.
    """
    prefix = f"{title}: " if title else ""
    tables = [_basic(stats, f"{prefix}responses and hallucination", dataset)]
    if full:
        tables.append(dialogue_tables.lengths(stats, f"{prefix}lengths"))
        if stats.has_dialogues:
            tables.append(dialogue_tables.dialogues(stats, f"{prefix}dialogues", dataset))
        tables += [dialogue_tables.facet(stats, name, f"{prefix}by {name.replace('_', ' ')}") for name in stats.facets]
    by_task = any(len(tasks) > 1 for tasks in stats.models.values())  # else by model says as much
    if stats.models and stats.counts.num_judged and (by_task or not full or dataset == RAGTRUTH):
        tables.append(_models(stats, f"{prefix}by generator", dataset == RAGTRUTH))
    if stats.types:
        what = "spans" if stats.has_spans else "hallucinated responses"
        tables.append(_types(stats, f"{prefix}types of {what}"))
    for by, found in (("context", stats.context_buckets), ("response", stats.response_buckets)):
        paper = bucket_rows(by) if dataset == RAGTRUTH else {}
        if found:
            tables.append(_buckets(found, paper, f"{prefix}by length of the {by}"))
    if full and stats.classes:
        tables += [
            dialogue_tables.classes(stats, f"{prefix}BEGIN's classes", dataset),
            dialogue_tables.acts(stats, f"{prefix}speech acts"),
        ]
    if full and stats.extraction:
        tables.append(dialogue_tables.extraction(stats, f"{prefix}copied from the knowledge"))
    return tables


def _basic(stats: CorpusStats, title: str, dataset: str) -> Table:
    names = ("sources", "responses", "context", "response", "hallucinated", "spans")
    table = framed(title, "part", names)
    for name, line in stats.basic.items():
        add_row(table, name, *_basic_cells(line))
        if dataset == RAGTRUTH and (row := basic_rows().get(name)):
            table.add_row(
                PAPER,
                f"{row['sources']:,}",
                f"{row['responses']:,}",
                f"{row['context_mean']:,} / {row['context_max']:,}",
                f"{row['response_mean']:,} / {row['response_max']:,}",
                f"{row['hallucinated']:,} ({row['hallucinated_percent']:.1f}%)",
                f"{row['spans']:,}",
            )
        elif row := count_rows(dataset).get(name):
            share = row["hallucinated"] / row["responses"]
            wrong = f"{row['hallucinated']:,} ({share:.1%})"
            table.add_row(PAPER, NONE, f"{row['responses']:,}", NONE, NONE, wrong, NONE)
    counts = stats.counts
    lines = []
    if 0 < counts.num_judged < counts.num_responses:
        lines.append(f"{counts.num_responses - counts.num_judged:,} responses have no label: shares are of the others")
    if 0 < counts.num_marked < counts.num_responses:
        lines.append(f"{stats.num_unmarked:,} responses have no marked spans")
    lines.append("context and response: mean and maximum in words")
    if dataset == RAGTRUTH:
        lines += [f"paper: {ragtruth_citation()}", part_note(counts.num_responses)]
    elif cited := published_counts(dataset)[1]:
        lines.append(f"paper: {cited}")
    table.caption = Text("\n".join(filter(None, lines)))
    return table


def _basic_cells(line: Basic) -> tuple[str, ...]:
    context = f"{line.context.mean:,.0f} / {line.context.max:,}" if line.context.num_texts else NONE
    counts = line.counts
    return (
        f"{line.num_sources:,}",
        f"{counts.num_responses:,}",
        context,
        f"{line.response.mean:,.0f} / {line.response.max:,}",
        _share(counts),
        f"{counts.num_spans:,}" if counts.num_marked else NONE,
    )


def _share(counts: Counts) -> str:
    return f"{counts.num_hallucinated:,} ({counts.share:.1%})" if counts.num_judged else NONE


def _models(stats: CorpusStats, title: str, published: bool) -> Table:
    table = framed(title, ("generator", "task"), ("responses", "hallucinated", "spans", "density"))
    for model, tasks in stats.models.items():
        for place, (task, counts) in enumerate(tasks.items()):
            add_row(
                table,
                "" if place else model,
                task,
                f"{counts.num_responses:,}",
                _share(counts),
                f"{counts.num_spans:,}" if counts.num_marked else NONE,
                f"{counts.density:.2f}" if counts.num_marked else NONE,
            )
            if published and (row := model_rows().get((model.lower(), task))):
                density = NONE if row["density"] is None else f"{row['density']:.2f}"
                table.add_row("", PAPER, NONE, f"{row['hallucinated']:,}", f"{row['spans']:,}", density)
        table.add_section()
    if stats.has_spans:
        table.caption = Text("density: spans per hundred words")
    return table


def _types(stats: CorpusStats, title: str) -> Table:
    labels = in_order(label for counts in stats.types.values() for label in counts)
    table = framed(title, "part", tuple(label.replace("_", " ") for label in labels))
    for name, counts in stats.types.items():
        total = max(1, sum(counts.values()))
        shares = (f"{counts.get(label, 0):,} ({counts.get(label, 0) / total:.0%})" for label in labels)
        add_row(table, name, *shares)
    return table


def _buckets(by_task: Mapping[str, list[Bucket]], paper: Mapping[str, Sequence[Row]], title: str) -> Table:
    marked = any(bucket.counts.num_marked for found in by_task.values() for bucket in found)
    table = framed(title, "part", ("words", "responses", "hallucinated", *(["spans each"] if marked else [])))
    for task, found in by_task.items():
        for place, bucket in enumerate(found):
            add_row(
                table,
                "" if place else task,
                f"{'(' if place else '['}{bucket.low:,}, {bucket.high:,}]",
                f"{bucket.counts.num_responses:,}",
                f"{bucket.counts.share:.1%}",
                *([f"{bucket.counts.spans_each:.2f}"] if marked else []),
            )
        for row in paper.get(task, ()):
            table.add_row(PAPER, f"({row['low']:,}, {row['high']:,}]", NONE, NONE, f"{row['spans_each']:.2f}")
        table.add_section()
    return table
