"""Shows a corpus: tables, with the papers' figures where they count the same, and plots as PNG files.

Types, positions, lengths and generators are figures 2 and 3 and tables 3 and 4 of Niu et al. (2024), types also figure
5 of Chen et al. (2024). Topics are figure 2 of Luo et al. (2024), tags and copying figures 2 and 3 of Dziri et al.
(2022). A plot without data is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from faithkit.pages.page_tables import bold, format_metric, new_number_table
from faithkit.pages.plotting import COLOURS, MARKERS, legend_above, new_figure, percent_axis, plot_name
from faithkit.published.figures import Row
from faithkit_papers.corpus.corpus_rows import ACTS, CLASSES
from faithkit_papers.corpus.corpus_stats import ALL, Bucket, CorpusStats, Counts, sort_labels
from faithkit_papers.published_figures import paper_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RAGTRUTH = "ragtruth"
PAPER = "  paper"
NONE = "-"
SHORT = dict(zip(CLASSES, ("entailed", "uncoop.", "generic", "partial", "full"), strict=True))
Cells = tuple[str, ...]


def build_corpus_tables(stats: CorpusStats, *, title: str = "", dataset: str = "", full: bool = False) -> list[Table]:
    """Builds the tables that the corpus has data for.

    Args:
        dataset: The dataset for published figures; empty for none.
        full: Includes the tables of lengths, dialogues, facets and tags.
    """
    prefix = f"{title}: " if title else ""
    tables = [_basic(stats, f"{prefix}responses and hallucination", dataset)]
    if full:
        rows: list[Cells] = []
        for name, units in stats.lengths.items():
            words = units["words"]
            cells = (f"{words.mean:.1f}", f"{words.median:.0f}", f"{words.high:.0f}", f"{words.max:,}")
            rows.append((name, f"{words.num_texts:,}", *cells, f"{units['tokens'].mean:.1f}"))
        heads = ("texts", "mean words", "median", "95%", "longest", "mean tokens")
        note = "tokens: words and punctuation marks; a knowledge counts once in each dialogue or source"
        tables.append(_table(f"{prefix}lengths", "text", heads, rows, note))
        some = stats.dialogues.values()
        if any((one.turns_each or 0) > 2.5 or one.edited is not None or one.rounds is not None for one in some):
            tables.append(_dialogues(stats, f"{prefix}dialogues", dataset))
        tables += [_facet(stats, name, f"{prefix}by {name.replace('_', ' ')}") for name in stats.facets]
    by_task = any(len(tasks) > 1 for tasks in stats.models.values())  # else the table by model has the same numbers
    if stats.models and stats.counts.num_judged and (by_task or not full or dataset == RAGTRUTH):
        tables.append(_models(stats, f"{prefix}by generator", dataset == RAGTRUTH))
    if stats.types:
        what = "spans" if stats.has_spans else "hallucinated responses"
        labels = sort_labels(label for counts in stats.types.values() for label in counts)
        rows = []
        for name, counts in stats.types.items():
            total = max(1, sum(counts.values()))
            rows.append((name, *(f"{counts.get(one, 0):,} ({counts.get(one, 0) / total:.0%})" for one in labels)))
        heads_of = [label.replace("_", " ") for label in labels]
        tables.append(_table(f"{prefix}types of {what}", "part", heads_of, rows))
    for by, found in (("context", stats.context_buckets), ("response", stats.response_buckets)):
        paper: dict[str, list[Row]] = {}  # Table 4, by task
        for row in paper_table("ragtruth_lengths").rows if dataset == RAGTRUTH else ():
            if row["by"] == by:
                paper.setdefault(row["task"], []).append(row)
        if found:
            tables.append(_buckets(found, paper, f"{prefix}by length of the {by}"))
    if full and stats.classes:
        tables.append(_classes(stats, f"{prefix}BEGIN's classes", dataset))
        sizes = {name: max(1, sum(counts[name] for counts in stats.classes.values())) for name in stats.acts}
        rows = [
            (act, *(f"{counts.get(act, 0) / sizes[name]:.0%}" for name, counts in stats.acts.items()))
            for act in ACTS
            if any(act in counts for counts in stats.acts.values())
        ]
        note = "share of the class's responses that have the act; one may have several (VRM)"
        tables.append(_table(f"{prefix}speech acts", "speech act", [SHORT[name] for name in stats.acts], rows, note))
    if full and stats.extraction:
        rows = [
            (name, f"{one.num_responses:,}", f"{one.coverage:.2f}", f"{one.density:.2f}")
            for name, one in stats.extraction.items()
        ]
        note = "coverage: share of the tokens that are copied; density: mean length of the copied pieces"
        title = f"{prefix}copied from the knowledge"
        tables.append(_table(title, "", ("responses", "coverage", "density"), rows, note))
    return tables


def _table(
    title: str, names: str | Cells, heads: Sequence[str], rows: Iterable[Cells | None], *lines: str | None
) -> Table:
    """Builds a table with a caption of these lines; the row of the total is bold."""
    shown = ([bold(cell) for cell in cells] if cells and cells[0] == ALL else cells for cells in rows)
    return new_number_table(title, names, heads, shown, caption=lines, show_edge=True)


def _basic(stats: CorpusStats, title: str, dataset: str) -> Table:
    paper = paper_table("ragtruth_basic").by("task") if dataset == RAGTRUTH else {}
    counted, cited = dict[str, tuple[int, int]](), ""  # the paper's responses and hallucinated ones, by part
    if dataset in ("diahalu", "halludial"):
        table = paper_table(f"{dataset}_counts")
        cited = table.citation
        for one in table.rows:
            size = one["dialogues"] if dataset == "diahalu" else one["train"] + one["test"]
            counted[one["domain" if dataset == "diahalu" else "scenario"]] = (size, one["hallucinated"])
        if dataset == "halludial":
            counted[ALL] = (sum(size for size, _ in counted.values()), sum(wrong for _, wrong in counted.values()))
    rows: list[Cells | None] = []
    for name, line in stats.basic.items():
        of_part = line.counts
        context = f"{line.context.mean:,.0f} / {line.context.max:,}" if line.context.num_texts else NONE
        response = f"{line.response.mean:,.0f} / {line.response.max:,}"
        spans = f"{of_part.num_spans:,}" if of_part.num_marked else NONE
        numbers = (f"{line.num_sources:,}", f"{of_part.num_responses:,}", context, response)
        rows.append((name, *numbers, _share(of_part), spans))
        if row := paper.get(name):
            sizes = (f"{row[f'{text}_mean']:,} / {row[f'{text}_max']:,}" for text in ("context", "response"))
            wrong = f"{row['hallucinated']:,} ({row['hallucinated_percent']:.1f}%)"
            rows.append((PAPER, f"{row['sources']:,}", f"{row['responses']:,}", *sizes, wrong, f"{row['spans']:,}"))
        elif name in counted:
            responses, num_wrong = counted[name]
            wrong = f"{num_wrong:,} ({num_wrong / responses:.1%})"
            rows.append((PAPER, NONE, f"{responses:,}", NONE, NONE, wrong, NONE))
    counts = stats.counts
    unjudged, lines = counts.num_responses - counts.num_judged, []
    if 0 < counts.num_judged < counts.num_responses:
        lines.append(f"{unjudged:,} responses have no label: shares are of the others")
    if 0 < counts.num_marked < counts.num_responses:
        lines.append(f"{stats.num_unmarked:,} responses have no marked spans")
    lines.append("context and response: mean and maximum in words")
    if dataset == RAGTRUTH:
        cited = f"{paper_table('ragtruth_basic').citation}, Table 3, Table 4"
        lines.append(f"paper: {cited}")
        if (ours := counts.num_responses) != (theirs := paper[ALL]["responses"]):
            different = "counts differ, and shares are of a part"
            lines.append(f"these are {ours:,} responses, the paper's {theirs:,}: {different}")
    elif cited:
        lines.append(f"paper: {cited}")
    heads = ("sources", "responses", "context", "response", "hallucinated", "spans")
    return _table(title, "part", heads, rows, *lines)


def _share(counts: Counts) -> str:
    return f"{counts.num_hallucinated:,} ({counts.share:.1%})" if counts.num_judged else NONE


def _models(stats: CorpusStats, title: str, published: bool) -> Table:
    paper = paper_table("ragtruth_models").by("model", "task") if published else {}
    rows: list[Cells | None] = []
    for model, tasks in stats.models.items():
        for place, (task, counts) in enumerate(tasks.items()):
            spans = (f"{counts.num_spans:,}", f"{counts.density:.2f}") if counts.num_marked else (NONE, NONE)
            rows.append(("" if place else model, task, f"{counts.num_responses:,}", _share(counts), *spans))
            if row := paper.get((model.lower(), task)):
                density = NONE if row["density"] is None else f"{row['density']:.2f}"
                rows.append(("", PAPER, NONE, f"{row['hallucinated']:,}", f"{row['spans']:,}", density))
        rows.append(None)
    note = "density: spans per hundred words" if stats.has_spans else None
    heads = ("responses", "hallucinated", "spans", "density")
    return _table(title, ("generator", "task"), heads, rows, *([note] if note else []))


def _buckets(by_task: Mapping[str, list[Bucket]], paper: Mapping[str, Sequence[Row]], title: str) -> Table:
    marked = any(bucket.counts.num_marked for found in by_task.values() for bucket in found)
    rows: list[Cells | None] = []
    for task, found in by_task.items():
        for place, bucket in enumerate(found):
            words, counts = f"{'(' if place else '['}{bucket.low:,}, {bucket.high:,}]", bucket.counts
            spans = [f"{counts.spans_each:.2f}"] if marked else []
            rows.append(("" if place else task, words, f"{counts.num_responses:,}", f"{counts.share:.1%}", *spans))
        for row in paper.get(task, ()):
            rows.append((PAPER, f"({row['low']:,}, {row['high']:,}]", NONE, NONE, f"{row['spans_each']:.2f}"))
        rows.append(None)
    return _table(title, "part", ("words", "responses", "hallucinated", *(["spans each"] if marked else [])), rows)


def _dialogues(stats: CorpusStats, title: str, dataset: str) -> Table:
    """Shows FaithDial's Table 2, by split."""
    paper = paper_table("faithdial_sizes").by("split") if dataset == "faithdial" else {}
    rows: list[Cells | None] = []
    for name, one in stats.dialogues.items():
        turns = (f"{one.num_turns:,}", f"{one.turns_each:.1f}") if one.num_turns else (NONE, NONE)
        tokens = (f"{number:.2f}" if number else NONE for number in (one.response, one.before, one.knowledge))
        rows.append(
            (name, f"{one.num_dialogues:,}", *turns, *tokens, NONE if one.edited is None else f"{one.edited:.1%}")
        )
        if row := paper.get(name):
            numbers = (f"{row[key]:.2f}" for key in ("response", "before", "knowledge"))
            rows.append(
                (PAPER, f"{row['conversations']:,}", f"{row['turns']:,}", f"{row['turns_each']}", *numbers, NONE)
            )
    lines = ["turns: of both speakers up to the last response; then mean tokens of the response, the turn before it"]
    lines[0] += " and its knowledge; edited: responses that differ from the original"
    if rounds := [one.rounds for one in stats.dialogues.values() if one.rounds is not None]:
        theirs = paper_table("diahalu_sizes")
        cited = f" (paper: {theirs.rows[0]['mean_rounds']:.2f}, {theirs.citation})" if dataset == "diahalu" else ""
        lines.append(f"rounds of a dialogue: {sum(rounds) / len(rounds):.2f} in the mean{cited}")
    if paper:
        theirs = paper_table("faithdial_sizes")
        lines.append(f"paper: {theirs.citation}; {theirs.protocol}")
    heads = ("dialogues", "turns", "each", "response", "before", "knowledge", "edited")
    return _table(title, "split", heads, rows, *lines)


