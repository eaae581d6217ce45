"""The base of the detectors' LightningModules: an encoder with its head, and heads of auxiliary losses."""

from dataclasses import asdict
from typing import Any, Generic, TypeVar

import torch

from critic.label_checks import check_labels
from critic.losses.overlap_supervision import TokenHead, unit_vectors
from critic.sequence.options import CriticOptions
from critic.tagger.options import TaggerOptions
from faithkit.training.module import TrainingModule
from faithkit.training.optimizer import is_head
from faithkit.training.options import OptimizerOptions

# Options of encoding and calibration, which are not hyperparameters of the module.
NOT_HYPERPARAMETERS = (
    *("max_length", "max_windows", "order", "max_knowledge_words", "evidence", "evidence_alone", "token_support"),
    "threshold_aim",
)
Options = TypeVar("Options", CriticOptions, TaggerOptions)


class EncoderModule(TrainingModule, Generic[Options]):
    """A detector in training; a subclass calls `set_up` with its model."""

    options: Options
    # Heads of auxiliary losses. A class attribute would hide the module's submodules, so there is no default.
    support: TokenHead | None
    span_head: TokenHead | None

    def __init__(self, options: Options, optimizer: OptimizerOptions, **hyperparameters: Any):
        kept = {name: value for name, value in asdict(options).items() if name not in NOT_HYPERPARAMETERS}
        super().__init__(optimizer, **kept, **hyperparameters)
        self.options = options

    def set_up(self, model: Any) -> None:
        """Sets the model, and adds the head of overlap supervision if the options enable it."""
        self.model = model
        if self.options.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        model.get_input_embeddings().requires_grad_(not self.options.freeze_embeddings)
        self.support = self.span_head = None
        if self.options.support_weight:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.hparams["seed"])
                self.support = TokenHead(model.config.hidden_size)
            # Not a buffer, which would be broadcast at every step and saved in every checkpoint.
            self._word_vectors = unit_vectors(model.get_input_embeddings().weight)

    def freeze_encoder(self) -> None:
        """Freezes all parameters except the head."""
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(is_head(name))

    def no_loss(self) -> torch.Tensor:
        """Returns the loss of a step that trains nothing: its gradients are 0."""
        return 0.0 * torch.stack([p.sum() for p in self.model.parameters() if p.requires_grad]).sum()

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if data := getattr(self.trainer, "datamodule", None):
            check_labels(data.subsets)
        if self.support is not None:
            self._word_vectors = self._word_vectors.to(self.device)
