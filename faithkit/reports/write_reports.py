"""Builds the reports of a run's test sets and writes them: metrics.json, report.md, the page of answers, a summary."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.detector import CRITIC, GENERATOR, TAGGER
from faithkit.files.atomic import write_text
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.classification import REPORTED_UNPARSED
from faithkit.packages import environment
from faithkit.pages.page import AnswerSet, write_page
from faithkit.pages.page_tables import escape_markdown, escape_terminal, print_tables, to_markdown
from faithkit.records import Example, Prediction
from faithkit.reports.label_tables import TYPES, label_report
from faithkit.reports.report import Provenance, Report, Sample, add_provenance
from faithkit.reports.span_report import has_spans, span_report
from faithkit.settings.config_files import EMBEDDED, data_path, display_name
from faithkit.statistics.bootstrap import Decision, read_conclusions
from faithkit.statistics.metric import Metric, full_names, read_meta, write_results

REPORT, PAGE = "report.md", "answers.html"
Command = tuple[str, str]  # what can be done next, and the command for it
Reports = dict[str, list[Report]]  # by test set; empty where none of its examples is labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What a run shows and writes of its results.

    Args:
        verbose: Prints all of report.md to the terminal.
        texts: Includes the texts of the examples in the page.
        page: The page's file; None for answers.html in the run's folder.
    """

    verbose: bool = False
    texts: bool = True
    page: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ReportOptions":
        """Reads the options from a script's configuration; not every script has all of them."""
        training = config.get("callbacks") or {}
        return cls(
            verbose=bool(config.get("verbose")),
            texts=bool(config.get("save_texts", training.get("save_texts", True))),
            page=config.get("html"),
        )


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What loggers get of an evaluation: metrics by their full names, and a sample of each test set."""

    metrics: Mapping[str, Metric]
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)


def detection_reports(
    sets: Mapping[str, tuple[Sequence[Example], Sequence[Prediction]]],
    *,
    meta: Mapping[str, Any],
    baseline_data: BaselineData | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
    origins: Mapping[str, Provenance] | None = None,
) -> Reports:
    """Scores each test set by label and, where spans are marked in the data, by spans.

    Args:
        sets: The labelled examples of each dataset, with their predictions.
        baseline_data: The rows that baselines are fitted on.
        origins: Where the predictions of each test set are from; None leaves it out.
    """
    reports: Reports = {}
    data = baseline_data or BaselineData()
    for name, (examples, predictions) in sets.items():
        reports[name] = []
        if not examples:
            continue
        by_id = {prediction.id: prediction for prediction in predictions}
        title, origin = f"test/{name}", origins[name] if origins else None
        tested = {display_name(example.source, EMBEDDED if _is_embedded(meta) else None) for example in examples}
        options: dict[str, Any] = {
            "title": title,
            "dataset": "" if _is_embedded(meta) else name,
            "baseline_data": replace(data, fits_tested=tested <= data.sources),
            "num_resamples": num_resamples,
            "num_examples": num_examples,
        }
        found = [label_report(examples, by_id, **options)]
        if has_spans(examples):
            is_critic = origin is not None and {model.kind for model in origin.models} == {CRITIC}
            of_spans = span_report(examples, by_id, is_critic=is_critic, **options)
            # The last one is shown first: the errors of everyday answers have types by response.
            found.insert(0 if examples[0].source in TYPES else 1, of_spans)
        answers = [(example, by_id[example.id]) for example in examples]
        reports[name] = [replace(add_provenance(one, origin, title=title), answers=answers) for one in found]
    return reports


def _is_embedded(meta: Mapping[str, Any]) -> bool:
    """Checks whether the embedded corpus replaced the dataset, so that published figures do not apply."""
    config = meta.get("config") or {}
    blocks = [meta.get("data"), config.get("benchmark"), config.get("data")]
    return any(isinstance(block, Mapping) and data_path(block) == EMBEDDED for block in blocks)


def write_run_results(run: RunFolder, reports: Reports, *, meta: Mapping[str, Any]) -> dict[str, Metric]:
    """Writes metrics.json, report.md and the page of answers, and prints the headline of each test set.

    Args:
        meta: The block `meta` of metrics.json; its `config` has the `ReportOptions`, too.
    """
    metrics: dict[str, Metric] = {}
    facts: dict[str, Any] = {}
    for name, found in reports.items():
        for report in found:
            metrics |= full_names("test", name, report.metrics)
            facts |= {name: report.facts} if report.facts else {}
        if conclusion := (found[-1] if found[-1].tables else found[0]).conclusion if found else None:
            facts[name] = {**facts.get(name, {}), "conclusion": conclusion.to_dict()}
    write_results(run.metrics, metrics, {**meta, "test_sets": facts} if facts else meta)
    write_reports(run, reports, ReportOptions.of(meta.get("config") or {}))
    return metrics


def write_benchmark_results(
    run: RunFolder,
    reports: Reports,
    config: Mapping[str, Any],
    data: Mapping[str, Any],
    samples: Mapping[str, Sequence[Sample]] | None = None,
) -> EvaluationResult:
    """Writes the results of a benchmark with its configuration, what was read, and the environment as `meta`."""
    meta = {"config": config, "data": data, "environment": environment()}
    return EvaluationResult(write_run_results(run, reports, meta=meta), samples or {})


def collect_samples(reports: Reports) -> dict[str, tuple[Sample, ...]]:
    """Collects the sample of predictions of each test set, that of the report which is shown."""
    return {name: found[-1].samples or found[0].samples for name, found in reports.items() if found}


def write_reports(run: RunFolder, reports: Mapping[str, Sequence[Report]], options: ReportOptions) -> None:
    """Writes report.md and the page of answers of all test sets, and prints the headline of each."""
    text, sets = [f"# {escape_markdown(run.path.name)}\n"], []
    for name, found in reports.items():
        if not found:
            continue
        main = found[-1] if found[-1].tables else found[0]  # of spans before labels, if any is predicted
        ordered = [main, *(report for report in found if report is not main)]  # the most important first
        headline = main.headline or main.tables[:1]
        tables = [table for one in ordered for table in one.tables if table not in headline]
        samples = [one.tables[-1] for one in found if one.samples]
        notes = [f"note: {note}" for one in ordered for note in one.notes]
        first = [f"conclusion: {main.conclusion.text}"] if main.conclusion else []
        for one in found:
            for full_name, metric in one.metrics.items():  # of all rows
                rate, _, judge = full_name.partition("/")
                if rate in ("unparsed_rate", "invalid_rate") and metric.value > REPORTED_UNPARSED:
                    of = f"of the replies{' of ' * bool(judge)}{judge}"
                    first.append(f"unparsed: {metric.value:.1%} {of} could not be read")
        first = list(dict.fromkeys(first))
        lines = list(dict.fromkeys([*first, *(line for one in ordered for line in one.lines), *notes]))
        alerts = list(dict.fromkeys([*main.alerts, *notes]))
        left = len(alerts) - 6
        shown = [*first, *alerts[:6], *([f"note: {left} more in {REPORT}"] if left > 0 else [])]
        print_tables(*headline, *(tables if options.verbose else ()))
        for line in lines if options.verbose else shown:
            print(escape_terminal(line))
        text += [*map(to_markdown, headline), *(f"{escape_markdown(line)}\n" for line in lines)]
        text += map(to_markdown, tables)
        answers = next((report.answers for report in found if report.answers), ())
        sets.append(
            AnswerSet(
                name=name,
                examples=[example for example, _ in answers],
                predictions={prediction.id: prediction for _, prediction in answers},
                tables=[*headline, *(table for table in tables if table not in samples)],
                notes=lines,
                by={column: values for report in found for column, values in report.by.items()},
            )
        )
    if empty := [name for name, found in reports.items() if not found]:
        print(f"nothing to score: no test example has a label in {', '.join(empty)}")
    write_text(run.path / REPORT, "\n".join(text))
    if any(one.examples for one in sets):
        names = [one.name for one in sets if one.tables]
        title = f"{', '.join(names)}: answers of {run.path.name}"
        about = [f"Run: {run.path}"]
        for model in (model for found in reports.values() for one in found for model in one.facts.get("models", ())):
            threshold = f", threshold {model['threshold']}" if model["threshold"] else ""
            about.append(f"Model: {model['path']} ({model['kind'] or 'not ours'}{threshold})")
        page = Path(options.page).expanduser() if options.page else run.path / PAGE
        write_page(page, sets, title=title, about=list(dict.fromkeys(about)), texts=options.texts)


def print_summary(run: RunFolder, options: ReportOptions, commands: Sequence[Command] = ()) -> None:
    """Prints commands for what can be done next, and the paths of the results, the run's page last."""
    for purpose, command in commands:
        print(f"{purpose}: {command}")
    for name, path in {"run": run.path, "all figures": run.path / REPORT}.items():
        if path.exists():
            print(f"{name}: {escape_terminal(str(path))}")
    page = Path(options.page).expanduser() if options.page else run.path / PAGE
    pages = {"answers": page, "page": run.path / "report.html"}  # a run that describes a corpus has no answers
    if found := next(((name, path) for name, path in pages.items() if path.exists()), None):
        print(f"{found[0]}: {found[1].absolute().as_uri()}")


