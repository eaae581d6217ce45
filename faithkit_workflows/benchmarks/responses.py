"""Evaluates generated responses, from a predictions file or written by a generator first, and the judges of them.

`benchmark.judges` names judges with their errors on labelled rows that they have not seen: `word_overlap` and
`counted_features`, which are fitted on the labelled rows, `nli:NAME` for any NLI model, or the folder of another
detector.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from critic.runtime import check_precision
from data_modules.build import dataset_of, datasets_of, read_benchmark, read_block, read_excluded
from faithkit.baselines.simple_detectors import fit_counted_features_by_folds, folds_by_group
from faithkit.baselines.word_features import fit_overlap, overlap_predictions
from faithkit.detector import ENTAILMENT, GENERATOR, Detector, Entailment
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.inference.text import Decoding
from faithkit.metrics.judge_error import JudgeError
from faithkit.metrics.responses.bert_score import RescaledBertScore, load_with_baseline
from faithkit.metrics.responses.measure_responses import CRITIC, MetricModels, PairedResponses, ResponseJudge
from faithkit.metrics.responses.official import OfficialMetrics, official_q2
from faithkit.metrics.responses.q2 import Q2, ExtractiveAnswers, Seq2SeqQuestions, SpacyCandidates
from faithkit.provenance.used_model import describe_model, find_leaks
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.reports.response_report import report_responses
from faithkit.reports.write_reports import EvaluationResult
from faithkit.scores.measures import add_measures
from faithkit_workflows.answering.strategies import Answerer, OwnAnswer
from faithkit_workflows.answering.write_answers import read_provenance, write_given, write_with_origin
from faithkit_workflows.detectors.entailment import load_entailment
from faithkit_workflows.detectors.loading import describe_detector, describe_helpers, load_detector
from generation.generator import Generator

OVERLAP, COUNTED, NLI = "word_overlap", "counted_features", "nli:"
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Labelled rows of one dataset, and a note on how they were chosen."""

    dataset: str
    rows: Sequence[Example]
    note: str = ""


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """All labelled rows that a benchmark names."""

    sets: Sequence[LabelledSet]

    @property
    def rows(self) -> list[Example]:
        """The rows of all sets."""
        return list(chain.from_iterable(one.rows for one in self.sets))

    @property
    def name(self) -> str:
        """The name of the rows in tables."""
        return "; ".join(f"{len(one.rows):,} rows of {one.dataset}{one.note}" for one in self.sets)

    def without_seen_rows(self, checkpoint: str, name: str) -> "LabelledRows":
        """Removes from each set the rows that a detector was trained on, chosen on or calibrated on.

        Rows that trained a teacher of weak labels are not in the list of seen rows. So if the training read a dataset,
        only the rows of it that its `data.exclude` names remain.

        Raises:
            UserError: No row of a set is left.
        """
        sets = list(self.sets)
        for model in describe_detector(checkpoint):
            sidecar, seen = sidecar_of(model.path), model.seen
            read: set[str] | None = None  # the datasets of its training; None where these are unknown
            excluded_blocks: Sequence[Any] = ()
            data = (sidecar.origin.get("config") or {}).get("data") if sidecar else None
            if isinstance(data, Mapping) and "exclude" in data:
                # What the training read: its parts, and the audit where weak labels were made from it.
                blocks = data["parts"].values() if isinstance(data["parts"], Mapping) else data["parts"]
                parts = [part for part in blocks if part.get("only") != "test"]
                excluded_blocks = data["exclude"]
                read = {dataset_of(part) for part in parts} | {"audit" for part in parts if part.get("audit_path")}
            for place, one in enumerate(sets):
                kept = list(one.rows)
                if read is None and seen is None:
                    note = f"{one.note} (whether {name} was trained on them is unknown)"
                    sets[place] = replace(one, note=note)
                    continue
                if read is not None and one.dataset in read:
                    excluded = read_excluded(excluded_blocks)
                    kept = [example for example in kept if excluded.covers(example)]
                if seen is not None:
                    leaked = find_leaks(kept, seen).rows
                    kept = [example for example, is_leaked in zip(kept, leaked, strict=True) if not is_leaked]
                if not kept:
                    hint = "train it with data.exclude=[{dataset, path}] of the rows that it will judge"
                    problem = f"benchmark.judge_labels: {name} was trained on every row of {one.dataset}"
                    raise UserError(problem, hint=f"{hint}, or name other rows")
                if len(kept) < len(one.rows):
                    counts = len(kept), len(one.rows)
                    log.info("%s is measured on %d of %d labelled rows of %s", name, *counts, one.dataset)
                    sets[place] = replace(one, rows=kept, note=f"{one.note} that {name} has not seen")
        return LabelledRows(sets)


