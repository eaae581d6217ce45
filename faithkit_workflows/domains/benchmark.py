"""Runs `benchmark=domains`: one detector, or given predictions, on every domain, with baselines of other domains."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from faithkit.files.cache import cache_dir
from faithkit.files.jsonl import JsonlAppender, read_jsonl, read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.classification import align_predictions, join_outcomes
from faithkit.metrics.results import full_names, write_results
from faithkit.packages import environment
from faithkit.provenance.seen_rows import find_leaks
from faithkit.provenance.used_model import UsedModel, describe_model
from faithkit.records import Example, Prediction
from faithkit.reports.report import Provenance, Report, metrics_without_leaked
from faithkit.reports.write_reports import EvaluationResult, ReportOptions, write_reports
from faithkit.settings.config_files import EMBEDDED
from faithkit.statistics.metric import Metric
from faithkit_workflows.answering.write_answers import predict_and_write, read_provenance, write_given
from faithkit_workflows.benchmarks.configured import load_configured
from faithkit_workflows.domains.baselines import DomainBaselines, Features, measure_response_only
from faithkit_workflows.domains.domain_rows import read_all_domains
from faithkit_workflows.domains.report import DomainTest, report_domains
from faithkit_workflows.settings.benchmark_blocks import DEV

NAME, ACCESSES = "domains", "test_accesses.jsonl"
log = logging.getLogger("faithkit")


def run_domains(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the domains, predicts their rows, fits the baselines, and writes the results."""
    block, num_resamples = config["benchmark"], config["num_resamples"]
    part = block["part"]
    domains = read_all_domains(block)
    tested = {name: rows.select_part(part) for name, rows in domains.items()}
    is_access = part != DEV and block["path"] != EMBEDDED  # scoring uses held-out labels of the real corpora
    if is_access:
        accessed = {"by": str(config["checkpoint"] or config["predictions"])}
        with JsonlAppender(cache_dir("domains") / ACCESSES) as file:
            for name in tested:
                file.append({"domain": name, **accessed, "at": datetime.now(UTC).isoformat(timespec="seconds")})
    inputs = [example for rows in tested.values() for example in rows.inputs]
    predictions, models, notes = _predict(run, config, inputs)
    features = Features(run.path / "features", encoder=block["encoder"])
    baselines = DomainBaselines(domains, features, nli=block["nli"], max_fit_rows=block["max_fit_rows"])
    tests: list[DomainTest] = []
    test_sets: dict[str, Any] = {}
    without_leaked: dict[str, Metric] = {}
    for name, rows in tested.items():
        log.info("%s: fitting its baselines on other domains", name)
        domain = domains[name].domain
        origin = Provenance.of(name, rows.originals, models)
        of_domain = {example.id: predictions[example.id] for example in rows.inputs}
        fitted = baselines.fit(name, rows.inputs, part)
        is_known = models and all(leaks is not None for leaks in origin.leaks)
        tests.append(
            DomainTest(
                name=name,
                title=domain.title,
                examples=rows.inputs,
                predictions=of_domain,
                baselines=fitted,
                extra=domain.extra,
                response_only=measure_response_only(rows.inputs, num_resamples=num_resamples),
                related_domains=domain.related_domains,
                seen=origin.leaked if is_known else None,
            )
        )
        outcomes = join_outcomes(rows.inputs, of_domain)
        found = metrics_without_leaked(outcomes, origin.leaked, num_resamples=num_resamples)
        without_leaked |= {f"{name}/{metric}": value for metric, value in found.items()}
        test_sets[name] = origin.to_dict() | {"baselines": {one.key: one.facts for one in fitted}}
    for name, rows in tested.items():  # rows that the NLI model was trained on
        nli = baselines.find_nli(name)
        known = describe_model(nli).seen if nli else None
        if known is not None and (number := int(find_leaks(rows.originals, known).rows.sum())):
            what = f"the NLI model was trained on {number:,} of {len(rows):,} rows of {name}"
            notes.append(f"{what}, so NLI alone is not a fair baseline there: benchmark.domains.{name}.nli=OTHER")
    options = {"num_resamples": num_resamples, "num_examples": config["num_examples"]}
    report = report_domains(tests, title=f"test/{NAME} ({part})", **options)
    since = count_test_accesses()
    accesses = {name: {"before": rows.domain.test_accesses, "held": since[name]} for name, rows in domains.items()}
    metrics = full_names("test", NAME, {**report.metrics, **without_leaked})
    meta = {"config": config, "part": part, "test_accesses": accesses, "environment": environment()}
    write_results(run.metrics, metrics, {**meta, "test_sets": test_sets})
    held = ", ".join(f"{name} {counts['held']}" for name, counts in accesses.items() if counts["held"])
    kind = "a test access, counted" if is_access else "embedded held-out rows, not counted"
    accessed_part = "rows of the dev half" if part == DEV else f"part {part}: {kind}"
    lines = (f"{accessed_part}; test accesses so far: {held or 'none'}", *(f"note: {note}" for note in notes))
    facts = {"models": [model for test_set in test_sets.values() for model in test_set["models"]]}
    answers = {
        name: [Report(metrics={}, answers=[(example, predictions[example.id]) for example in rows.inputs])]
        for name, rows in tested.items()
    }
    complete = replace(report, lines=(*lines, *report.lines), alerts=lines, facts=facts)
    write_reports(run, {NAME: [complete], **answers}, ReportOptions.of(config))
    return EvaluationResult(metrics, {NAME: report.samples})


def _predict(
    run: RunFolder, config: Mapping[str, Any], inputs: list[Example]
) -> tuple[Mapping[str, Prediction], list[UsedModel], list[str]]:
    """Returns the predictions of all rows, the models that made them, and notes."""
    if config["predictions"]:
        given = read_predictions(config["predictions"])
        origin = read_provenance(config["predictions"], NAME, inputs, checkpoint=config["checkpoint"])
        kept = {example.id: given[example.id] for example in inputs if example.id in given}
        align_predictions(inputs, kept)  # reports missing predictions before any work
        write_given(run.predictions / f"{NAME}.jsonl", inputs, kept, texts=config["save_texts"])
        return kept, list(origin.models), list(origin.notes)
    loaded = load_configured(config)
    predictions, _ = predict_and_write(run, config, NAME, inputs, loaded)
    return predictions, loaded.models, []


def count_test_accesses() -> Counter[str]:
    """Counts the accesses to each domain's held-out rows so far."""
    path = cache_dir("domains") / ACCESSES
    return Counter(str(row["domain"]) for row in read_jsonl(path)) if path.exists() else Counter()
