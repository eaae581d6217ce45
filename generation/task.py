"""The training of generators: the Lightning module, and the task of `train.py`."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_modules.data_module import DataModule
from data_modules.encoding.batching import Batches
from data_modules.encoding.encoder import Columns, Encoder, Ragged, Subset
from data_modules.encoding.sequence_layout import CONTROL_TOKENS, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.errors import UserError
from faithkit.fast import accelerate_training, is_enabled, plan_batches
from faithkit.records import Example
from faithkit.reports.perplexity_report import perplexity_report
from faithkit.reports.report import Provenance
from faithkit.reports.write_reports import Reports
from faithkit.settings.config_files import MEASURED, OFFICIAL
from faithkit.training.checkpoints import is_in_shards
from faithkit.training.language_model import language_model_figures, row_statistics, token_losses
from faithkit.training.module import TrainingModule
from faithkit.training.task import Calibrated, FinishedTraining, TestResults
from faithkit.training.training_options import OptimizerOptions, read_options
from faithkit.weights.resolve import loading
from generation.control import OFFICIAL_FIELD, OVERLAP, Ctrl, Terciles, fit_terciles, levels
from generation.generator import Generator
from generation.objectives.objective import Objective, Step
from generation.options import ARCHITECTURES, GeneratorOptions
from generation.weights import Settings, load_generator, starts_with

PREFIX = "feature: "  # of the columns

log = logging.getLogger("faithkit")


class ControlEncoder(Encoder):
    """Adds the control tokens of each response to the batches of another encoder.

    Args:
        inner: Encodes everything else.
        turns: Knows the ids of the control tokens.
        ctrl: Measures the features.
    """

    def __init__(self, inner: Encoder, turns: TurnEncoder, ctrl: Ctrl):
        self.inner, self.ctrl = inner, ctrl
        self.ids = [np.array([turns.ids[t] for t in CONTROL_TOKENS[group]], np.int32) for group in ctrl.groups]
        self.terciles: Terciles | None = None

    @property
    def thresholds(self) -> dict[str, Any]:
        """The fitted boundaries of features, for the sidecar."""
        return {OVERLAP: list(self.terciles)} if self.terciles else {}

    def fingerprint(self) -> str:
        return f"{self.inner.fingerprint()}:{self.ctrl.fingerprint()}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Adds a column of values for each feature to the inner encoder's columns."""
        measured = self.ctrl.measure(examples, keep=True)
        if self.ctrl.source == OFFICIAL and (without := sum(not one.meta.get(OFFICIAL_FIELD) for one in examples)):
            counts["no control_tokens, given those of a faithful answer"] += without
        return self.inner.encode(examples, counts) | {PREFIX + group: values for group, values in measured.items()}

    def fit(self, train: Sequence[Subset]) -> None:
        """Fits the terciles of lexical overlap on the training rows, and logs the share of each token."""
        if not train:
            hint = "set data.streaming=false, or leave control out"
            raise UserError("data.streaming with control: terciles need the whole training split", hint=hint)
        self.ctrl.release()
        rows = {
            group: np.concatenate([s.encoded.columns[PREFIX + group][s.indices] for s in train])  # type: ignore[index]
            for group in self.ctrl.groups
        }
        if OVERLAP in rows and self.ctrl.source == MEASURED:
            self.terciles = fit_terciles(rows[OVERLAP])
            log.info("control: terciles of lexical overlap %.3f and %.3f", *self.terciles)
        shares = [np.bincount(column) / len(column) for column in levels(rows, self.terciles).T]
        described = [
            f"{token.strip('<|>')} {share:.0%}"
            for group, of_group in zip(self.ctrl.groups, shares, strict=True)
            for token, share in zip(CONTROL_TOKENS[group], of_group, strict=False)
        ]
        log.info("control: of the training responses %s", ", ".join(described))

    def collate(self, columns: Columns) -> Mapping[str, NDArray[Any]]:
        """Makes the inner encoder's batch with the control tokens of each row."""
        values = {group: columns[PREFIX + group] for group in self.ctrl.groups}
        others = {name: column for name, column in columns.items() if not name.startswith(PREFIX)}
        found = levels(values, self.terciles)
        ids = np.stack([token_ids[found[:, place]] for place, token_ids in enumerate(self.ids)], axis=1)
        control = Ragged(ids.ravel(), np.arange(len(ids) + 1) * len(self.ids))
        return self.inner.collate({**others, "control": control})


class GeneratorModule(TrainingModule):
    """Learns to write a response, given knowledge and history.

    Args:
        model: Of transformers.
        objective: Computes the loss from the model's output.
        num_steps: Optimiser steps of the whole training, for the schedule.
        dataset: Names the validation metrics: `validation/<dataset>/perplexity`.
        seed: Seeds dropout, and what the objective has to begin from.
    """

    main_metric = "perplexity"

    def __init__(
        self,
        model: Any,
        objective: Objective,
        optimizer: OptimizerOptions,
        *,
        num_steps: int,
        dataset: str,
        seed: int,
    ):
        super().__init__(optimizer, language_model_figures, num_steps=num_steps, dataset=dataset, seed=seed)
        self.model, self.objective = model, objective
        objective.set_up(model, seed)

    def on_fit_start(self) -> None:
        super().on_fit_start()
        self.objective.check(self.trainer.datamodule)  # type: ignore[attr-defined]

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        output = self.objective.run(self.model, batch)
        step = Step(
            batch=batch,
            output=output,
            losses=token_losses(output.logits, batch["target"]),
            processes=self,
            log=lambda name, value: self.log(f"train/{name}", value.detach()),
        )
        loss = self.objective(step)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.validation.update(batch["index"].cpu(), torch.from_numpy(row_statistics(self.model, batch)))


