"""`benchmark=domains`: one detector, or given predictions, on every domain, beside baselines that never saw it."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from faithkit.environment import environment
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.classification import classification_metrics
from faithkit.metrics.outcomes import align_predictions, join_outcomes
from faithkit.metrics.results import full_names, write_results
from faithkit.provenance.seen_rows import WITHOUT_LEAKED, find_leaks
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance
from faithkit.reports.report import Report
from faithkit.reports.write_reports import EvaluationResult, ReportOptions, write_reports
from faithkit.statistics.metric import Metric
from faithkit.weights.used_model import UsedModel, describe_model
from faithkit_workflows.answering.prediction_files import predict_and_write, read_provenance, write_given
from faithkit_workflows.detectors.configured import load_configured
from faithkit_workflows.domains.baselines import DomainBaselines
from faithkit_workflows.domains.definition import read_domains
from faithkit_workflows.domains.features import Features
from faithkit_workflows.domains.report import domains_report
from faithkit_workflows.domains.response_alone import response_alone, telling_words
from faithkit_workflows.domains.rows import DEV, DomainRows, Rows, read_domain
from faithkit_workflows.domains.test_accesses import count_looks, is_look, record_looks
from faithkit_workflows.domains.tested import DomainTest

NAME = "domains"
log = logging.getLogger("faithkit")


def run_domains(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the domains, judges their rows, fits the baselines, and writes and tells the results."""
    block = config["benchmark"]
    domains = read_all(block)
    tested = {name: own.part(block["part"]) for name, own in domains.items()}
    by = str(config["checkpoint"] or config["predictions"])
    record_looks(tested, by, part=block["part"], root=block["path"])
    shown = [example for rows in tested.values() for example in rows.shown]
    predictions, models, notes = _judge(run, config, shown)
    features = Features(run.path / "features", encoder=block["encoder"])
    baselines = DomainBaselines(domains, features, nli=block["nli"], max_fit_rows=block["max_fit_rows"])
    tests: list[DomainTest] = []
    facts: dict[str, Any] = {}
    without_leaked: dict[str, Metric] = {}
    for name, rows in tested.items():
        log.info("%s: fitting its baselines on other domains", name)
        origin = Provenance.of(name, rows.originals, models)
        said = {example.id: predictions[example.id] for example in rows.shown}
        fitted = baselines.fit(name, rows.shown, block["part"])
        tests.append(
            DomainTest(
                name=name,
                title=domains[name].domain.title,
                examples=rows.shown,
                predictions=said,
                baselines=[one.baseline for one in fitted],
                beside=domains[name].domain.beside,
                alone=response_alone(rows.shown, num_resamples=config["num_resamples"]),
                telling=telling_words(rows.shown),
                kin=domains[name].domain.kin,
                seen=None if any(leaks is None for leaks in origin.leaks) or not models else origin.leaked,
            )
        )
        without_leaked |= _without_leaked(name, rows, said, origin, config["num_resamples"])
        facts[name] = origin.to_dict() | {"baselines": {one.baseline.key: one.fitted.to_dict() for one in fitted}}
    notes += nli_notes(baselines, tested)
    report = domains_report(
        tests,
        title=f"test/{NAME} ({block['part']})",
        num_resamples=config["num_resamples"],
        num_examples=config["num_examples"],
    )
    looks = looks_at(domains)
    metrics = full_names("test", NAME, {**report.metrics, **without_leaked})
    meta = {"config": config, "part": block["part"], "looks": looks, "environment": environment()}
    write_results(run.metrics, metrics, {**meta, "test_sets": facts})
    lines = (*_look_lines(block["part"], block["path"], looks), *(f"note: {note}" for note in notes))
    origins = {"models": [one for own in facts.values() for one in own["models"]]}
    told = replace(report, lines=(*lines, *report.lines), alerts=lines, facts=origins)
    answers = {
        name: [Report(metrics={}, answers=[(example, predictions[example.id]) for example in rows.shown])]
        for name, rows in tested.items()
    }
    write_reports(run, {NAME: [told], **answers}, ReportOptions.of(config))
    return EvaluationResult(metrics, {NAME: report.samples})


def read_all(block: Mapping[str, Any]) -> dict[str, DomainRows]:
    """Reads the rows of the domains of a `benchmark` block."""
    domains = read_domains(block["domains"], block["only"])
    return {
        name: read_domain(domain, block["path"], on_bad_row=block["on_bad_row"]) for name, domain in domains.items()
    }


def _judge(
    run: RunFolder, config: Mapping[str, Any], shown: list[Example]
) -> tuple[Mapping[str, Prediction], list[UsedModel], list[str]]:
    """Gives the predictions of all rows, the models that they are from, and notes."""
    path, texts = run.predictions / f"{NAME}.jsonl", config.get("save_texts", True)
    if config["predictions"]:
        given = read_predictions(config["predictions"])
        origin = read_provenance(config["predictions"], NAME, shown, checkpoint=config["checkpoint"])
        kept = {example.id: given[example.id] for example in shown if example.id in given}
        align_predictions(shown, kept)  # tells what is missing before any work
        write_given(path, shown, kept, texts=texts)
        return kept, list(origin.models), list(origin.notes)
    loaded = load_configured(config)
    portion = config["save_every_num_rows"]
    predictions, _ = predict_and_write(path, NAME, shown, loaded, chunk_size=portion, texts=texts)
    return predictions, loaded.models, []


def nli_notes(baselines: DomainBaselines, tested: Mapping[str, Rows]) -> list[str]:
    """Tells where the NLI model has seen what is tested, so that NLI alone is no outsider there."""
    notes = []
    for name, rows in tested.items():
        nli = baselines.nli_of(name)
        seen = describe_model(nli).seen if nli else None
        if seen is not None and (number := int(find_leaks(rows.originals, seen).rows.sum())):
            what = f"the NLI model has seen {number:,} of {len(rows):,} rows of {name}"
            notes.append(f"{what}, so NLI alone knows more there than any outsider: benchmark.domains.{name}.nli=OTHER")
    return notes


def _without_leaked(
    name: str, rows: Rows, said: Mapping[str, Prediction], origin: Provenance, num_resamples: int
) -> dict[str, Metric]:
    """The metrics of a domain's rows that are new to the model, where only some are."""
    leaked = np.array(origin.leaked, bool)
    if not leaked.any() or leaked.all():
        return {}
    found = classification_metrics(join_outcomes(rows.shown, said).select(~leaked), num_resamples=num_resamples).metrics
    return {f"{name}/{WITHOUT_LEAKED}{metric}": value for metric, value in found.items()}


def looks_at(domains: Mapping[str, DomainRows]) -> dict[str, dict[str, int]]:
    """Counts the looks at each domain: before there were halves, and at its held half since."""
    since = count_looks()
    return {name: {"before": own.domain.looks, "held": since[name]} for name, own in domains.items()}


def _look_lines(part: str, root: str, looks: Mapping[str, Mapping[str, int]]) -> list[str]:
    counts = ", ".join(f"{name} {own['held']}" for name, own in looks.items() if own["held"])
    counted = "a look at held rows, counted" if is_look(part, root) else "held rows of the stand-in, no look"
    here = "rows of the dev half" if part == DEV else f"part {part}: {counted}"
    return [f"{here}; looks at held halves so far: {counts or 'none'}"]
