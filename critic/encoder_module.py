"""What the training of every detector shares: an encoder with its head, and beside it the head of the support loss."""

from typing import Any

import pytorch_lightning as pl
import torch

from critic.overlap_supervision import OverlapHead, unit_vectors
from faithkit.training.module import TrainingModule


class EncoderModule(TrainingModule):
    """A detector under training; a subclass gives `set_up` its model.

    Hyperparameters beside those of `TrainingModule`: support_weight, freeze_embeddings, gradient_checkpointing.
    """

    support: OverlapHead | None  # no default here: the class's None would hide the module's own

    def set_up(self, model: Any) -> None:
        """Takes the model, and adds the support head where the hyperparameters ask for it."""
        h = self.hparams
        self.model = model
        if h["gradient_checkpointing"]:
            model.gradient_checkpointing_enable()
        model.get_input_embeddings().requires_grad_(not h["freeze_embeddings"])
        self.support = None
        if h["support_weight"]:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(h["seed"])
                self.support = OverlapHead(model.config.hidden_size)
            # No buffer: it would be sent to all processes at every step, and saved with every checkpoint.
            self._word_vectors = unit_vectors(model.get_input_embeddings().weight)

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, pl.strategies.ModelParallelStrategy):
            from faithkit.training.sharding import shard

            shard(self.model, self.device_mesh)
            if self.support is not None:
                shard(self.support, self.device_mesh)

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if self.support is not None:
            self._word_vectors = self._word_vectors.to(self.device)