def _facet(stats: CorpusStats, name: str, title: str) -> Table:
    """Shows responses by the value of a facet, with the hallucinated share of each."""
    values, rates = stats.facets[name], stats.rates.get(name, {})
    total = max(1, sum(counts.num_responses for counts in values.values()))
    rows: list[Cells | None] = []
    for value, counts in values.items():
        size = counts.num_responses
        rate = [format_metric(rates.get(value), digits=1, scale=100)] if rates else []
        density = [f"{counts.density:.2f}"] if stats.has_spans else []
        words = f"{counts.num_words / max(1, size):.1f}"
        rows.append((value, f"{size:,}", f"{size / total:.1%}", words, *rate, *density))
    more = (*(["hallucinated, %"] if rates else []), *(["density"] if stats.has_spans else []))
    note = "95% intervals over groups" + ("; density: spans per hundred words" if stats.has_spans else "")
    heads = ("responses", "share", "words", *more)
    return _table(title, name.replace("_", " "), heads, rows, *([note] if rates else []))


def _classes(stats: CorpusStats, title: str, dataset: str) -> Table:
    """Shows FaithDial's Table 1, by system."""
    paper = paper_table("faithdial_begin").by("system") if dataset == "audit" else {}
    rows: list[Cells | None] = []
    for system, counts in stats.classes.items():
        total = sum(counts.values())
        rows.append((system or ALL, f"{total:,}", *(f"{counts[name] / max(1, total):.1%}" for name in CLASSES)))
        if row := paper.get(system):
            rows.append((PAPER, NONE, *(f"{row[name]:.1f}%" for name in CLASSES)))
    lines = [
        "full: hallucinated; partial: hallucinated and entailed; uncoop.: entailed, but no answer to the previous turn"
    ]
    if any(one.edited for one in stats.dialogues.values()):
        lines.append("tags of edited responses are those of the original")
    if paper:
        lines.append(f"paper: {paper_table('faithdial_begin').citation}")
    return _table(title, "system", ("responses", *SHORT.values()), rows, *lines)


