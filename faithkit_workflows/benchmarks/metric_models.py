"""Loads the models that the metrics of responses use, as a benchmark's configuration names them."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from critic.runtime.precision import check_precision
from faithkit.detector import Entailment
from faithkit.errors import UserError
from faithkit.inference.transformers_engine import beam_writer
from faithkit.metrics.responses.bert_score import BertScore, RescaledBertScore, load_with_baseline
from faithkit.metrics.responses.measure_responses import MetricModels
from faithkit.metrics.responses.official import OfficialMetrics, official_q2
from faithkit.metrics.responses.q2 import Q2
from faithkit.metrics.responses.q2_models import ExtractiveAnswers, Seq2SeqQuestions, SpacyCandidates
from faithkit_workflows.detectors.entailment import load_entailment
from faithkit_workflows.detectors.judges import load_judges, measure_judge_error, read_labelled
from faithkit_workflows.detectors.loading import load_detector

log = logging.getLogger("faithkit")


class Q2Models(NamedTuple):
    """The models of Q2."""

    candidates: SpacyCandidates
    questions: Seq2SeqQuestions
    answers: ExtractiveAnswers
    entailment: Entailment


def load_metric_models(config: Mapping[str, Any]) -> MetricModels:
    """Loads the models of the block `benchmark`: critic, judges, bert_score, and q2 with nli; null leaves a metric out.

    Raises:
        UserError: Only some of the models of Q2 are given, or one cannot be loaded.
    """
    block, batch_tokens = config["benchmark"], config["batch_tokens"]
    names, detector, bert_score, baseline, q2, official = block["bert_score"], None, None, None, None, None
    check_precision(config["precision"])
    options = {"precision": config["precision"], "batch_tokens": batch_tokens}
    if block["critic"]:
        detector = load_detector(block["critic"], labels=config.get("labels"), **options)
    labelled = read_labelled(block)
    if names and names["encoder"]:
        bert_score, baseline = load_with_baseline(**names)
    parts = load_q2_models(block["q2"], block["nli"], precision=config["precision"]) if block["q2"] else None
    if parts is not None:
        q2 = Q2(*parts)
    if block.get("official"):
        official = load_official(names, bert_score, baseline, official_q2(*parts) if parts is not None else None)
    return MetricModels(
        detector=detector,
        error=measure_judge_error(detector, labelled) if detector is not None else None,
        others=load_judges(block, labelled, **options),
        bert_score=bert_score,
        q2=q2,
        official=official,
    )


def load_official(
    names: Mapping[str, Any] | None, scorer: BertScore | None, baseline: float | None, q2: Q2 | None
) -> OfficialMetrics:
    """Builds the metrics of the q-squared scripts from the loaded models.

    Args:
        names: The block `bert_score` that the scorer and its baseline were loaded from.
    """
    if names is None or scorer is None:
        return OfficialMetrics(q2=q2)
    if baseline is None:
        encoder, num_layers = names["encoder"], names["num_layers"]
        problem = (
            f"official_bertscore is left out: {encoder} has no published baseline for {num_layers or 'all'} layers"
        )
        return OfficialMetrics(q2=q2, notes=(f"{problem} (benchmark.bert_score.baseline=NUMBER)",))
    return OfficialMetrics(bert_score=RescaledBertScore.of(scorer, baseline), q2=q2)


def load_q2_models(names: Mapping[str, Any], nli: str | None, *, precision: str) -> Q2Models | None:
    """Loads the four models of Q2; returns None if neither its questions nor its answers have a model.

    Args:
        names: candidates (a spaCy pipeline), questions and answers (models), question_template.
        nli: An NLI model or a critic.
        precision: bf16, or auto: bf16 where the hardware supports it; anything else is fp32.
    """
    if not names["questions"] and not names["answers"]:
        return None
    given = {"q2.candidates": names["candidates"], "q2.questions": names["questions"], "q2.answers": names["answers"]}
    missing = [f"benchmark.{name}" for name, model in {**given, "nli": nli}.items() if not model]
    if missing or not nli:
        hint = "give all of its models, or set benchmark.q2.questions and benchmark.q2.answers to null"
        raise UserError(f"Q2 needs {', '.join(missing)}", hint=hint)
    if precision in ("int8", "onnx"):
        log.info("the models of Q2 run in fp32: %s is for detectors", precision)
    return Q2Models(
        SpacyCandidates.load(names["candidates"]),
        Seq2SeqQuestions.load(
            names["questions"], template=names["question_template"], precision=precision, writer=beam_writer
        ),
        ExtractiveAnswers.load(names["answers"], precision=precision),
        load_entailment(nli, precision=precision),
    )
