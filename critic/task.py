"""The critic's part of training: its encoder, its module, and what is made of the best checkpoint."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from common.errors import UserError
from common.jsonl import write_jsonl
from common.records import Example, Prediction
from common.run_folder import RunFolder
from common.weights import resolve
from critic.folder import Settings, write_folder
from critic.module import CriticModule
from critic.verdict import Verdict
from data_modules.data_module import DataModule
from data_modules.encode import PairEncoder
from data_modules.tokens import load_tokenizer

log = logging.getLogger("faithkit")
TestSets = dict[str, tuple[list[Example], list[Prediction]]]


class CriticTask:
    """Builds what training needs and finishes it; one for each `model=critic`.

    Args:
        weights: A folder, hub name or local name.
        max_length: Tokens of a sequence.
        order: Which text stands first.
        threshold_aim: What the decision threshold is chosen for on validation.
        optimizer: lr, weight_decay, warmup, schedule, layer_decay, head_lr.
    """

    def __init__(
        self,
        *,
        weights: str,
        max_length: int,
        order: str,
        label_smoothing: float,
        dropout: float | None,
        gradient_checkpointing: bool,
        threshold_aim: str,
        optimizer: Mapping[str, Any],
    ):
        if not 0 <= label_smoothing < 1:
            raise UserError(f"model.label_smoothing is {label_smoothing}", mend="use a share from 0 to below 1")
        self.weights, self.threshold_aim = weights, threshold_aim
        self.module_options = {
            "label_smoothing": label_smoothing,
            "dropout": dropout,
            "gradient_checkpointing": gradient_checkpointing,
            **optimizer,
        }
        self.tokenizer = load_tokenizer(resolve(weights))
        self.encoder = PairEncoder(tokenizer=self.tokenizer, max_length=max_length, order=order)

    def module(self, *, num_steps: int, dataset: str, seed: int) -> CriticModule:
        """The module to train."""
        return CriticModule(
            weights=self.weights, num_steps=num_steps, dataset=dataset, seed=seed, **self.module_options
        )

    def finish(
        self, trainer: pl.Trainer, module: CriticModule, data: DataModule, run: RunFolder, origin: Mapping[str, Any]
    ) -> tuple[TestSets, dict[str, Any]]:
        """Calibrates the best checkpoint on validation, predicts the test sets, writes predictions and hf/.

        Returns:
            For each test set its examples and predictions; and the report of the calibration.
        """
        best = load_best(module, run)
        trainer.test(module, [data.val_dataloader(), *data.test_dataloader()], verbose=False)
        _, validation = module.logits[0]
        labelled = validation[:, 2] >= 0
        verdict, fit = Verdict.fit(validation[labelled, :2], validation[labelled, 2], self.threshold_aim)
        sets: TestSets = {}
        for number, subset in enumerate(data.subsets["test"], start=1):
            examples = subset.examples()
            index, values = module.logits.get(number, (np.zeros(0, np.int64), np.zeros((0, 3))))
            assert len(index) == len(examples), "every test example is predicted exactly once"
            predictions = verdict.predictions([e.id for e in examples], verdict.scores(values[:, :2]))
            labelled_ids = {e.id for e in examples if e.label is not None}
            sets[subset.name] = (
                [e for e in examples if e.id in labelled_ids],
                [p for p in predictions if p.id in labelled_ids],
            )
            if trainer.is_global_zero:
                write_jsonl(run.predictions / f"{subset.name}.jsonl", (p.to_dict() for p in predictions))
        if trainer.is_global_zero:
            settings = Settings(
                max_length=self.encoder.max_length, order=self.encoder.order, verdict=verdict, origin=dict(origin)
            )
            write_folder(run.hf, best, self.tokenizer, settings)
        return sets, fit


def load_best(module: CriticModule, run: RunFolder) -> Any:
    """Puts the best checkpoint's weights into the module; nothing in the file is executed.

    Returns:
        The model with these weights, whole on this process even where training has sharded it.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForSequenceClassification

    try:
        state = torch.load(run.best, map_location="cpu", weights_only=True)["state_dict"]
    except FileNotFoundError as error:
        mend = "raise model.num_epochs: no validation was reached"
        raise UserError("no best checkpoint was written", place=str(run.best), mend=mend) from error
    except (RuntimeError, EOFError, KeyError, ValueError) as error:
        raise UserError(f"the checkpoint is cut short: {error}", place=str(run.best), mend="train again") from error
    if not any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        module.load_state_dict(state)
        return module.model
    whole = AutoModelForSequenceClassification.from_config(module.model.config)
    whole.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    set_model_state_dict(module, state, options=StateDictOptions(full_state_dict=True))  # replaces what `state` holds
    return whole