# Okabe and Ito's colours, which are safe for colour blindness; conflict blue, baseless orange, evident darker.
_TYPE_COLOURS = {
    "evident_conflict": "#0072b2",
    "subtle_conflict": "#8ec7e8",
    "evident_baseless": "#d55e00",
    "subtle_baseless": "#f0c05a",
    "hallucination": "#777777",
}
_CLASS_COLOURS = dict(zip(CLASSES, ("#009e73", "#cc79a7", "#777777", "#f0c05a", "#d55e00"), strict=True))


def plot_types(stats: CorpusStats) -> "Figure | None":
    """Plots the share of each type among the spans of a task."""
    if not stats.types:
        return None
    rows = {name: counts for name, counts in stats.types.items() if counts}
    figure, axes = new_figure(7, 1.3 + 0.42 * len(rows))
    labels = sort_labels(label for counts in rows.values() for label in counts)
    colours = {label: _TYPE_COLOURS.get(label, COLOURS[place % len(COLOURS)]) for place, label in enumerate(labels)}
    _stack_shares(axes, rows, colours)
    what = "hallucinated spans by task" if stats.has_spans else "hallucination by part"
    legend_above(axes, f"Types of {what}")
    return figure


def _stack_shares(axes: Any, rows: Mapping[str, Mapping[str, int]], colours: Mapping[str, str]) -> None:
    """Draws a bar for each row, divided by the shares of its labels, which are written where they fit."""
    names = [f"{plot_name(name)}  (n = {sum(counts.values()):,})" for name, counts in rows.items()]
    left = np.zeros(len(rows))
    for label, colour in colours.items():
        shares = np.array([counts.get(label, 0) / sum(counts.values()) for counts in rows.values()])
        shown = plot_name(label.replace("_", " "))
        bars = axes.barh(names, shares, left=left, height=0.72, color=colour, edgecolor="white", label=shown)
        texts = [f"{share:.0%}" if share >= 0.06 else "" for share in shares]
        red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
        is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 140
        axes.bar_label(bars, texts, label_type="center", color="white" if is_dark else "black", fontsize=8)
        left += shares
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(percent_axis())
    axes.invert_yaxis()


