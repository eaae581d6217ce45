"""The judge as a LightningModule: language-model loss on replies, and metrics of its verdicts on validation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.metrics.classification import score_validation
from faithkit.training.language_model import (
    language_model_figures,
    reply_statistics,
    run_model,
    token_losses,
    token_mean,
)
from faithkit.training.lora_adapters import Adapters
from faithkit.training.module import TrainingModule
from faithkit.training.options import OptimizerOptions
from faithkit.training.row_metric import RowMetric


class JudgeModule(TrainingModule):
    """Trains a judge by the mean cross-entropy of the replies' tokens, without loss on prompts.

    Args:
        model: A causal model of transformers.
        adapters: The adapters, if only these are trained.
        verdict: The position of the verdict's token in a reply, and this token for a hallucinated and for a faithful
            response (`MessageTokens.choices`).
    """

    def __init__(
        self,
        model: Any,
        optimizer: OptimizerOptions,
        *,
        verdict: tuple[int, int, int],
        adapters: Adapters | None = None,
        num_steps: int,
        dataset: str = "validation",
        seed: int = 0,
    ):
        super().__init__(optimizer, num_steps=num_steps, dataset=dataset, seed=seed)
        self.model, self.verdict, self.adapters = model, verdict, adapters
        self.strict_loading = adapters is None  # checkpoints of adapters are partial; `check_fits` compares them
        self.validation = RowMetric(_compute_metrics)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        losses = token_losses(run_model(self.model, batch).logits, batch["target"])
        real = (batch["index"] >= 0)[batch["target_row"]]
        loss = token_mean(losses, real, self)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    @torch.inference_mode()
    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        logits = run_model(self.model, batch).logits
        rows = torch.arange(len(batch["index"]), device=logits.device)
        # The position of the verdict is relative to the row's first target.
        place, *tokens = self.verdict
        verdict_logits = logits[0, torch.searchsorted(batch["target_row"].contiguous(), rows) + place][
            :, tokens
        ].double()
        columns = [
            reply_statistics(logits, batch),
            (verdict_logits[:, :1] - verdict_logits[:, 1:]),
            batch["label"][:, None].double(),
        ]
        self.validation.update(batch["index"], torch.cat(columns, dim=1))

    def on_validation_epoch_end(self) -> None:
        self.log_validation(self.validation, "macro_f1")


def _compute_metrics(numbers: NDArray[np.int64], values: NDArray[np.float64]) -> Mapping[str, float]:
    """Computes the metrics of rows with the values of `reply_statistics`, the verdict's log-odds, and the label."""
    verdicts = score_validation(ScoreCalibration().scores(values[:, 3]), values[:, 4])
    verdicts["verdict_loss"] = verdicts.pop("loss")
    return {**verdicts, **language_model_figures(numbers, values[:, :3])}
