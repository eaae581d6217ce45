"""Tells the results of a run: a headline on the terminal, everything in report.md, the answers on one page."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.detector import GENERATOR, TAGGER
from faithkit.embedded_name import EMBEDDED, data_path
from faithkit.files.atomic import write_text
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import full_names, write_results
from faithkit.pages.page import AnswerSet, write_page
from faithkit.pages.table_text import escape_markdown, to_markdown
from faithkit.pages.tables import escape_terminal, print_tables
from faithkit.records import Example, Prediction
from faithkit.reports.labels import label_report
from faithkit.reports.provenance import Provenance
from faithkit.reports.report import Report, Row
from faithkit.reports.spans import has_spans, span_report
from faithkit.statistics.metric import Metric

REPORT, PAGE = "report.md", "answers.html"
CORPUS_PAGE = "report.html"  # of a run that describes a corpus, and so has no answers
MAX_ALERTS = 6  # lines below a headline
Command = tuple[str, str]  # what can be done next, and what to type for it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """How the results of a run are told.

    Args:
        verbose: The terminal shows all that report.md has.
        texts: The page has the texts of the examples.
        page: The page's file; None for answers.html in the run's folder.
    """

    verbose: bool = False
    texts: bool = True
    page: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ReportOptions":
        """Reads it from a script's configuration; runs of older versions have none of these keys."""
        training = config.get("callbacks") or {}
        return cls(
            verbose=bool(config.get("verbose")),
            texts=bool(config.get("save_texts", training.get("save_texts", True))),
            page=config.get("html"),
        )

    def page_of(self, run: RunFolder) -> Path:
        """Gives the place of the page of a run."""
        return Path(self.page).expanduser() if self.page else run.path / PAGE


