"""Describes any dataset by the statistics of the papers, next to published values where these are comparable.

FaithDial's files keep the wizard's text before an edit, but not the seeker's. Which seeker turns were edited is found
by the dialogues of Wizard of Wikipedia: one with more than half of a dialogue's original wizard texts is its source,
and the seeker's turn before each of them is compared, apart from white space.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from construction.chain import MANIFEST, Manifest
from data_modules.build import build_source, read_benchmark
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.fields import text_group
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.atomic import write_text
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import full_names, metric_name, write_results
from faithkit.packages import environment
from faithkit.published.figures import are_comparable, are_comparable_models
from faithkit.records import Example
from faithkit.reports.write_reports import EvaluationResult, ReportOptions
from faithkit.settings.config_files import EMBEDDED, display_name
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit_papers.corpus.corpus_report import datasheet, report_corpus
from faithkit_papers.corpus.corpus_rows import GENERIC, CorpusRows, begin_class
from faithkit_workflows.answering.retrieval import retrieve

ADDRESS = re.compile(r"https?://\S+ ?")
Dialogue = tuple[str, str]  # split and group: official files number the dialogues of each split from 0
log = logging.getLogger("faithkit")


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


def measure_seeker_edits(turns: Iterable[tuple[Dialogue, bool]], num_resamples: int) -> dict[str, Metric]:
    """Computes `seeker_edited`, the share of edited seeker turns with its interval over dialogues; empty if none."""
    if not (rows := list(turns)):
        return {}
    groups = Groups.of("/".join(dialogue) for dialogue, _ in rows)
    statistic = mean_statistic(groups, {"seeker_edited": [float(edited) for _, edited in rows]})
    return bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=num_resamples).metrics


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
    report, rows = ReadReport(block["on_bad_row"]), CorpusRows(block["facets"])
    examples = chain.from_iterable(read_examples(source, split, report) for split in splits)
    for example in islice(examples, config["limit"]):
        if neither and begin_class(example.tags) == GENERIC:
            example = replace(example, label=None)
        rows.add(example)
    if report.rejects:
        write_jsonl(run.path / "rejects.jsonl", report.rejects)
    if missing := [name for name in block["facets"] or () if set(rows.facets[name]) <= {None}]:
        hint = "leave it out: pipeline.facets=null takes all fields of this dataset"
        raise UserError(f"no response has a field {missing[0]!r} to group them by", hint=hint)
    known = built_here(Path(source.path))
    has_paper = block["path"] != EMBEDDED and not known
    if block["dataset"] == "ragtruth":  # its published figures are about the responses of its models
        models = {name for name in rows.facets.get("model", ()) if name is not None}
        has_paper = has_paper and "model" in rows.facets and are_comparable_models(models)
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
        metrics |= full_names("test", title, measure_seeker_edits(found, block["num_resamples"]))
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
    has_figures = block["path"] != EMBEDDED and are_comparable(examples)
    report_corpus(
        CorpusRows(overlap=False).add_all(examples),
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