def suggest_after_training(run: RunFolder, config: Mapping[str, Any]) -> list[Command]:
    """Suggests uses of the model: a generator answers, a detector scores; of several seeds the first model."""
    folder = run.stage(f"seed{config['seeds'][0]}") if config.get("seeds") else run
    path, sidecar = shlex.quote(str(folder.path)), sidecar_of(str(folder.path))
    kind = sidecar.kind if sidecar else None
    if kind == GENERATOR:
        return [
            ("chat", f"faithkit chat checkpoint={path}"),
            ("write answers", f"faithkit generate checkpoint={path}"),
            ("score its answers", f"faithkit evaluate benchmark=faithdial checkpoint={path}"),
        ]
    benchmark = "ragtruth" if kind == TAGGER else "begin"
    return [
        ("score your rows", f"faithkit score FILE checkpoint={path}"),
        ("test it elsewhere", f"faithkit evaluate benchmark={benchmark} benchmark.path=FILE checkpoint={path}"),
        *suggest_by_verdict(read_meta(folder.metrics), str(folder.path)),
    ]


def suggest_after_evaluation(run: RunFolder, checkpoint: str | None = None) -> list[Command]:
    """Suggests a comparison with other runs, if there are metrics to compare, and what the verdict on a run suggests.

    Args:
        checkpoint: The evaluated model.
    """
    if not run.metrics.exists():
        return []
    compare = ("compare with another run", f"faithkit report runs=[{shlex.quote(str(run.path))},RUN]")
    return [compare, *suggest_by_verdict(read_meta(run.metrics), checkpoint)]


