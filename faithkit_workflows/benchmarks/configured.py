"""Loads the detector of a configuration (a prompted baseline, a cascade, or a single model), and the rows to fit on.

Baselines are fitted on `benchmark.fit_on`, or on the validation rows of the model.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from data_modules.build import Benchmark, build_source, dataset_of, read_block
from data_modules.data_options import USER_TABLE
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.exclude import Excluded
from data_modules.reading.rows import ReadReport
from faithkit.baselines.simple_detectors import BaselineData, read_baseline_thresholds
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.inference.text import OPENAI
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.provenance.used_model import CHECKPOINT, UsedModel
from faithkit.records import Example
from faithkit.settings.config_files import EMBEDDED, display_name
from faithkit_workflows.answering.retrieval import retrieve
from faithkit_workflows.answering.write_answers import judge_rows
from faithkit_workflows.detectors.entailment import load_entailment
from faithkit_workflows.detectors.loading import (
    LoadedDetector,
    describe_helpers,
    describe_judge,
    load_described,
    log_usage,
)
from judge.baselines import (
    Examiner,
    Measure,
    SelfCheck,
    bert_scores,
    draw_samples,
    has_prompt,
    ngram_scores,
    nli_scores,
    other_responses,
    prompted_scores,
)
from judge.options import MAX, NGRAM, NLI, OTHERS, PROMPT, REPHRASED, ExaminerOptions, SelfCheckOptions
from judge.prompt import OPTIONAL_FIELDS, draw_shots, read_prompts, shots_file

EXAMINEE = "examinee"  # a role of a model
log = logging.getLogger("faithkit")


def load_configured(config: Mapping[str, Any], benchmark: Benchmark | None = None) -> LoadedDetector:
    """Loads the detector that a configuration describes.

    The band of a cascade must be in the configuration; `faithkit_workflows.benchmarks.detection` chooses one.

    Args:
        benchmark: The rows that are judged. SelfCheckGPT may compare them, and prompt examples are drawn besides them.
    """
    if benchmark is not None and (config.get("selfcheck") or {}).get("measure"):
        return load_selfcheck(config, benchmark)
    if (config.get("examiner") or {}).get("turns"):  # LMvLM, with `engine.model` as examiner
        options, engine_options = ExaminerOptions(**config["examiner"]), EngineOptions(**config["engine"])
        engine, models = build_text_engine(engine_options), [describe_judge(config)]
        examinee = engine
        if options.examinee is not None and options.examinee != engine_options.model:
            examinee = build_text_engine(replace(engine_options, model=options.examinee))
            if config["engine"]["name"] == OPENAI:
                models += [describe_judge({"engine": {**config["engine"], "model": options.examinee}}, EXAMINEE)]
            else:
                models += describe_helpers({EXAMINEE: options.examinee})[:1]
        examiner = Examiner(engine, examinee, options, config["judge"]["prompts"])

        def log_all_usage() -> None:
            if examiner.num_unasked:
                log.info("%s responses were judged unexamined: no question was written", f"{examiner.num_unasked:,}")
            for one in {id(each): each for each in (engine, examinee)}.values():
                log_usage(one)

        return LoadedDetector(examiner, models, log_all_usage)
    judge = config.get("judge") or {}
    if benchmark is not None and (config.get("engine") or {}).get("name") and judge.get("prompts"):
        prompts = read_prompts(judge["ask"], judge["prompts"])
        if prompts.hides_knowledge(benchmark.examples):  # refuses rows without a prompt, before a model is loaded
            log.info("prompts without {knowledge}: the judge does not see the knowledge of the rows")
    return load_described(config, prompt_examples(config, benchmark))


def prompt_examples(config: Mapping[str, Any], benchmark: Benchmark | None) -> Callable[[], Sequence[Example]] | None:
    """Returns a function that draws the examples of the judge's prompt; None if it draws none."""
    if benchmark is None or not isinstance(number := (config.get("judge") or {}).get("examples"), int):
        return None
    ask, prompts = config["judge"]["ask"], config["judge"]["prompts"]
    if shots_file(ask, prompts):
        return None
    return partial(
        draw_prompt_examples, benchmark, config["benchmark"], ask, number, seed=config["seed"], prompts=prompts
    )


def draw_prompt_examples(
    benchmark: Benchmark, block: Mapping[str, Any], ask: str, number: int, *, seed: int, prompts: str | None = None
) -> list[Example]:
    """Draws labelled rows of the training split that share no knowledge, dialogue or group with a tested row.

    Args:
        block: The block `benchmark`.
        prompts: The folder of the prompts, which declare the form of the replies.

    Raises:
        UserError: There are too few such rows.
    """
    header = read_prompts(ask, prompts).each[0].header
    shots = draw_shots(read_untested_rows(benchmark, block), ask, number, seed=seed, header=header)
    place = f"{benchmark.name}/{shots[0].split}"
    log.info("examples in the prompt, of %s: %s", place, ", ".join(shot.id for shot in shots))
    return shots


def read_untested_rows(benchmark: Benchmark, block: Mapping[str, Any]) -> list[Example]:
    """Reads labelled rows of another split than the tested one; for a dataset with one split embedded rows.

    Args:
        block: The block `benchmark`.
    """
    target = block.get("_target_")
    name = block.get("dataset", None if target else block["name"])
    source = build_source(name, block["path"], _target_=target, **block["options"])
    tested = resolve_split(source, block["split"])
    untested = ("train", "validation")
    split: str | None = next((one for one in untested if one in source.split_names() and one != tested), None)
    if split is None and not target and block["path"] != EMBEDDED and name != USER_TABLE:
        log.info("%s has no training rows: the examples in the prompt are of the embedded corpus", benchmark.name)
        source = build_source(name, EMBEDDED, **block["options"])
        split = source.split_names()[0]
    if split is None:
        problem = f"{benchmark.name} has no training rows to draw examples from"
        raise UserError(problem, place=source.path, hint="give examples in a file: judge.examples=FILE")
    excluded, groups = Excluded.of(benchmark.examples), {example.group for example in benchmark.examples}
    read = read_examples(source, split, ReadReport(block["on_bad_row"]))
    return [e for e in read if e.label is not None and e.group not in groups and not excluded.covers(e)]