def plot_positions(stats: CorpusStats) -> "Figure | None":
    """Plots the positions of spans in the responses, a strip for each task."""
    if not stats.has_spans:
        return None
    rows = {name: shares for name, shares in stats.positions.items() if any(shares)}
    figure, _ = new_figure(7, 0.9 + 0.75 * max(1, len(rows)), rows=max(1, len(rows)))
    for axes, (name, shares) in zip(figure.axes[:], rows.items(), strict=False):
        image = axes.imshow([shares], aspect="auto", extent=(0, 1, 0, 1), cmap="cividis", vmin=0)
        axes.set_yticks([0.5], [plot_name(name)])
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        figure.colorbar(image, ax=axes, pad=0.015, ticks=[0, max(shares)], format="%.3f", aspect=6)
    last = figure.axes[max(1, len(rows)) - 1]
    last.set_xticks([0, 0.25, 0.5, 0.75, 1])
    last.xaxis.set_major_formatter(percent_axis())
    step = f"{1 / len(next(iter(rows.values()))):.0%}" if rows else "part"
    last.set_xlabel(f"position in the response; colour: share of the task's spans in each {step} of it")
    figure.axes[0].set_title("Where hallucinated spans lie in responses")
    return figure


def plot_lengths(stats: CorpusStats) -> "Figure | None":
    """Plots spans a response (or the hallucinated share) against the length of its context and of itself, by task."""
    if not stats.response_buckets:
        return None
    both = {"context": stats.context_buckets, "response": stats.response_buckets}
    panels: Sequence[tuple[str, Mapping[str, list[Bucket]]]] = [(what, found) for what, found in both.items() if found]
    figure, _ = new_figure(4 * len(panels), 3.4, columns=len(panels))
    for axes, (what, by_task) in zip(figure.axes, panels, strict=True):
        top = 0.0
        for place, (task, found) in enumerate(by_task.items()):
            middles = [(bucket.low + bucket.high) / 2 for bucket in found]
            style: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
            counts = [bucket.counts for bucket in found]
            heights = [one.spans_each if stats.has_spans else one.share for one in counts]
            top = max(top, *heights)
            axes.plot(middles, heights, label=plot_name(task), **style)
        axes.set_title(f"{'Spans a response' if stats.has_spans else 'Hallucinated'} by length of the {what}")
        if not stats.has_spans:
            axes.yaxis.set_major_formatter(percent_axis())
        axes.set_xlabel(f"words of the {what} (middle of each fifth)")
        axes.set_ylim(0, 1.08 * top or 1)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    figure.axes[0].legend()
    return figure