def read_labelled(block: Mapping[str, Any], *, seed: int = 0) -> LabelledRows | None:
    """Reads the rows of `benchmark.judge_labels` that the critic has not seen."""
    sets = []
    for number, one in enumerate(block.get("judge_labels") or []):
        labelled_rows = (example for example in read_block(one, seed=seed) if example.label)
        rows = [replace(example, id=f"{number}/{example.id}") for example in labelled_rows]
        sets.append(LabelledSet(dataset_of(one), rows))
    if not sets:
        return None
    labelled = LabelledRows(sets)
    return labelled.without_seen_rows(block["critic"], "the critic") if block["critic"] else labelled


def measure_judge_error(detector: Detector, labelled: LabelledRows | None) -> JudgeError | None:
    """Measures the errors of a detector on labelled rows."""
    if labelled is None:
        return None
    rows = labelled.rows
    predictions = {prediction.id: prediction for prediction in detector.predict_examples(rows)}
    return JudgeError.of(rows, predictions, labelled.name)


def load_judges(block: Mapping[str, Any], labelled: LabelledRows | None, **options: Any) -> tuple[ResponseJudge, ...]:
    """Loads the judges of `benchmark.judges`, each with its error on the labelled rows that it has not seen.

    Args:
        options: precision and batch_tokens of the models.
    """
    judges: list[ResponseJudge] = []
    for number, name in enumerate(block.get("judges") or [], start=2):
        if name in (OVERLAP, COUNTED):
            if labelled is None:
                hint = "benchmark.judge_labels=[{dataset: audit, path: DIR}]"
                raise UserError(f"the judge {name} is fitted on labelled rows, and none are given", hint=hint)
            rows, predictions = labelled.rows, dict[str, Prediction]()
            for others, held_out in folds_by_group(rows):
                predictions |= {one.id: one for one in _fit(name, others).predict_examples(held_out)}
            error = JudgeError.of(rows, predictions, f"{labelled.name}, each fitted on the other folds")
            fitted = _fit(name, rows)
            judges.append(ResponseJudge(key=name, name=name.replace("_", " "), detector=fitted, error=error))
            continue
        path = name.removeprefix(NLI)
        folder, detector = Path(path), None
        display_name = (folder.parent if folder.name == "hf" else folder).name
        if path == name:
            detector = load_detector(path, **options)
        else:
            display_name = f"entailment by {display_name}"
            detector = EntailmentJudge(load_entailment(path, **options))
        unseen = labelled.without_seen_rows(path, display_name) if labelled else None
        measured = measure_judge_error(detector, unseen)
        judges.append(ResponseJudge(key=f"{CRITIC}_{number}", name=display_name, detector=detector, error=measured))
    return tuple(judges)


def list_judge_models(block: Mapping[str, Any]) -> dict[str, str]:
    """Lists the models among the critic and the judges by role, as a report names them: `judge`, `judge 2`, ..."""
    models = {"judge": block["critic"]} if block["critic"] else {}
    for number, name in enumerate(block.get("judges") or [], start=2):
        if name not in (OVERLAP, COUNTED):
            models[f"judge {number}"] = name.removeprefix(NLI)
    return models


@dataclass(frozen=True, slots=True)
class FunctionDetector:
    """A detector that predicts by a function of examples."""

    predict: Callable[[Sequence[Example]], Iterable[Prediction]]

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example."""
        yield from self.predict(examples)


def _fit(name: str, rows: Sequence[Example]) -> Detector:
    """Fits a judge: by the share of words that the knowledge lacks, or by boosted trees on counted features."""
    if name == OVERLAP:
        threshold = fit_overlap(rows)
        return FunctionDetector(lambda examples: overlap_predictions(examples, threshold).values())
    trees = fit_counted_features_by_folds(rows)
    if trees is None:
        hint = f"name more labelled rows, or leave out the judge {COUNTED}"
        raise UserError(f"{COUNTED}: {len(rows)} labelled rows are too few to fit it", hint=hint)
    return FunctionDetector(lambda examples: trees.predictions(examples).values())


@dataclass(frozen=True, slots=True)
class EntailmentJudge:
    """Labels a response hallucinated unless entailment is the most probable class; the score is 1 - P(entailment)."""

    model: Entailment

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example."""
        found = self.model.entailment([e.knowledge for e in examples], [e.response for e in examples])
        for example, row in zip(examples, found, strict=True):
            label = FAITHFUL if int(row.argmax()) == ENTAILMENT else HALLUCINATED
            yield Prediction(id=example.id, label=label, score=float(1 - row[ENTAILMENT]))


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
