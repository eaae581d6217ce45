"""Evaluates generated responses, from a predictions file or written by a generator first."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from critic.runtime import check_precision
from data_modules.build import datasets_of, read_benchmark
from faithkit.detector import GENERATOR
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.inference.text import Decoding
from faithkit.metrics.responses.bert_score import RescaledBertScore, load_with_baseline
from faithkit.metrics.responses.measure_responses import MetricModels
from faithkit.metrics.responses.official import OfficialMetrics, official_q2
from faithkit.metrics.responses.q2 import Q2, ExtractiveAnswers, Seq2SeqQuestions, SpacyCandidates
from faithkit.metrics.responses.response_columns import PairedResponses
from faithkit.provenance.used_model import describe_model
from faithkit.reports.response_report import report_responses
from faithkit.reports.write_reports import EvaluationResult
from faithkit.scores.measures import add_measures
from faithkit_workflows.answering.strategies import Answerer, OwnAnswer
from faithkit_workflows.answering.write_answers import read_provenance, write_given, write_with_origin
from faithkit_workflows.detectors.entailment import load_entailment
from faithkit_workflows.detectors.judges import list_judge_models, load_judges, measure_judge_error, read_labelled
from faithkit_workflows.detectors.loading import describe_helpers, load_detector
from generation.generator import Generator

log = logging.getLogger("faithkit")


def load_metric_models(config: Mapping[str, Any]) -> MetricModels:
    """Loads the models of the block `benchmark`: critic, judges, bert_score, and q2 with nli; null leaves a metric out.

    Raises:
        UserError: Only some of the models of Q2 are given, or one cannot be loaded.
    """
    block, batch_tokens = config["benchmark"], config["batch_tokens"]
    names, detector, bert_score, baseline, q2, official = block["bert_score"], None, None, None, None, None
    check_precision(config["precision"])
    add_measures(block.get("metrics") or ())
    options = {"precision": config["precision"], "batch_tokens": batch_tokens}
    if block["critic"]:
        detector = load_detector(block["critic"], labels=config.get("labels"), **options)
    labelled = read_labelled(block, seed=config["seed"])
    if names and names["encoder"]:
        bert_score, baseline = load_with_baseline(**names)
    of_q2, nli, parts = block["q2"] or {}, block["nli"], None
    if of_q2.get("questions") or of_q2.get("answers"):
        given = {f"benchmark.q2.{name}": of_q2[name] for name in ("candidates", "questions", "answers")}
        if missing := [name for name, model in {**given, "benchmark.nli": nli}.items() if not model]:
            hint = "give all of its models, or set benchmark.q2.questions and benchmark.q2.answers to null"
            raise UserError(f"Q2 needs {', '.join(missing)}", hint=hint)
        if config["precision"] in ("int8", "onnx"):
            log.info("the models of Q2 run in fp32: %s is for detectors", config["precision"])
        template, precision = of_q2["question_template"], config["precision"]
        candidates = SpacyCandidates.load(of_q2["candidates"])
        questions = Seq2SeqQuestions.load(of_q2["questions"], template=template, precision=precision)
        answers = ExtractiveAnswers.load(of_q2["answers"], precision=precision)
        entailment = load_entailment(nli, precision=precision)
        parts = candidates, questions, answers, entailment
        q2 = Q2(candidates.candidates, questions.questions, answers.answers, entailment)
    if block.get("official"):  # the metrics of the q-squared scripts
        official = OfficialMetrics(q2=official_q2(*parts) if parts is not None else None)
        if bert_score is not None and baseline is not None:
            official = replace(official, bert_score=RescaledBertScore.of(bert_score, baseline))
        elif bert_score is not None:
            layers = f"for {names['num_layers'] or 'all'} layers (benchmark.bert_score.baseline=NUMBER)"
            note = f"official_bertscore is left out: {names['encoder']} has no published baseline {layers}"
            official = replace(official, notes=(note,))
    return MetricModels(
        detector=detector,
        error=measure_judge_error(detector, labelled) if detector is not None else None,
        others=load_judges(block, labelled, **options),
        bert_score=bert_score,
        q2=q2,
        official=official,
    )


def run_response_benchmark(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the examples of each dataset and their responses, and writes the metrics of the responses.

    Examples and files are read, and missing responses are generated, before any metric loads its model.
    """
    load = cache(lambda: _load_answerer(config))  # for the first benchmark; the others reuse the generator
    sets, summaries, files = {}, {}, {}
    for name, block in datasets_of(config["benchmark"]).items():
        given = {key: read_predictions(block[key]) if block[key] else None for key in ("predictions", "against")}
        benchmark = read_benchmark(block, labelled=False, seed=config["seed"])
        responses = given["predictions"]
        if not responses:
            used = [describe_model(config["checkpoint"])]
            responses = write_with_origin(run, config, benchmark.name, benchmark.examples, load(), used)
        sets[name] = PairedResponses.of(benchmark.examples, responses, given["against"], incomplete=block["incomplete"])
        if given["predictions"]:
            path, texts = run.predictions / f"{benchmark.name}.jsonl", config["save_texts"]
            write_given(path, sets[name].examples, responses, texts=texts, generated=True)
        summaries[name] = benchmark.summary
        files[name] = block["predictions"] or str(run.predictions / f"{benchmark.name}.jsonl")
    models, block = load_metric_models(config), config["benchmark"]
    judges = describe_helpers({**list_judge_models(block), "entailment model": block["nli"] if models.q2 else None})
    origins = {
        name: read_provenance(files[name], name, paired.examples, checkpoint=config["checkpoint"], others=judges)
        for name, paired in sets.items()
    }
    return report_responses(run, sets, models, config=config, data=summaries, origins=origins)


def _load_answerer(config: Mapping[str, Any]) -> Answerer:
    checkpoint = config["checkpoint"]
    if not checkpoint:
        hint = "predictions=FILE with the responses, or checkpoint=PATH of a generator"
        raise UserError("nothing to score: neither predictions nor checkpoint is given", hint=hint)
    sidecar = sidecar_of(checkpoint)  # for a hub name, the generator's loader reports the error
    if sidecar is not None and sidecar.kind != GENERATOR:
        hint = (
            f"benchmark.critic={checkpoint} judges the responses of predictions=FILE with it; "
            "pairs with labels are in benchmark=faithcritic"
        )
        problem = f"this benchmark needs a generator, and the checkpoint is a {sidecar.kind}"
        raise UserError(problem, place=checkpoint, hint=hint)
    generator = Generator.load(checkpoint, precision=config["precision"], max_length=config["max_length"])
    return OwnAnswer(generator, Decoding(**config["decoding"]))
