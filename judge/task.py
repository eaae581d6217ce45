"""The judge's training task: encoder, module, and calibration and test of the best checkpoint."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.data_module import DataModule
from data_modules.encoding.batching import Batches
from data_modules.encoding.encoder import Subset
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.tokens import load_tokenizer
from faithkit.baselines.counted_features import MAX_ROWS, fit_counted_features
from faithkit.baselines.simple_detectors import baseline_thresholds
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.calibration.thresholds import logit
from faithkit.errors import UserError
from faithkit.inference.decoding import Prompt
from faithkit.inference.local_text import LocalTextEngine
from faithkit.inference.messages import MessageTokens
from faithkit.inference.transformers_engine import TransformersEngine
from faithkit.packing import use_packed_attention
from faithkit.records import HALLUCINATED, Prediction
from faithkit.reports.write_reports import Reports
from faithkit.training.lora_adapters import Adapters
from faithkit.training.options import OptimizerOptions, read_options
from faithkit.training.task import Calibrated, FinishedTraining, TestResults, report_detector
from faithkit.weights.adapters import add_adapters, base_name
from faithkit.weights.load import check_end_token, check_places, filler_token
from faithkit.weights.resolve import loading
from judge.asking import ASKINGS, VERDICT, AskOptions
from judge.encoder import JudgementEncoder
from judge.judge import Judge
from judge.module import JudgeModule
from judge.options import JudgeOptions
from judge.prompt import read_prompt
from judge.settings import Settings
from judge.weights import load_causal


class JudgeTask:
    """Trains a judge: `model=judge`.

    Args:
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`; the fields of `JudgeOptions` are read.
        options: The same fields by name, with precedence.
    """

    def __init__(self, *, optimizer: Mapping[str, Any], model: Mapping[str, Any] | None = None, **options: Any):
        self.options = read_options(JudgeOptions, model, options)
        self.optimizer = OptimizerOptions(**optimizer)
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        check_end_token(self.tokenizer, self.options.weights)
        self.asking = ASKINGS[self.options.ask]
        self.encoder = JudgementEncoder(
            tokens=MessageTokens(self.tokenizer),
            template=read_prompt(self.asking.prompt, self.options.prompts),
            ask=self.options.ask,
            max_length=self.options.max_length,
            packed=self.options.packed,
            share_beginnings=self.options.share_beginnings,
        )

    def module(self, *, num_steps: int, dataset: str, seed: int) -> JudgeModule:
        """Builds the module to train."""
        model = self._load_model()
        if self.options.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        assert self.asking.choices is not None, "a trainable reply begins with its verdict"
        begin, (hallucinated, faithful) = self.encoder.tokens.choices(self.asking.choices)
        verdict = (len(begin), hallucinated, faithful)
        adapters = Adapters.on(self.options.weights, model, self._load_model) if self.options.lora_rank else None
        about: dict[str, Any] = {"num_steps": num_steps, "dataset": dataset, "seed": seed}
        return JudgeModule(model, self.optimizer, verdict=verdict, adapters=adapters, **about)

    def _load_model(self) -> Any:
        """Loads the initial model, with new adapters if only these are trained."""
        options = self.options
        model = load_causal(options.weights, self.tokenizer, max_length=options.max_length, dropout=options.dropout)
        if options.packed and not use_packed_attention(model):
            name = type(model).__name__
            raise UserError(f"{name} has a custom attention and cannot be packed", hint="set model.packed=false")
        if options.lora_rank is None:
            return model
        return add_adapters(
            model,
            rank=options.lora_rank,
            alpha=options.lora_alpha,
            dropout=options.lora_dropout,
            target_modules=options.lora_modules,
            base=base_name(options.weights),
        )

    @property
    def model_class(self) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> Calibrated[Judge]:
        """Fits temperature and threshold on the verdicts' probabilities of the validation rows."""
        model.set_attn_implementation("sdpa")
        judge = self._build_judge(model)
        rows = Batches(training.data.subsets["validation"], self.encoder)
        odds = self._compute_odds(training, judge, rows)
        gold = np.array([example.label == HALLUCINATED for example in training.validation], np.int8)
        judge.calibration, fit = ScoreCalibration.fit(odds, gold, self.options.threshold_aim)
        settings = Settings(
            ask=self.options.ask,
            template=self.encoder.template,
            max_length=self.options.max_length,
            calibration=judge.calibration,
            origin={**training.origin, **baseline_thresholds(training.validation)},
        )
        return Calibrated(predictor=judge, sidecar=settings.to_sidecar(), examples=training.validation, fit=fit)

    def _build_judge(self, model: Any) -> Judge:
        tokens = self.encoder.tokens
        pad_id = filler_token(self.tokenizer)
        engine = TransformersEngine(model, eos_id=self.tokenizer.eos_token_id, pad_id=pad_id)
        window = check_places(model.config, self.options.weights, None)
        local = LocalTextEngine(engine, tokens, window=window, identity="in training")
        return Judge(local, AskOptions(ask=self.options.ask), template=self.encoder.template)

    def _compute_odds(self, training: FinishedTraining[DataModule], judge: Judge, rows: Batches) -> NDArray[np.float64]:
        """Computes the verdicts' log-odds of all rows from their cached prompts; each process computes its part."""
        assert self.asking.choices is not None
        begin, verdict_tokens = self.encoder.tokens.choices(self.asking.choices)

        def compute_part(part: NDArray[np.int64]) -> list[float]:
            contexts = rows.columns(part)["context"]
            assert isinstance(contexts, Ragged)
            prompts = [
                Prompt(str(place), np.append(contexts.row(place), begin).astype(np.int32)) for place in range(len(part))
            ]
            engine: Any = judge.engine
            found = dict(engine.engine.next_probabilities(prompts, verdict_tokens))
            return [float(logit([found[prompt.id][0]])[0]) for prompt in prompts]

        return np.array(training.divide_work(len(rows), compute_part))

    def predict(self, training: FinishedTraining[DataModule], judge: Judge, subset: Subset) -> list[Prediction]:
        """Judges a test subset as in inference; each process judges its part."""
        examples = subset.examples()

        def judge_part(part: NDArray[np.int64]) -> list[Prediction]:
            progress = training.trainer.is_global_zero and self.options.ask != VERDICT
            return list(judge.predict_examples([examples[i] for i in part], progress=progress))

        return training.divide_work(len(examples), judge_part)

    def report(
        self,
        training: FinishedTraining[DataModule],
        calibrated: Calibrated[Judge],
        tests: TestResults[Prediction],
    ) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        counted = fit_counted_features(
            training.training_sample(MAX_ROWS), training.validation, aim=self.options.threshold_aim
        )
        return report_detector(training, tests, fitted_on=training.validation, counted=counted)