def suggest_by_verdict(meta: Mapping[str, Any], checkpoint: str | None) -> list[Command]:
    """Suggests to publish a detector that is better than the strongest baseline, and what to try with another one.

    Args:
        meta: Of metrics.json, with the conclusions.
        checkpoint: The model; no folder here, such as a hub name, gets no suggestion.
    """
    sidecar, verdicts = sidecar_of(checkpoint), [one.verdict for one in read_conclusions(meta).values()]
    if sidecar is None or not verdicts or sidecar.kind == GENERATOR:
        return []
    verdict = min(verdicts, key=list(Decision).index)  # the least favourable on the test sets
    path = shlex.quote(str(checkpoint))
    if verdict is Decision.BETTER:
        return [("publish it", f"faithkit export checkpoint={path} output_dir=DIR")]
    if verdict is Decision.TOO_FEW:
        test = f"faithkit evaluate benchmark=pairs benchmark.path=FILE checkpoint={path}"
        return [("test it on more rows", test)]
    return [
        (
            "train it on your rows, docs/start/own_data.md",
            f"faithkit train model={sidecar.kind} data=pairs data.path=FILE",
        ),
        ("or choose another recipe, docs/start/models.md", "faithkit models"),
    ]


def suggest_after_generation(run: RunFolder, config: Mapping[str, Any]) -> list[Command]:
    """Suggests to score the answers, if a benchmark has the same name as the data."""
    from faithkit.settings.config_files import choices_of

    name = config["data"]["name"]
    files = sorted(run.predictions.glob("*.jsonl"))
    if name not in choices_of("benchmark") or len(files) != 1:
        return []
    return [("score the answers", f"faithkit evaluate benchmark={name} predictions={shlex.quote(str(files[0]))}")]
