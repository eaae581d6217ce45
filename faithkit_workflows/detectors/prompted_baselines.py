"""Loads the prompted baselines as a configuration names them: SelfCheckGPT, and an examiner (LMvLM)."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from data_modules.build import Benchmark
from faithkit.errors import UserError
from faithkit.inference.text import TextEngine
from faithkit.inference.text_engines import OPENAI, EngineOptions, build_text_engine
from faithkit.weights.used_model import UsedModel
from faithkit_workflows.detectors.baseline_fitting import read_fitting_rows
from faithkit_workflows.detectors.entailment import load_entailment
from faithkit_workflows.detectors.judging import describe_judge, tell_engine
from faithkit_workflows.detectors.loading import Loaded
from faithkit_workflows.detectors.origins import helpers_of
from judge import selfcheck_options as selfcheck
from judge.examiner import Examiner
from judge.examiner_options import ExaminerOptions
from judge.questions import read_text_prompt
from judge.samples import Drawn, EngineSamples, OtherResponses
from judge.selfcheck import SelfCheck
from judge.selfcheck_measures import BertScores, Measure, Ngrams, Nli, Prompted
from judge.selfcheck_options import SelfCheckOptions

SAMPLER, EXAMINEE = "sampler", "examinee"  # roles of models
log = logging.getLogger("faithkit")


def load_selfcheck(config: Mapping[str, Any], benchmark: Benchmark) -> Loaded:
    """Loads SelfCheckGPT by the block `selfcheck`.

    Args:
        benchmark: Where the samples are the other models' responses, they are among its rows and those of `fit_on`.
    """
    options, prompts = SelfCheckOptions(**config["selfcheck"]), config["judge"]["prompts"]
    needs_engine = options.samples == selfcheck.DRAWN or options.measure == selfcheck.PROMPT
    engine = build_text_engine(EngineOptions(**config["engine"])) if needs_engine else None
    samples: Drawn
    if options.samples == selfcheck.OTHERS:
        fitting, _ = read_fitting_rows(config, benchmark)
        samples = OtherResponses.of([*benchmark.examples, *fitting])
    else:
        assert engine is not None
        samples = EngineSamples(
            engine=engine,
            prompt=read_text_prompt("reply", "knowledge", "history", folder=prompts),
            num_samples=options.num_samples,
            temperature=options.temperature,
            max_new_tokens=options.max_new_tokens,
        )
    is_ngram = options.measure == selfcheck.NGRAM
    detector = SelfCheck(_measure(options, engine, prompts), samples, options.threshold, unbounded=is_ngram)
    models = [describe_judge(config, SAMPLER)] if engine is not None else []
    own = options.nli if options.measure == selfcheck.NLI else None
    return Loaded(detector, [*models, *helpers_of({"entailment model": own})], lambda: tell_engine(engine))


def _measure(options: SelfCheckOptions, engine: TextEngine | None, prompts: str | None) -> Measure:
    if options.measure == selfcheck.NGRAM:
        return Ngrams(options.order, unlikeliest=options.words == selfcheck.MAX)
    if options.measure == selfcheck.PROMPT:
        assert engine is not None
        return Prompted(engine, read_text_prompt("support", "context", "sentence", folder=prompts))
    if options.measure == selfcheck.NLI:
        if options.nli is None:
            hint = "selfcheck.nli=RUN of faithkit train model=critic data=snli, or an NLI model's name"
            raise UserError("selfcheck.measure=nli needs an NLI model", hint=hint)
        return Nli(load_entailment(options.nli))
    from faithkit.metrics.responses.bert_score import RescaledBertScore, load_with_baseline

    if options.encoder is None:
        raise UserError("selfcheck.measure=bert_score needs an encoder", hint="selfcheck.encoder=minilm")
    scorer, baseline = load_with_baseline(options.encoder, options.num_layers, options.baseline)
    return BertScores(RescaledBertScore(scorer, baseline or 0.0))


def load_examiner(config: Mapping[str, Any]) -> Loaded:
    """Loads LMvLM by the block `examiner`: engine.model examines."""
    options, engine_options = ExaminerOptions(**config["examiner"]), EngineOptions(**config["engine"])
    engine, models = build_text_engine(engine_options), [describe_judge(config)]
    examinee = engine
    if options.examinee is not None and options.examinee != engine_options.model:
        examinee = build_text_engine(replace(engine_options, model=options.examinee))
        models += [_examinee(config, options.examinee)]

    examiner = Examiner(engine, examinee, options, config["judge"]["prompts"])

    def tell() -> None:
        if examiner.num_unasked:
            log.info("%s responses were judged unexamined: no question was written", f"{examiner.num_unasked:,}")
        for one in {id(each): each for each in (engine, examinee)}.values():
            tell_engine(one)

    return Loaded(examiner, models, tell)


def _examinee(config: Mapping[str, Any], model: str) -> UsedModel:
    if config["engine"]["name"] == OPENAI:
        return describe_judge({"engine": {**config["engine"], "model": model}}, EXAMINEE)
    return helpers_of({EXAMINEE: model})[0]
