"""Describes any dataset by the statistics of the papers, next to published values where these are comparable.

FaithDial's files keep the wizard's text before an edit, but not the seeker's. Which seeker turns were edited is found
by the dialogues of Wizard of Wikipedia: one with more than half of a dialogue's original wizard texts is its source,
and the seeker's turn before each of them is compared, apart from white space.

`evaluate.py benchmark=analysis` reports marked responses as RAGTruth does; `construct.py pipeline=describe` reports
any corpus: a table on the terminal, and its numbers, plots, page and datasheet in a folder. The page needs neither
network nor script.
"""

import base64
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from string import Template
from typing import Any

from construction.chain import MANIFEST, Manifest
from data_modules.build import build_source, read_benchmark
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.fields import text_group
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.atomic import write_json, write_text
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.packages import environment
from faithkit.pages.page import fill_part, write_filled_page
from faithkit.pages.page_tables import escape_markdown, escape_terminal, print_tables, table_title, to_markdown
from faithkit.pages.plotting import DPI, STYLE, require_plots, save_figure
from faithkit.published.figures import are_comparable
from faithkit.records import Example
from faithkit.reports.write_reports import EvaluationResult, ReportOptions
from faithkit.settings.config_files import EMBEDDED, display_name
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, full_names, metric_name, write_results
from faithkit_papers.corpus.corpus_rows import GENERIC, CorpusRows, begin_class
from faithkit_papers.corpus.corpus_stats import ALL, CorpusStats, compute_corpus_stats
from faithkit_papers.corpus.corpus_views import ONLY_FULL, PAPER, PLOTS, build_corpus_tables
from faithkit_workflows.answering.retrieval import retrieve

OPEN = "**TO ANSWER**"
TEMPLATE = Template(Path(__file__).with_name("datasheet.md").read_text(encoding="utf-8"))
ADDRESS = re.compile(r"https?://\S+ ?")
Dialogue = tuple[str, str]  # split and group: official files number the dialogues of each split from 0
log = logging.getLogger("faithkit")


