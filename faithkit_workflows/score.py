"""Score a table: which answers are not supported by their knowledge, and how many?

Knowledge is the context that the answer must rest on: passages, documents. Columns of usual names are found: context,
contexts, passages, documents, source; answer, response, output; question, query, history.

faithkit score my.csv checkpoint=runs/...                shows the worst rows; adds label, probability, spans; a page
faithkit score my.jsonl checkpoint=runs/... by=model     also the hallucinated share by the values of a column,
                                                         or of several columns: by=[model,topic]
faithkit score my.csv checkpoint=runs/... columns.context=source columns.answer=reply
faithkit score my.csv checkpoint=runs/... fail_over=0.05     exit code 1 if more are called hallucinated; junit.xml
faithkit score resume=runs/...                           resume after any interruption
faithkit score FOLDER checkpoint=runs/... engine=ray out=SCORED      all shards of a folder on a cluster, by Ray
"""

import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.cli import as_override, run_script

if TYPE_CHECKING:
    from faithkit.files.run_folder import RunFolder
    from faithkit_workflows.detectors.loading import LoadedDetector
    from faithkit_workflows.tables.shares import Share
    from faithkit_workflows.tables.user_table import UserTable

# What a resumed run may change: execution and counting, not the verdicts.
MAY_CHANGE = (
    *(
        "abstain_at",
        "batch_tokens",
        "by",
        "escape_formulas",
        "fail_over",
        "num_resamples",
        "output",
        "save_every_num_rows",
    ),
    "save_texts",
)
GROUPS = ()
SETTINGS = "faithkit_workflows.settings.prediction:ScoreSettings"
log = logging.getLogger("faithkit")


def main(cfg: Any) -> None:
    """Opens the run's folder and scores the table; with engine=ray the shards of a folder.

    Raises:
        LimitExceeded: The share is over `fail_over`, or unknown.
    """
    from faithkit.errors import LimitExceeded
    from faithkit.files.open_run import open_run, resolve_config
    from faithkit.files.run_folder import log_to
    from faithkit.pages.page_tables import format_percent
    from faithkit.weights.resolve import check_available
    from faithkit_workflows.settings.prediction import ScoreSettings
    from faithkit_workflows.tables.user_table import check_output

    if cfg.get("engine") and cfg.engine.name:
        from faithkit.settings.check import check_settings
        from faithkit_workflows.ray.run_shards import work_on_shards
        from faithkit_workflows.ray.shard_worker import Scoring

        check_settings(config := resolve_config(cfg), ScoreSettings)
        work_on_shards(Scoring(config))
        return
    if not cfg.get("resume"):
        check_output(None, cfg)
    opened = open_run(cfg, "score", ScoreSettings, may_change=MAY_CHANGE, check_resumed=check_output)
    with opened as (run, config):
        log_to(run.log)
        check_available(config["checkpoint"])
        share, limit = score(run, config).metric, config["fail_over"]
        if limit is not None and share is None:
            raise LimitExceeded(f"no answer has a verdict, so fail_over={limit:g} cannot be checked")
        if limit is not None and share is not None and share.value > limit:
            problem = f"{format_percent(share)} percent of the answers are called hallucinated"
            raise LimitExceeded(f"{problem}, which is over fail_over={limit:g} ({100 * limit:g} percent)")


