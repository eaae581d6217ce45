"""Builds the tables of a corpus, with the papers' figures where they count the same."""

from collections.abc import Mapping, Sequence
from functools import partial

from rich.table import Table
from rich.text import Text

from faithkit.metrics.begin_tags import ACTS, CLASSES
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table
from faithkit.published.figures import (
    Row,
    basic_rows,
    begin_rows,
    bucket_rows,
    count_rows,
    model_rows,
    part_note,
    published_counts,
    ragtruth_citation,
    size_rows,
)
from faithkit.published.published_tables import published_table
from faithkit_workflows.corpus.corpus_stats import ALL, Basic, Bucket, CorpusStats, Counts, sort_labels

RAGTRUTH = "ragtruth"


def build_corpus_tables(stats: CorpusStats, *, title: str = "", dataset: str = "", full: bool = False) -> list[Table]:
    """Builds the tables that the corpus has data for.

    Args:
        dataset: The dataset for published figures; empty for none.
        full: Includes the tables of lengths, dialogues, facets and tags.
    """
    prefix = f"{title}: " if title else ""
    tables = [_basic(stats, f"{prefix}responses and hallucination", dataset)]
    if full:
        tables.append(_lengths(stats, f"{prefix}lengths"))
        if stats.has_dialogues:
            tables.append(_dialogues(stats, f"{prefix}dialogues", dataset))
        tables += [_facet(stats, name, f"{prefix}by {name.replace('_', ' ')}") for name in stats.facets]
    by_task = any(len(tasks) > 1 for tasks in stats.models.values())  # else the table by model has the same numbers
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
            _classes(stats, f"{prefix}BEGIN's classes", dataset),
            _acts(stats, f"{prefix}speech acts"),
        ]
    if full and stats.extraction:
        tables.append(_extraction(stats, f"{prefix}copied from the knowledge"))
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
    labels = sort_labels(label for counts in stats.types.values() for label in counts)
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


PAPER = "  paper"
NONE = "-"
framed = partial(new_number_table, show_edge=True)
SHORT = dict(zip(CLASSES, ("entailed", "uncoop.", "generic", "partial", "full"), strict=True))


def _lengths(stats: CorpusStats, title: str) -> Table:
    """Shows lengths of responses, knowledge and previous turns."""
    table = framed(title, "text", ("texts", "mean words", "median", "95%", "longest", "mean tokens"))
    for name, units in stats.lengths.items():
        words = units["words"]
        cells = (f"{words.mean:.1f}", f"{words.median:.0f}", f"{words.high:.0f}", f"{words.max:,}")
        add_row(table, name, f"{words.num_texts:,}", *cells, f"{units['tokens'].mean:.1f}")
    table.caption = Text("tokens: words and punctuation marks; a knowledge counts once in each dialogue or source")
    return table


def _dialogues(stats: CorpusStats, title: str, dataset: str) -> Table:
    """Shows FaithDial's Table 2, by split."""
    table = framed(title, "split", ("dialogues", "turns", "each", "response", "before", "knowledge", "edited"))
    paper = size_rows(dataset)
    for name, one in stats.dialogues.items():
        tokens = (f"{number:.2f}" if number else NONE for number in (one.response, one.before, one.knowledge))
        edited = NONE if one.edited is None else f"{one.edited:.1%}"
        add_row(
            table,
            name,
            f"{one.num_dialogues:,}",
            f"{one.num_turns:,}" if one.num_turns else NONE,
            f"{one.turns_each:.1f}" if one.num_turns else NONE,
            *tokens,
            edited,
        )
        if row := paper.get(name):
            numbers = (f"{row[key]:.2f}" for key in ("response", "before", "knowledge"))
            sizes = (f"{row['conversations']:,}", f"{row['turns']:,}", f"{row['turns_each']}")
            table.add_row(PAPER, *sizes, *numbers, NONE)
    rounds = [one.rounds for one in stats.dialogues.values() if one.rounds is not None]
    lines = ["turns: of both speakers up to the last response; then mean tokens of the response, the turn before it"]
    lines[0] += " and its knowledge; edited: responses that differ from the original"
    if rounds:
        table_of = published_table("diahalu_sizes")
        paper_rounds = (
            f" (paper: {table_of.rows[0]['mean_rounds']:.2f}, {table_of.citation})" if dataset == "diahalu" else ""
        )
        lines.append(f"rounds of a dialogue: {sum(rounds) / len(rounds):.2f} in the mean{paper_rounds}")
    if paper:
        table_of = published_table("faithdial_sizes")
        lines.append(f"paper: {table_of.citation}; {table_of.protocol}")
    table.caption = Text("\n".join(lines))
    return table