def plot_models(stats: CorpusStats) -> "Figure | None":
    """Plots spans per hundred words, by generator and task."""
    if not (stats.models and stats.has_spans):
        return None
    tasks = sorted({task for by_task in stats.models.values() for task in by_task if task != ALL or len(by_task) == 1})
    height = 0.8 / len(tasks)
    figure, axes = new_figure(7, 1.2 + (0.25 + 0.16 * len(tasks)) * len(stats.models))
    for place, task in enumerate(tasks):
        rows = [row for row, by_task in enumerate(stats.models.values()) if task in by_task]
        densities = [by_task[task].density for by_task in stats.models.values() if task in by_task]
        middles = [row + (place - (len(tasks) - 1) / 2) * height for row in rows]
        bars = axes.barh(middles, densities, height * 0.92, color=COLOURS[place % len(COLOURS)], label=plot_name(task))
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=7, color="#444444")
    axes.set_yticks(range(len(stats.models)), [plot_name(model) for model in stats.models])
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.set_xlabel("hallucinated spans per hundred words")
    axes.set_title("Density of hallucination by generator and task")
    axes.legend(loc="best")
    return figure


def plot_rates(stats: CorpusStats) -> "Figure | None":
    """Plots the hallucinated share of each value of each facet with its interval; the line is the share of all."""
    facets = {name: found for name, found in stats.rates.items() if name and name not in ("topic", "topic_source")}
    if not facets:
        return None
    shown = {name: dict(list(found.items())[:12]) for name, found in list(facets.items())[:6]}
    heights = [1 + len(found) for found in shown.values()]
    figure, _ = new_figure(7, 0.5 + 0.26 * sum(heights), rows=len(shown), height_ratios=heights)
    whole = stats.rates[""][ALL].value
    top = max(metric.high or metric.value for found in shown.values() for metric in found.values())
    for axes, (name, found) in zip(figure.axes, shown.items(), strict=True):
        values = [metric.value for metric in found.values()]
        below = [m.value - (m.value if m.low is None else m.low) for m in found.values()]
        above = [(m.value if m.high is None else m.high) - m.value for m in found.values()]
        places = range(len(values))
        axes.errorbar(values, places, xerr=[below, above], fmt="o", color=COLOURS[0], capsize=2.5, markersize=4.5)
        axes.axvline(whole, color="#888888", linewidth=0.8, linestyle="--")
        axes.set_yticks(places, [plot_name(value) for value in found])
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.set_xlim(0, min(1.02, 1.05 * top))
        axes.set_title(f"by {plot_name(name.replace('_', ' '))}")
        axes.xaxis.set_major_formatter(percent_axis())
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    figure.axes[-1].set_xlabel(f"hallucinated responses with 95% intervals; dashed: all of them, {whole:.1%}")
    return figure