def load_selfcheck(config: Mapping[str, Any], benchmark: Benchmark) -> LoadedDetector:
    """Loads SelfCheckGPT by the block `selfcheck`.

    Args:
        benchmark: Provides the other models' responses, together with `benchmark.fit_on`, where these are the samples.
    """
    options, prompts = SelfCheckOptions(**config["selfcheck"]), config["judge"]["prompts"]
    engine = build_text_engine(EngineOptions(**config["engine"])) if options.asks_model else None
    if options.samples == OTHERS:
        fitting_rows, _ = read_fitting_rows(config, benchmark)
        samples = other_responses([*benchmark.examples, *fitting_rows])
    else:
        assert engine is not None
        # The prompt of the samples, with the fields that it must have.
        name, *fields = ("rephrase", "response") if options.samples == REPHRASED else ("reply",)
        prompt = read_text_prompt("judge", name, *fields, folder=prompts, optional=OPTIONAL_FIELDS)
        if not any(has_prompt(prompt, example) for example in benchmark.examples):
            problem = f"selfcheck.samples={options.samples}: no row has a knowledge or a history to reply to"
            raise UserError(problem, place=benchmark.name, hint="rephrase the responses: selfcheck.samples=rephrased")
        samples = partial(
            draw_samples,
            engine=engine,
            prompt=prompt,
            num_samples=options.num_samples,
            temperatures=options.temperatures,
            max_new_tokens=options.max_new_tokens,
        )
    models = [describe_judge(config, "sampler")] if engine is not None else []
    measure: Measure
    if options.measure == NGRAM:
        measure = partial(ngram_scores, order=options.order, unlikeliest=options.words == MAX)
    elif options.measure == PROMPT:
        assert engine is not None
        question = read_text_prompt("judge", "support", "context", "sentence", folder=prompts)
        measure = partial(prompted_scores, engine=engine, prompt=question)
    elif options.measure == NLI:
        assert options.nli is not None
        measure = partial(nli_scores, model=load_entailment(options.nli))
        models += describe_helpers({"entailment model": options.nli})
    else:
        from faithkit.metrics.responses.bert_score import RescaledBertScore, load_with_baseline

        assert options.encoder is not None
        scorer, baseline = load_with_baseline(options.encoder, options.num_layers, options.baseline)
        measure = partial(bert_scores, f1=RescaledBertScore(scorer, baseline or 0.0))
    is_ngram = options.measure == NGRAM
    detector = SelfCheck(measure, samples, options.threshold, unbounded=is_ngram)
    return LoadedDetector(detector, models, lambda: log_usage(engine))


def read_fitting(
    run: RunFolder,
    config: Mapping[str, Any],
    benchmark: Benchmark,
    detector: Detector | None,
    models: Sequence[UsedModel],
) -> BaselineData:
    """Reads the rows of `benchmark.fit_on`; without them the thresholds that are stored with the model.

    Args:
        detector: Judges these rows too, so that its threshold is fitted on the same rows; None for given predictions.
        models: The models that made the predictions.
    """
    if not (config["benchmark"].get("fit_on") or []):
        sidecar = sidecar_of(next((model.path for model in models if model.role == CHECKPOINT), None))
        fitting = read_baseline_thresholds(sidecar.origin if sidecar else {})
        if not fitting.thresholds:
            log.info("word overlap has no fitted threshold: name labelled rows by benchmark.fit_on=[{dataset, path}]")
        return fitting
    rows, name = read_fitting_rows(config, benchmark)
    predictions = {}
    if detector is not None:
        judged = judge_rows(run, config, f"{benchmark.name}-fit_on", rows, LoadedDetector(detector, list(models)))
        predictions = {prediction.id: prediction for prediction in judged}
    blocks = config["benchmark"]["fit_on"]
    sources = frozenset(display_name(dataset_of(block), block["path"]) for block in blocks)
    return BaselineData(rows=rows, name=name, sources=sources, learn=True, model_predictions=predictions)


def read_fitting_rows(config: Mapping[str, Any], benchmark: Benchmark) -> tuple[list[Example], str]:
    """Reads labelled rows to fit on, and returns them with their name in tables.

    None of them shares knowledge or a dialogue with a tested row.
    """
    rows, names = [], []
    for number, block in enumerate(config["benchmark"].get("fit_on") or []):
        found, tested = read_block(block, seed=config["seed"]), Excluded.of(benchmark.examples)
        name = dataset_of(block)
        labelled = [example for example in found if example.label is not None]
        kept = [replace(e, id=f"{number}/{e.id}") for e in labelled if not tested.covers(e)]
        log.info(
            "fitting on %s: %s rows; %s rows share knowledge with a tested row and %s have no label: left out",
            *(name, f"{len(kept):,}", f"{len(labelled) - len(kept):,}", f"{len(found) - len(labelled):,}"),
        )
        if not kept:
            hint = "name other rows: benchmark.fit_on=[{dataset: NAME, path: PATH, split: validation}]"
            raise UserError(f"benchmark.fit_on: no labelled row of {name} is left", place=str(block["path"]), hint=hint)
        rows += kept
        names.append(f"{len(kept):,} rows of {name}, {Path(block['path']).name}")
    retrieved = retrieve(config, rows) if rows else None
    return retrieved[0] if retrieved else rows, "; ".join(names)
