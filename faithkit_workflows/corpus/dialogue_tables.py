"""The tables of dialogues and texts: lengths, parts by facet, BEGIN's classes, speech acts, and what is copied."""

from functools import partial

from rich.table import Table
from rich.text import Text

from faithkit.metrics.begin_tags import ACTS, CLASSES
from faithkit.pages.tables import escape_terminal, format_metric, new_number_table
from faithkit.published.figures import begin_rows, size_rows
from faithkit.published.tables import published_table
from faithkit_workflows.corpus.stats import ALL, CorpusStats

PAPER = "  paper"
NONE = "-"
framed = partial(new_number_table, show_edge=True)
SHORT = dict(zip(CLASSES, ("entailed", "uncoop.", "generic", "partial", "full"), strict=True))


def lengths(stats: CorpusStats, title: str) -> Table:
    """Lengths of responses, knowledge and the turns before."""
    table = framed(title, "text", ("texts", "mean words", "median", "95%", "longest", "mean tokens"))
    for name, units in stats.lengths.items():
        words = units["words"]
        cells = (f"{words.mean:.1f}", f"{words.median:.0f}", f"{words.high:.0f}", f"{words.max:,}")
        add_row(table, name, f"{words.num_texts:,}", *cells, f"{units['tokens'].mean:.1f}")
    table.caption = Text("tokens: words and punctuation marks; a knowledge counts once in each dialogue or source")
    return table


def dialogues(stats: CorpusStats, title: str, dataset: str) -> Table:
    """FaithDial's Table 2, by split."""
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
        told = f" (paper: {table_of.rows[0]['mean_rounds']:.2f}, {table_of.citation})" if dataset == "diahalu" else ""
        lines.append(f"rounds of a dialogue: {sum(rounds) / len(rounds):.2f} in the mean{told}")
    if paper:
        table_of = published_table("faithdial_sizes")
        lines.append(f"paper: {table_of.citation}; {table_of.protocol}")
    table.caption = Text("\n".join(lines))
    return table


def facet(stats: CorpusStats, name: str, title: str) -> Table:
    """Responses by the value of a facet, with the hallucinated share of each."""
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


def classes(stats: CorpusStats, title: str, dataset: str) -> Table:
    """FaithDial's Table 1, by system."""
    table = framed(title, "system", ("responses", *SHORT.values()))
    paper = begin_rows(dataset)
    for system, counts in stats.classes.items():
        total = sum(counts.values())
        add_row(table, system or ALL, f"{total:,}", *(f"{counts[name] / max(1, total):.1%}" for name in CLASSES))
        if row := paper.get(system):
            table.add_row(PAPER, NONE, *(f"{row[name]:.1f}%" for name in CLASSES))
    lines = [
        "full: hallucinated; partial: hallucinated and entailed; uncoop.: entailed, but no answer to what was said"
    ]
    if any(one.edited for one in stats.dialogues.values()):
        lines.append("of edited responses the tags are of what stood there before")
    if paper:
        lines.append(f"paper: {published_table('faithdial_begin').citation}")
    table.caption = Text("\n".join(lines))
    return table


def acts(stats: CorpusStats, title: str) -> Table:
    """The outer ring of FaithDial's Figure 2."""
    names = [act for act in ACTS if any(act in counts for counts in stats.acts.values())]
    sizes = {name: sum(counts[name] for counts in stats.classes.values()) for name in stats.acts}
    table = framed(title, "speech act", tuple(SHORT[name] for name in stats.acts))
    for act in names:
        shares = (counts.get(act, 0) / max(1, sizes[name]) for name, counts in stats.acts.items())
        add_row(table, act, *(f"{share:.0%}" for share in shares))
    table.caption = Text("share of the class's responses that have the act; one may have several (VRM)")
    return table


def extraction(stats: CorpusStats, title: str) -> Table:
    """The means of FaithDial's Figure 3."""
    table = framed(title, "", ("responses", "coverage", "density"))
    for name, one in stats.extraction.items():
        add_row(table, name, f"{one.num_responses:,}", f"{one.coverage:.2f}", f"{one.density:.2f}")
    table.caption = Text("coverage: share of the tokens that are copied; density: mean length of the copied pieces")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Adds a row of plain texts, in bold where it is of all."""
    table.add_row(*(Text(escape_terminal(cell), style="bold" if cells[0] == ALL else "") for cell in cells))