def score(run: "RunFolder", config: Mapping[str, Any]) -> "Share":
    """Judges the rows, writes them with the verdicts, and shows the worst rows and the hallucinated share.

    Each step reads the rows again and holds one chunk, so a file may have any size.

    Returns:
        The share of all rows.
    """
    from data_modules.reading.formats import XLSX
    from faithkit.calibration import drop_unsure_labels
    from faithkit.detector import name_others
    from faithkit.files.jsonl import parse_prediction, read_numbered_jsonl, write_jsonl
    from faithkit.languages import describe_other_languages, languages_of
    from faithkit.packages import environment
    from faithkit.pages.page_tables import escape_terminal, print_tables
    from faithkit.reports.write_reports import PAGE, ReportOptions, print_summary
    from faithkit.statistics.metric import full_names, write_results
    from faithkit_workflows.detectors.loading import load_checkpoint, log_models, with_threshold
    from faithkit_workflows.tables import score_results
    from faithkit_workflows.tables.score_results import LabelledRows, describe_next_steps, describe_verdicts
    from faithkit_workflows.tables.shares import ConversationCounter, ShareCounter
    from faithkit_workflows.tables.user_table import (
        ADDED,
        LANGUAGE,
        SPANS,
        as_list,
        names_added,
        open_table_to_judge,
        print_renamed_columns,
        record_output,
        write_scored,
    )

    rows = open_table_to_judge(config, without=[SPANS])
    _show(f"{rows.num_read:,} rows; columns: {rows.description}")
    if rejects := rows.report.rejects:
        write_jsonl(run.path / "rejects.jsonl", rejects)
        number = rows.report.counts["rejected: bad row"]
        _show(f"note: {number:,} rows cannot be scored; the reasons are in {run.path / 'rejects.jsonl'}")
    name = Path(config["path"]).stem
    path = run.predictions / f"{name}.jsonl"
    loaded = with_threshold(load_checkpoint(config), config["threshold"], config["checkpoint"], config["aim"])
    log_models(loaded)
    languages = _judge(run, name, rows, loaded, config)
    added = (*ADDED, LANGUAGE) if languages else ADDED
    source = Path(config["path"]).expanduser()  # Parquet for a saved dataset, CSV for a workbook
    suffix = ".parquet" if source.is_dir() else ".csv" if source.suffix == XLSX else source.suffix
    output = Path(config["output"] or run.path / f"{name}.scored{suffix}").expanduser()
    by, column = as_list(config["by"]), rows.found.label if rows.found else None
    counts = ShareCounter(by, column, unsure_from=getattr(loaded.detector, "unsure_from", None))
    conversations = ConversationCounter()
    kept, cases, labelled = score_results.KeptRows(by), score_results.TestCases(name), LabelledRows()

    def count(*row: Any) -> None:
        for counter in (counts, kept, cases, labelled, conversations):
            counter.add(*row)

    stored = (parse_prediction(row, f"{path}, line {line}") for line, row in read_numbered_jsonl(path))
    with record_output(run, config["output"]):
        kept_labels = drop_unsure_labels(stored, config["abstain_at"])
        write_scored(output, rows, kept_labels, count, added, escape_formulas=config["escape_formulas"])
    shares = counts.shares(num_resamples=config["num_resamples"])
    metrics = counts.metrics(shares, num_resamples=config["num_resamples"])
    table = counts.table(shares, grouped_by=rows.grouped_by)
    if worst := score_results.worst_table(kept):
        print_tables(worst)
    print_tables(table)
    rates = None if labelled.num_rows else getattr(loaded.detector, "rates", None)
    about = [
        *describe_verdicts(shares[0], counts, loaded.models, escape_terminal(config["checkpoint"]), rates),
        *labelled.describe(metrics, column, num_resamples=config["num_resamples"]),
    ]
    asked = (config["path"], path, rows.num_examples, counts, column)
    about += conversations.describe(rows.report)
    if languages:
        about.append(f"note: {describe_other_languages(languages.elements(), languages_of(loaded.detector))}")
    for line in [*about, *describe_next_steps(*asked, config["checkpoint"], has_labels=bool(labelled.num_rows))]:
        _show(line)
    write_results(run.metrics, full_names("test", name, metrics), {"config": config, "environment": environment()})
    cases.write(run.path / "junit.xml")
    if conversations.found:
        write_jsonl(run.path / "conversations.jsonl", conversations.found.values())
    score_results.write_answers_page(run.path / PAGE, name, kept, about=about, table=table, texts=config["save_texts"])
    print(f"rows with verdicts: {escape_terminal(str(output))}")
    print_renamed_columns(names_added(rows))
    print_summary(run, ReportOptions())
    print(name_others(config["checkpoint"]))
    return shares[0]


def _show(line: str) -> None:
    """Prints a line, and keeps it in the log."""
    from faithkit.files.run_folder import FILE_ONLY

    print(line)
    log.info("%s", line, extra=FILE_ONLY)


def _judge(
    run: "RunFolder", name: str, rows: "UserTable", loaded: "LoadedDetector", config: Mapping[str, Any]
) -> Counter[str | None]:
    """Writes a verdict for each row; verdicts of an interrupted run are kept.

    Returns:
        How many rows are in each language that the detector does not read, and in others; empty if all are in others.
    """
    from faithkit.languages import ANY, IGNORE, STOP, WARN, find_other_language, languages_of, report_other_languages
    from faithkit.provenance.predicted_rows import to_line
    from faithkit.provenance.used_model import write_origin
    from faithkit_workflows.answering.write_answers import DetectorAnswerer, describe_run, stream_answers

    path = run.predictions / f"{name}.jsonl"
    options: dict[str, Any] = {
        "chunk_size": config["save_every_num_rows"],
        "line_of": partial(to_line, texts=config["save_texts"]),
        "made_by": describe_run(run, loaded.models),
    }
    on_language = config.get("on_language", WARN)  # a run of an older version has no such key
    languages = (ANY,) if on_language == IGNORE else languages_of(loaded.detector)
    if on_language == STOP:
        others = (find_other_language(one.response, one.knowledge, languages) for one in rows.examples)
        report_other_languages(others, languages, STOP)
    answerer = DetectorAnswerer(loaded.detector, languages)
    answers = stream_answers(path, rows.examples, rows.num_examples, answerer, **options)
    found = Counter(answer.language for answer in answers)
    write_origin(path, name, rows.examples, loaded.models)
    loaded.log_usage()
    return found if any(found) else Counter()


def run() -> None:
    """Runs the command line."""
    run_script(main, "score", __doc__ or "", GROUPS, SETTINGS, prepare=as_override)


if __name__ == "__main__":
    run()
