"""A detector on one benchmark: read, predict (or take given predictions), score."""

import logging
from collections.abc import Mapping
from typing import Any

from data_modules.build import read_benchmark
from data_modules.reading.files import EMBEDDED
from faithkit.environment import environment
from faithkit.evaluation.corpus.report import report_corpus
from faithkit.evaluation.page import write_page
from faithkit.evaluation.published.detection import comparable
from faithkit.evaluation.reports.official_halueval import official_report
from faithkit.evaluation.reports.provenance import Provenance
from faithkit.evaluation.reports.report import joined
from faithkit.evaluation.reports.run import Scored, detection_reports, samples_of, write_reports
from faithkit.evaluation.reports.suppression import report_suppression
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder
from workflows.cascade_benchmark import run_cascade, with_costs
from workflows.detectors import cascade_of, load_configured
from workflows.fitted_baselines import read_fitting
from workflows.official_halueval import as_official, is_official
from workflows.origins import origin_of_file, write_origin
from workflows.rationales import score_rationales
from workflows.retrieving import with_knowledge
from workflows.write_answers import DetectorAnswerer, write_answers

log = logging.getLogger("faithkit")


def run_benchmark(run: RunFolder, config: Mapping[str, Any]) -> Scored:
    """Examples, predictions, metrics; the run's path comes last."""
    config = as_official(config)
    block, num_resamples = config["benchmark"], config["num_resamples"]
    given = read_predictions(config["predictions"]) if config["predictions"] else None
    benchmark = with_knowledge(config, read_benchmark(block))
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    if block["name"] == "analysis":
        # The paper's figures are about its own models' answers: neither the embedded corpus's nor one's own.
        own = block["path"] == EMBEDDED or not comparable(benchmark.examples)
        dataset = "" if own else block["dataset"] or ""
        report_corpus(benchmark.examples, run.path, title=block["dataset"], plots=block["plots"], dataset=dataset)
        print(run.path)
        return Scored({})
    detector, cascade = None, None
    if given is not None:
        origin = origin_of_file(
            config["predictions"], benchmark.name, benchmark.examples, checkpoint=config["checkpoint"]
        )
    else:
        path, portion = run.predictions / f"{benchmark.name}.jsonl", config["save_every_num_rows"]
        cascade = run_cascade(run, config, benchmark) if cascade_of(config).is_on else None
        loaded = cascade.loaded if cascade else load_configured(config, benchmark)
        # A cascade would ask the judge about the rows of fit_on too, for the sake of a second threshold.
        detector = None if cascade else loaded.detector
        written = write_answers(path, benchmark.examples, DetectorAnswerer(loaded.detector), at_a_time=portion)
        loaded.tell()
        if missed := getattr(loaded.detector, "num_unlocated", 0):
            log.info("quoted parts that do not stand in their responses, and so mark nothing: %s", f"{missed:,}")
        given = {prediction.id: prediction for prediction in written}
        write_origin(path, benchmark.name, benchmark.examples, loaded.models)
        origin = Provenance.of(benchmark.name, benchmark.examples, loaded.models)
    if config["html"]:
        write_page(config["html"], benchmark.examples, given, title=f"{benchmark.name}: answers and their marks")
    predictions = list(given.values())
    if block["name"] == "suppression":
        metrics = report_suppression(
            run,
            benchmark.examples,
            predictions,
            groups=block["groups"],
            strategies=block["strategies"],
            meta=meta,
            num_resamples=num_resamples,
            origin=origin,
        )
        return Scored(metrics)
    sets, origins = {benchmark.name: (benchmark.examples, predictions)}, {benchmark.name: origin}
    fitting = read_fitting(run, config, benchmark, detector, origin.models)
    options = {"num_resamples": num_resamples, "num_examples": config["num_examples"]}
    reports = detection_reports(sets, meta=meta, fitting=fitting, origins=origins, **options)
    own, title = reports[benchmark.name], f"test/{benchmark.name}"
    shown = -1 if own[-1].tables else 0  # spans are reported behind labels, and shown in their place
    if cascade is not None:
        own[shown] = with_costs(own[shown], benchmark.examples, cascade, title=title, num_resamples=num_resamples)
    dataset = "" if block["path"] == EMBEDDED else benchmark.name
    others = [
        score_rationales(benchmark.examples, given, block, dataset=dataset, num_resamples=num_resamples),
        official_report(benchmark.examples, given, num_resamples=num_resamples) if is_official(block) else None,
    ]
    for other in others:
        own[shown] = joined(own[shown], other) if other else own[shown]
    return Scored(write_reports(run, reports, meta=meta), samples_of(reports))