def plot_classes(stats: CorpusStats) -> "Figure | None":
    """Plots BEGIN's classes of each system."""
    if not stats.classes:
        return None
    systems = {system or ALL: counts for system, counts in stats.classes.items() if sum(counts.values())}
    figure, axes = new_figure(7, 1.2 + 0.32 * len(systems))
    _stack_shares(axes, systems, _CLASS_COLOURS)
    legend_above(axes, "BEGIN's classes")
    return figure


def plot_acts(stats: CorpusStats) -> "Figure | None":
    """Plots BEGIN's classes of all responses, and VRM's speech acts of each class."""
    acts = {name: counts for name, counts in stats.acts.items() if sum(counts.values())}
    if not acts:
        return None
    figure, _ = new_figure(7, 3.2 + 0.36 * len(acts), rows=2, height_ratios=[1, len(acts) + 0.5])
    above, below = figure.axes
    counted = {name: sum(counts[name] for counts in stats.classes.values()) for name in CLASSES}
    _stack_shares(above, {"responses": counted}, _CLASS_COLOURS)
    legend_above(above, "BEGIN's classes")
    names = [name for name, _ in sum(map(Counter, acts.values()), Counter[str]()).most_common()]
    _stack_shares(below, acts, dict(zip(names, COLOURS * len(names), strict=False)))
    legend_above(below, "Speech acts of each class, as shares of its acts")
    return figure


def plot_extraction(stats: CorpusStats) -> "Figure | None":
    """Plots how many responses have which coverage and density; and before the edits, where there were some."""
    if not stats.extraction:
        return None
    from matplotlib.colors import LogNorm

    figure, _ = new_figure(4.2 * len(stats.extraction), 3.5, columns=len(stats.extraction))
    panels = list(figure.axes)
    most = max(max(map(max, one.cells)) for one in stats.extraction.values())
    for axes, (name, one) in zip(panels, reversed(stats.extraction.items()), strict=True):
        cells = np.ma.masked_equal(np.array(one.cells).T, 0)  # [density, coverage]
        norm = LogNorm(1, max(2, most))
        image = axes.imshow(
            cells, origin="lower", extent=(0, 1, 0, one.top), aspect="auto", cmap="cividis_r", norm=norm
        )
        axes.axvline(one.coverage, color=COLOURS[1], linewidth=0.9, linestyle="--")
        axes.axhline(one.density, color=COLOURS[1], linewidth=0.9, linestyle="--")
        axes.set_title(f"{name}  (n = {one.num_responses:,})")
        axes.set_xlabel("coverage: share of tokens that are copied")
        axes.xaxis.set_major_formatter(percent_axis())
    panels[0].set_ylabel("density: mean length of copied pieces")
    figure.colorbar(image, ax=panels, label="responses; dashed: the means", pad=0.02)
    return figure


PLOTS: "Mapping[str, tuple[str, Callable[[CorpusStats], Figure | None]]]" = {  # title and plot, by file name
    "types": ("Types", plot_types),
    "positions": ("Positions", plot_positions),
    "lengths": ("Length and hallucination", plot_lengths),
    "models": ("Generators", plot_models),
    "rates": ("Rates by part", plot_rates),
    "classes": ("BEGIN's classes", plot_classes),
    "acts": ("Speech acts", plot_acts),
    "copying": ("Copying", plot_extraction),
}
ONLY_FULL = ("rates", "classes", "acts", "copying")  # RAGTruth's analysis leaves them out
