"""Builds the tables of a corpus, with the papers' figures where they count the same."""

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from faithkit.pages.page_tables import bold, format_metric, new_number_table
from faithkit.published.figures import Row
from faithkit_papers.corpus.corpus_rows import ACTS, CLASSES
from faithkit_papers.corpus.corpus_stats import ALL, Bucket, CorpusStats, Counts, sort_labels
from faithkit_papers.published_figures import paper_table

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