def _facet(stats: CorpusStats, name: str, title: str) -> Table:
    """Shows responses by the value of a facet, with the hallucinated share of each."""
    values, rates = stats.facets[name], stats.rates.get(name, {})
    has_spans = stats.has_spans
    more = (*(["hallucinated, %"] if rates else []), *(["density"] if has_spans else []))
    table = framed(title, name.replace("_", " "), ("responses", "share", "words", *more))
    total = sum(counts.num_responses for counts in values.values())
    for value, counts in values.items():
        cells = [
            f"{counts.num_responses:,}",
            f"{counts.num_responses / max(1, total):.1%}",
            f"{counts.num_words / max(1, counts.num_responses):.1f}",
        ]
        cells += [format_metric(rates.get(value), digits=1, scale=100)] if rates else []
        cells += [f"{counts.density:.2f}"] if has_spans else []
        add_row(table, value, *cells)
    if rates:
        lines = ["95% intervals over groups" + ("; density: spans per hundred words" if has_spans else "")]
        table.caption = Text("\n".join(lines))
    return table


def _classes(stats: CorpusStats, title: str, dataset: str) -> Table:
    """Shows FaithDial's Table 1, by system."""
    table = framed(title, "system", ("responses", *SHORT.values()))
    paper = begin_rows(dataset)
    for system, counts in stats.classes.items():
        total = sum(counts.values())
        add_row(table, system or ALL, f"{total:,}", *(f"{counts[name] / max(1, total):.1%}" for name in CLASSES))
        if row := paper.get(system):
            table.add_row(PAPER, NONE, *(f"{row[name]:.1f}%" for name in CLASSES))
    lines = [
        "full: hallucinated; partial: hallucinated and entailed; uncoop.: entailed, but no answer to the previous turn"
    ]
    if any(one.edited for one in stats.dialogues.values()):
        lines.append("tags of edited responses are those of the original")
    if paper:
        lines.append(f"paper: {published_table('faithdial_begin').citation}")
    table.caption = Text("\n".join(lines))
    return table


def _acts(stats: CorpusStats, title: str) -> Table:
    """Shows the outer ring of FaithDial's Figure 2."""
    names = [act for act in ACTS if any(act in counts for counts in stats.acts.values())]
    sizes = {name: sum(counts[name] for counts in stats.classes.values()) for name in stats.acts}
    table = framed(title, "speech act", tuple(SHORT[name] for name in stats.acts))
    for act in names:
        shares = (counts.get(act, 0) / max(1, sizes[name]) for name, counts in stats.acts.items())
        add_row(table, act, *(f"{share:.0%}" for share in shares))
    table.caption = Text("share of the class's responses that have the act; one may have several (VRM)")
    return table


def _extraction(stats: CorpusStats, title: str) -> Table:
    """Shows the means of FaithDial's Figure 3."""
    table = framed(title, "", ("responses", "coverage", "density"))
    for name, one in stats.extraction.items():
        add_row(table, name, f"{one.num_responses:,}", f"{one.coverage:.2f}", f"{one.density:.2f}")
    table.caption = Text("coverage: share of the tokens that are copied; density: mean length of the copied pieces")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Adds a row of plain texts, in bold for the total."""
    table.add_row(*(Text(escape_terminal(cell), style="bold" if cells[0] == ALL else "") for cell in cells))