def write_reports(run: RunFolder, found: Mapping[str, Sequence[Report]], telling: ReportOptions) -> None:
    """Writes report.md and the page of answers of all test sets, and shows the headline of each."""
    text, sets = [f"# {escape_markdown(run.path.name)}\n"], []
    for name, reports in found.items():
        if not reports:
            continue
        parts = _SetReport.of(reports)
        print_tables(*parts.headline, *(parts.tables if telling.verbose else ()))
        for line in parts.lines if telling.verbose else _shortened(parts.alerts):
            print(escape_terminal(line))
        text += [*map(to_markdown, parts.headline), *(f"{escape_markdown(line)}\n" for line in parts.lines)]
        text += map(to_markdown, parts.tables)
        answers = next((report.answers for report in reports if report.answers), ())
        examples = [example for example, _ in answers]
        said = {prediction.id: prediction for _, prediction in answers}
        by = {column: values for report in reports for column, values in report.by.items()}
        figures, notes = [*parts.headline, *parts.figures], parts.lines
        sets.append(AnswerSet(name=name, examples=examples, predictions=said, tables=figures, notes=notes, by=by))
    if empty := [name for name, reports in found.items() if not reports]:
        print(f"nothing to score, for want of test examples with a label: {', '.join(empty)}")
    write_text(run.path / REPORT, "\n".join(text))
    if any(one.examples for one in sets):
        page, names = telling.page_of(run), [one.name for one in sets if one.tables]
        title = f"{', '.join(names)}: answers of {run.path.name}"
        write_page(page, sets, title=title, about=_about(run, found), texts=telling.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SetReport:
    """All that is told of a test set, the most important first.

    Args:
        headline: The tables that are shown in any case.
        tables: The others.
        figures: These without those of examples.
        alerts: The lines that are shown in any case.
    """

    headline: Sequence[Table]
    tables: Sequence[Table]
    figures: Sequence[Table]
    lines: Sequence[str]
    alerts: Sequence[str]

    @classmethod
    def of(cls, reports: Sequence[Report]) -> "_SetReport":
        main = reports[-1] if reports[-1].tables else reports[0]  # spans tell more than labels, where any is marked
        ordered = [main, *(report for report in reports if report is not main)]
        headline = main.headline or main.tables[:1]
        notes = [f"note: {note}" for report in ordered for note in report.notes]
        return cls(
            headline=headline,
            tables=[table for report in ordered for table in report.tables if table not in headline],
            figures=[table for report in ordered for table in _figure_tables(report) if table not in headline],
            lines=_each_once([*(line for report in ordered for line in report.lines), *notes]),
            alerts=_each_once([*main.alerts, *notes]),
        )


def _figure_tables(report: Report) -> Sequence[Table]:
    """The tables of a report without that of its samples, which stands last."""
    return report.tables[:-1] if report.samples else report.tables


def _shortened(lines: Sequence[str]) -> list[str]:
    """Keeps the first lines, and counts the others."""
    left = len(lines) - MAX_ALERTS
    return [*lines[:MAX_ALERTS], *([f"note: {left} more in {REPORT}"] if left > 0 else [])]


def _each_once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _about(run: RunFolder, found: Mapping[str, Sequence[Report]]) -> list[str]:
    """Names the run and the models of its predictions."""
    models = [model for reports in found.values() for report in reports for model in report.facts.get("models", ())]
    lines = [f"Run: {run.path}"]
    for model in models:
        threshold = f", threshold {model['threshold']}" if model["threshold"] else ""
        lines.append(f"Model: {model['path']} ({model['kind'] or 'not ours'}{threshold})")
    return _each_once(lines)


def print_summary(run: RunFolder, telling: ReportOptions, commands: Sequence[Command] = ()) -> None:
    """Prints what can be done next, and where the results are; a link to the page of the run comes last.

    Args:
        commands: What can be run next.
    """
    for told, command in commands:
        print(f"{told}: {command}")
    for what, path in {"run": run.path, "all figures": run.path / REPORT}.items():
        if path.exists():
            print(f"{what}: {escape_terminal(str(path))}")
    pages = {"answers": telling.page_of(run), "page": run.path / CORPUS_PAGE}
    if found := next(((what, path) for what, path in pages.items() if path.exists()), None):
        what, path = found
        print(f"{what}: {path.absolute().as_uri()}")


TestSets = Mapping[str, tuple[Sequence[Example], Sequence[Prediction]]]
Reports = dict[str, list[Report]]  # of each test set; none where nothing of it is labelled
Origins = Mapping[str, Provenance]


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The end of an evaluation as its loggers get it: metrics by their full names, and of each test set a sample."""

    metrics: Mapping[str, Metric]
    samples: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def detection_reports(
    sets: TestSets,
    *,
    meta: Mapping[str, Any],
    fitting: BaselineData | None = None,
    split: str = "test",
    num_resamples: int = 1000,
    num_examples: int = 5,
    origins: Origins | None = None,
) -> Reports:
    """Scores each test set: by label, and where people marked spans by these too.

    Args:
        sets: For each dataset its labelled examples and their predictions.
        fitting: What the baselines are fitted on.
        split: The first part of the metrics' names.
        origins: Of each test set where its predictions are from; None where nothing is to be said of it.
    """
    reports: Reports = {}
    for name, (examples, predictions) in sets.items():
        reports[name] = []
        if not examples:
            continue
        by_id = {prediction.id: prediction for prediction in predictions}
        options: dict[str, Any] = {
            "title": f"{split}/{name}",
            "fitting": fitting,
            "num_resamples": num_resamples,
            "num_examples": num_examples,
        }
        origin = origins[name] if origins else None
        dataset = "" if _is_embedded(meta) else name
        found = [label_report(examples, by_id, dataset=dataset, origin=origin, **options)]
        if has_spans(examples):
            found.append(span_report(examples, by_id, dataset=dataset, origin=origin, **options))
        answers = [(example, by_id[example.id]) for example in examples]
        reports[name] = [replace(report, answers=answers) for report in found]
    return reports


def write_run_results(
    run: RunFolder, found: Reports, *, meta: Mapping[str, Any], split: str = "test"
) -> dict[str, Metric]:
    """Writes metrics.json, report.md and the page of answers, and shows each test set's headline.

    Args:
        meta: What metrics.json says of itself; its `config` also says how results are told (`ReportOptions`).
        split: The first part of the metrics' names.
    """
    metrics: dict[str, Metric] = {}
    facts: dict[str, Any] = {}
    for name, reports in found.items():
        for report in reports:
            metrics |= full_names(split, name, report.metrics)
            facts |= {name: report.facts} if report.facts else {}
    write_results(run.metrics, metrics, {**meta, "test_sets": facts} if facts else meta)
    write_reports(run, found, ReportOptions.of(meta.get("config") or {}))
    return metrics


def collect_samples(found: Reports) -> dict[str, tuple[Row, ...]]:
    """Gives the sample of predictions of each test set: that of the report which is shown."""
    return {name: reports[-1].samples or reports[0].samples for name, reports in found.items() if reports}


def _is_embedded(meta: Mapping[str, Any]) -> bool:
    """Tells whether our own corpus stood in for the dataset's files, so that published figures do not apply."""
    config = meta.get("config") or {}
    blocks = [meta.get("data"), config.get("benchmark"), config.get("data")]
    return any(isinstance(block, Mapping) and data_path(block) == EMBEDDED for block in blocks)


def suggest_after_training(run: RunFolder, config: Mapping[str, Any]) -> list[Command]:
    """The uses of a model: of a generator to answer, of a detector to score; and how it compares.

    Several seeds are several models: the first one's is used.
    """
    folder = run.stage(f"seed{config['seeds'][0]}") if config.get("seeds") else run
    path, sidecar = shlex.quote(str(folder.path)), sidecar_of(str(folder.path))
    kind = sidecar.kind if sidecar else None
    if kind == GENERATOR:
        return [
            ("talk to it", f"faithkit chat checkpoint={path}"),
            ("write answers", f"faithkit generate checkpoint={path}"),
            ("score its answers", f"faithkit evaluate benchmark=faithdial checkpoint={path}"),
        ]
    benchmark = "ragtruth" if kind == TAGGER else "begin"
    return [
        ("score your own rows", f"faithkit score FILE checkpoint={path}"),
        ("test it elsewhere", f"faithkit evaluate benchmark={benchmark} benchmark.path=FILE checkpoint={path}"),
        ("publish it", f"faithkit export checkpoint={path} output_dir=DIR"),
    ]


def suggest_after_evaluation(run: RunFolder) -> list[Command]:
    """The comparison with other runs, where there are figures to compare."""
    if not run.metrics.exists():
        return []
    return [("compare with another run", f"faithkit report runs=[{shlex.quote(str(run.path))},RUN]")]


def suggest_after_generation(run: RunFolder, config: Mapping[str, Any]) -> list[Command]:
    """The score of the answers, where a benchmark has the same name as the data."""
    from faithkit.settings.config_files import choices_of

    name = config["data"]["name"]
    files = sorted(run.predictions.glob("*.jsonl"))
    if name not in choices_of("benchmark") or len(files) != 1:
        return []
    path = shlex.quote(str(files[0]))
    return [("score the answers", f"faithkit evaluate benchmark={name} predictions={path}")]