class GeneratorTask:
    """Trains a generator: `model=t5`, `model=gpt2`, `model=dialogpt` or `model=doha`.

    Args:
        objective: The training loss.
        control: The control tokens in front of the input; None for none.
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`; the fields of `GeneratorOptions` are read.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        control: Ctrl | None,
        optimizer: Mapping[str, Any],
        model: Mapping[str, Any],
    ):
        self.options, self.objective = read_options(GeneratorOptions, model), objective
        self.optimizer = OptimizerOptions(**optimizer)
        family = ARCHITECTURES[self.options.architecture]
        self.model_class = family.model_class
        layout = TurnLayout(
            kind=family.kind,
            max_length=self.options.max_length,
            max_response_length=self.options.max_response_length,
            max_history=self.options.max_history,
            control=control.groups if control else (),
        )
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        self.new_tokens = add_markers(self.tokenizer, layout)
        self.turns = TurnEncoder(self.tokenizer, layout, packed=self.options.packed and is_enabled())
        encoder = objective.encoder(self.turns, self.turns)
        self.control = ControlEncoder(encoder, self.turns, control) if control else None
        self.encoder: Encoder = self.control or encoder

    def module(self, *, num_steps: int, dataset: str, seed: int) -> GeneratorModule:
        """Builds the module to train."""
        options = self.options
        model = load_generator(
            options.weights,
            options.architecture,
            tokenizer=self.tokenizer,
            new_tokens=self.new_tokens,
            dropout=options.dropout,
            attention_dropout=options.attention_dropout,
        )
        longest = getattr(model.config, "max_position_embeddings", None)  # T5's positions are relative: no limit
        for name in ("max_length", "max_response_length"):
            length = getattr(options, name)
            if longest is not None and length > longest:
                problem = f"model.{name} is {length}, but this model has {longest} places"
                raise UserError(problem, place=options.weights, hint=f"set model.{name}={longest} or less")
        starts_with(model, self.tokenizer, self.turns.decoder_prefix)
        accelerate_training(model, packed=self.turns.is_packed)
        if options.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        return GeneratorModule(model, self.objective, self.optimizer, num_steps=num_steps, dataset=dataset, seed=seed)

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> Calibrated[Any]:
        """Fits nothing: the model itself predicts, and control tokens use the terciles of the training rows."""
        settings = Settings(
            layout=self.turns.layout,
            architecture=self.options.architecture,
            thresholds=self.control.thresholds if self.control else {},
            origin=dict(training.origin),
        )
        return Calibrated(predictor=model, sidecar=settings.to_sidecar())

    def predict(self, training: FinishedTraining[DataModule], model: Any, subset: Subset) -> list[NDArray[np.float64]]:
        """Computes `row_statistics` of a subset's rows, in order; each process computes a part of the batches."""
        batches = Batches([subset], self.encoder)
        plan = plan_batches(batches.lengths(), None, training.data.options.eval_max_tokens, None) if len(subset) else []

        def measure(part: NDArray[np.int64]) -> list[NDArray[np.float64]]:
            chosen = (batches[plan[i], len(plan[i])] for i in part)
            return [row_statistics(model, {n: column.to(model.device) for n, column in one.items()}) for one in chosen]

        measured = training.divide_work(len(plan), measure)
        by_row = dict(zip(chain(*plan), chain(*measured), strict=True))
        return [by_row[row] for row in range(len(subset))]

    def report(
        self,
        training: FinishedTraining[DataModule],
        calibrated: Calibrated[Any],
        tests: TestResults[NDArray[np.float64]],
    ) -> Reports:
        """Measures the perplexity of each test set, and generates answers to a few of its examples."""
        reports: Reports = {name: [] for name in tests}
        for name, (examples, rows) in tests.items():
            if not examples:
                continue
            number = training.num_examples
            shown = examples[:: max(1, len(examples) // number)][:number] if number else []
            answers: dict[str, str] = {}
            if shown:
                # What was trained in shards may not fit a GPU.
                in_shards = is_in_shards(training.module)
                device = "cpu" if in_shards else str(training.trainer.strategy.root_device)
                found = Generator.load(training.run.hf, device=device).predict_examples(shown)
                answers = {answer.id: answer.text for answer in found}
            report = perplexity_report(
                examples,
                np.stack(rows),
                answers,
                title=f"test/{name}",
                num_resamples=training.num_resamples,
                origin=Provenance.of(name, examples, training.models),
            )
            reports[name].append(report)
        return reports
