"""The models of the metrics of responses, critics among them, as a benchmark's configuration names them."""

import logging
from collections.abc import Mapping
from typing import Any

from critic.precision import check_precision
from faithkit.errors import UserError
from faithkit.evaluation.responses.bert_score import BertScore
from faithkit.evaluation.responses.measure import Models
from faithkit.evaluation.responses.q2.answers import ExtractiveAnswers
from faithkit.evaluation.responses.q2.candidates import SpacyCandidates
from faithkit.evaluation.responses.q2.questions import Seq2SeqQuestions
from faithkit.evaluation.responses.q2.score import Q2
from faithkit.inference.foreign_model_beams import beam_writer
from workflows.detectors import load_detector
from workflows.entailment import load_entailment
from workflows.judges import error_of, load_judges, read_labelled

log = logging.getLogger("faithkit")


def load_metric_models(config: Mapping[str, Any]) -> Models:
    """Loads what the `benchmark` block names: critic, judges, bert_score, and q2 with nli; null leaves a metric out.

    Raises:
        UserError: Q2 has some of its models, but not all; or one cannot be loaded.
    """
    block, batch_tokens = config["benchmark"], config["batch_tokens"]
    bert_score, detector = block["bert_score"], None
    check_precision(config["precision"])
    options = {"precision": config["precision"], "batch_tokens": batch_tokens}
    labelled = read_labelled(block)
    if block["critic"]:
        detector = load_detector(block["critic"], labels=config.get("labels"), **options)
    return Models(
        detector=detector,
        error=error_of(detector, labelled) if detector is not None else None,
        others=load_judges(block, labelled, **options),
        bert_score=BertScore.load(bert_score["encoder"], num_layers=bert_score["num_layers"])
        if bert_score and bert_score["encoder"]
        else None,
        q2=load_q2(block["q2"], block["nli"], precision=config["precision"]) if block["q2"] else None,
    )


def load_q2(names: Mapping[str, Any], nli: str | None, *, precision: str) -> Q2 | None:
    """Q2 with its models; None where neither its questions nor its answers have one.

    Args:
        names: candidates (a spaCy pipeline), questions and answers (models), question_template.
        nli: An NLI model or a critic.
        precision: Of its models: bf16, or auto where the hardware computes in bf16; else they stay in fp32.
    """
    if not names["questions"] and not names["answers"]:
        return None
    given = {"q2.candidates": names["candidates"], "q2.questions": names["questions"], "q2.answers": names["answers"]}
    missing = [f"benchmark.{name}" for name, model in {**given, "nli": nli}.items() if not model]
    if missing or not nli:
        hint = "give all of its models, or set benchmark.q2.questions and benchmark.q2.answers to null"
        raise UserError(f"Q2 lacks {', '.join(missing)}", hint=hint)
    if precision == "int8":
        log.info("Q2's models stay in fp32: int8 is for detectors")
    return Q2(
        SpacyCandidates.load(names["candidates"]),
        Seq2SeqQuestions.load(
            names["questions"], template=names["question_template"], precision=precision, writer=beam_writer
        ),
        ExtractiveAnswers.load(names["answers"], precision=precision),
        load_entailment(nli, precision=precision),
    )