def datasheet(stats: CorpusStats, *, title: str, reading: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Writes the datasheet of a corpus (Gebru et al. 2021): answers what its numbers show.

    The questions are in datasheet.md; its fields are named after them. One without an answer is marked `TO ANSWER`.

    Args:
        reading: The result of reading: path, number of rejected rows, notes.
        known: Further answers by field.
    """
    answers: dict[str, str] = {}
    counts, whole = stats.counts, stats.whole
    parts = ["a response"]
    parts += ["with the knowledge that it should be faithful to"] if whole.context.num_texts else []
    parts += ["and the dialogue before it"] if "turn before" in stats.lengths else []
    answers["instance"] = f"{' '.join(parts).capitalize()}."
    by_part = "".join(
        f"\n- {escape_markdown(name)}: {line.counts.num_responses:,} responses of {line.num_sources:,} "
        "dialogues or sources"
        for name, line in stats.basic.items()
    )
    answers["size"] = f"{counts.num_responses:,} responses of {stats.num_groups:,} dialogues or sources.{by_part}"
    if counts.num_judged:
        labels = f"{counts.num_hallucinated:,} of {counts.num_judged:,} ({counts.share:.1%}) are hallucinated."
        if counts.num_marked:
            kinds = sorted({label for types in stats.types.values() for label in types})
            labels += f" {counts.num_spans:,} spans are marked ({', '.join(map(escape_markdown, kinds))})."
        if stats.classes:
            labels += " BEGIN's classes and VRM's speech acts are known."
        answers["labels"] = f"{labels} Who gave them: {OPEN}"
    missing = {
        "no label": counts.num_responses - counts.num_judged,
        "no marked spans": counts.num_responses - counts.num_marked if counts.num_marked else 0,
        "no knowledge": counts.num_responses if not whole.context.num_texts else 0,
    }
    counted = [f"{number:,} responses have {what}" for what, number in missing.items() if number]
    complete = "Nothing: every response has its knowledge and label."
    answers["missing"] = f"{'; '.join(counted)}." if counted else complete
    each = counts.num_responses / max(1, stats.num_groups)
    answers["relations"] = (
        f"By dialogue or source: {each:.1f} responses each in the mean. Splits must not cut through one."
    )
    splits = ", ".join(f"{escape_markdown(name)} ({one.num_responses:,})" for name, one in stats.dialogues.items())
    answers["splits"] = f"{splits}. How they were divided: {OPEN}"
    rejected = f"{reading['num_rejects']:,} rows could not be read; " if reading.get("num_rejects") else ""
    again = f"Responses that repeat one with the same knowledge and history: {stats.num_repeated:,}."
    answers["errors"] = f"{rejected}{again} Others: {OPEN}"
    if models := list(stats.models):
        answers["models"] = f"{', '.join(map(escape_markdown, models))}. Their settings: {OPEN}"
    edited = {name: one.edited for name, one in stats.dialogues.items() if one.edited is not None}
    if edited:
        shares = ", ".join(f"{share:.1%} in {escape_markdown(name)}" for name, share in edited.items())
        answers["cleaning"] = f"Responses were edited: {shares}; the originals are kept. Otherwise: {OPEN}"
    if reading.get("path"):
        answers["where"] = f"Described as read from `{escape_markdown(str(reading['path']))}`. Name and version: {OPEN}"
    answers |= {**known, "title": escape_markdown(title)}
    num_open = len(set(TEMPLATE.get_identifiers()) - answers.keys() - {"open"})
    return TEMPLATE.substitute(defaultdict(lambda: OPEN, answers, open=str(num_open)))


def report_corpus(
    rows: CorpusRows,
    folder: Path,
    *,
    full: bool,
    title: str = "",
    dataset: str = "",
    notes: Sequence[str] = (),
    plots: bool = True,
    page: Path | None = None,
    num_resamples: int = 1000,
    verbose: bool = True,
) -> CorpusStats:
    """Shows a corpus, and writes corpus.json, report.md, the page and the plots.

    Args:
        full: Reports any corpus by all tables and plots; otherwise marked responses by those of RAGTruth's analysis.
        dataset: The dataset for published figures; empty for none.
        notes: Sentences for the summary.
        page: The page's file; None for report.html in the folder.
        verbose: Prints all tables instead of only the first.

    Raises:
        UserError: There is no example, or without `full` none with marked spans; the folder cannot be written; plots
            need matplotlib.
    """
    if plots:
        require_plots()
    stats = compute_corpus_stats(rows, num_resamples=num_resamples)
    if not full and not stats.has_spans:
        problem = f"none of {stats.counts.num_responses:,} examples has marked spans"
        raise UserError(problem, hint="choose a corpus or split with spans, or: construct.py pipeline=describe")
    write_json(folder / "corpus.json", stats.to_dict())
    pictures = []
    if plots:
        from matplotlib import rc_context

        with rc_context(STYLE):
            drawn = {name: plot(stats) for name, (_, plot) in PLOTS.items() if full or name not in ONLY_FULL}
            pictures = [save_figure(figure, folder / f"{name}.png") for name, figure in drawn.items() if figure]
    tables = build_corpus_tables(stats, title=title, dataset=dataset, full=full)
    counts = stats.counts
    summary = [f"{counts.num_responses:,} responses of {stats.num_groups:,} dialogues or sources."]
    if counts.num_judged:
        some = "" if counts.num_judged == counts.num_responses else f" of the {counts.num_judged:,} with a label"
        summary.append(f"{counts.num_hallucinated:,} ({counts.share:.1%}){some} are hallucinated.")
    else:
        summary.append("None has a label.")
    if counts.num_marked:
        summary.append(f"{counts.num_spans:,} spans are marked: {counts.density:.2f} per hundred words.")
    if stats.num_repeated:
        summary.append(f"Repeated with the same knowledge and history: {stats.num_repeated:,}.")
    summary += notes
    head = [f"# {escape_markdown(title)}", "", *map(escape_markdown, summary), ""]
    images = "".join(f"\n![{path.stem}]({path.name})\n" for path in pictures)
    write_text(folder / "report.md", "\n".join([*head, *(to_markdown(table) for table in tables)]) + images)
    sections = []
    for place, table in enumerate(tables):
        name = escape_terminal(table_title(table).removeprefix(f"{title}: "))
        sections.append((f"table-{place}", name[:1].upper() + name[1:], fill_part("table", table, _kind)))
    for path in pictures:
        name, plot = PLOTS[path.stem]
        image = path.read_bytes()
        width = round(int.from_bytes(image[16:20], "big") * 100 / DPI)  # of the PNG's header
        data = f"data:image/png;base64,{base64.b64encode(image).decode()}"
        text = f"{(plot.__doc__ or '').partition('.')[0]}; the tables have the numbers."
        sections.append((f"plot-{path.stem}", name, fill_part("picture", data, name, text, width)))
    write_filled_page(
        page or folder / "report.html",
        "sections.html",
        title=title,
        styles=("style.css", "sections.css"),
        summary=fill_part("notes", summary, "summary"),
        sections=sections,
    )
    print_tables(*(tables if verbose else tables[:1]))
    return stats


def _kind(row: Sequence[str]) -> str:
    return "paper" if PAPER in row[:2] else "all" if row[0] == ALL else ""


def find_seeker_edits(edited: Iterable[Example], originals: Iterable[Example]) -> list[tuple[Dialogue, bool]]:
    """Lists the turns that are in both corpora: the dialogue, and whether the seeker's text differs."""
    seekers: dict[str, dict[Dialogue, set[str]]] = defaultdict(lambda: defaultdict(set))  # by the wizard's text
    for one in originals:
        if one.history:
            seekers[text_group(one.response)][one.split, one.group].add(_last_turn(one))
    dialogues: dict[Dialogue, list[tuple[str, str]]] = defaultdict(list)
    for one in edited:
        if one.history:
            dialogues[one.split, one.group].append((text_group(one.original or one.response), _last_turn(one)))
    found = []
    for dialogue, turns in dialogues.items():
        counts = Counter(place for wizard, _ in turns for place in seekers.get(wizard, ()))
        [(source, shared)] = counts.most_common(1) or [(dialogue, 0)]
        if 2 * shared > len(turns):
            known = ((seekers.get(wizard, {}).get(source), seeker) for wizard, seeker in turns)
            found += [(dialogue, seeker not in before) for before, seeker in known if before]
    return found


def _last_turn(example: Example) -> str:
    return " ".join(example.history[-1].text.split())


def run_describe(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Reads every row once, then writes and prints what they are."""
    block = config["pipeline"]
    source = build_source(block["dataset"], block["path"], **block["options"]).with_all_rows(block["options"])
    neither = "generic" in source.options_for_all_rows and "generic" not in block["options"]
    splits = source.split_names() if block["split"] is None else [resolve_split(source, block["split"])]
    if config["dry_run"]:
        print(f"would read {block['dataset']} from {source.path}, split {' and '.join(splits)}")
        return
    report = ReadReport(block["on_bad_row"])
    examples = chain.from_iterable(read_examples(source, split, report) for split in splits)
    kept = (
        replace(example, label=None) if neither and begin_class(example.tags) == GENERIC else example
        for example in islice(examples, config["limit"])
    )
    rows = CorpusRows(kept, block["facets"])
    if report.rejects:
        write_jsonl(run.path / "rejects.jsonl", report.rejects)
    if missing := [name for name in block["facets"] or () if set(rows.facets[name]) <= {None}]:
        hint = "leave it out: pipeline.facets=null takes all fields of this dataset"
        raise UserError(f"no response has a field {missing[0]!r} to group them by", hint=hint)
    known = built_here(Path(source.path))
    has_paper = block["path"] != EMBEDDED and not known
    if block["dataset"] == "ragtruth":  # its published figures are about the responses of its models
        models = {name for name in rows.facets.get("model", ()) if name is not None}
        has_paper = has_paper and "model" in rows.facets and are_comparable(models)
    title, limit = display_name(block["dataset"], block["path"]), config["limit"]
    notes = ["Generic responses count neither as faithful nor as hallucinated."] if neither else []
    notes += [f"Only the first {limit:,} rows were read."] if limit else []
    stats = report_corpus(
        rows,
        run.path,
        full=True,
        title=title,
        dataset=block["dataset"] if has_paper else "",
        notes=notes,
        plots=block["plots"],
        num_resamples=block["num_resamples"],
        verbose=config["verbose"],
    )
    meta = {"config": config, "data": {"counts": dict(report.counts)}, "environment": environment()}
    metrics = {
        metric_name("all", title.replace("/", "-"), f"{facet}/{value}/rate" if facet else "rate"): metric
        for facet, values in stats.rates.items()
        for value, metric in values.items()
    }
    if block["wow_path"] is not None:
        wow, skipped = build_source("wow", block["wow_path"]), ReadReport("skip")
        edited = chain.from_iterable(read_examples(source, split, skipped) for split in splits)
        originals = chain.from_iterable(read_examples(wow, split, skipped) for split in wow.split_names())
        found = find_seeker_edits(edited, originals)
        log.info("%s: %s seeker turns are found in wow_path", title, f"{len(found):,}")
        if found:  # the share of edited seeker turns, with its interval over dialogues
            groups = Groups.of("/".join(dialogue) for dialogue, _ in found)
            statistic = mean_statistic(groups, {"seeker_edited": [float(differs) for _, differs in found]})
            scored = bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=block["num_resamples"])
            metrics |= full_names("test", title, scored.metrics)
    write_results(run.metrics, metrics, meta)
    reading = {"path": source.path, "num_rejects": len(report.rejects)}
    write_text(run.path / "datasheet.md", datasheet(stats, title=title, reading=reading, known=known))
    log.info("%s: %s", title, ", ".join(f"{name} {count:,}" for name, count in report.counts.items()))


def run_analysis(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reports the statistics of `benchmark=analysis`; nothing is predicted."""
    block, options = config["benchmark"], ReportOptions.of(config)
    examples: Sequence[Example] = read_benchmark(block, seed=config["seed"]).examples
    if retrieved := retrieve(config, examples):
        examples = retrieved[0]
    # The paper's figures describe the answers of its models: no other data are comparable.
    has_figures = block["path"] != EMBEDDED and are_comparable(one.meta.get("model") for one in examples)
    report_corpus(
        CorpusRows(examples, overlap=False),
        run.path,
        full=False,
        title=display_name(block["dataset"], block["path"]),
        plots=block["plots"],
        dataset=block["dataset"] or "" if has_figures else "",
        page=Path(options.page).expanduser() if options.page else None,
        verbose=options.verbose,
    )
    return EvaluationResult({})


def built_here(path: Path) -> dict[str, str]:
    """Reads facts for a datasheet from the manifest of a benchmark that construct.py built; empty without one."""
    folder = next((one for one in (path, *path.parents[:2]) if (one / MANIFEST).is_file()), None)
    if folder is None:
        return {}
    try:
        manifest = Manifest(folder)
    except UserError:
        return {}  # a damaged manifest must not prevent the description; its run reports it
    steps, pipeline = list(manifest.steps.values()), manifest.pipeline
    # A datasheet is published: it names models, not servers.
    engines = {step.name: ADDRESS.sub("", step.engine) for step in steps if step.engine}
    every = {name: one for step in steps for name, one in step.versions.items()}
    shown = ("python", "faithkit", "torch", "transformers", "vllm", "openai")
    versions = {name: str(every[name]) for name in shown if name in every}
    times = sorted(step.began for step in steps if step.began)
    lines = "".join(f"\n- step {name}: `{engine}`" for name, engine in engines.items())
    known = {"annotation": f"By the steps of faithkit's pipeline `{pipeline}`; prompts are in `prompts/`.{lines}"}
    known["software"] = f"faithkit's construct.py; its manifest is {MANIFEST}. Versions: " + ", ".join(
        f"{name} {version}" for name, version in versions.items()
    )
    if times:
        known["time"] = f"From {times[0]} on, as the manifest records."
    return known
