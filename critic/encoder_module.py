"""The base of the detectors' LightningModules: an encoder with its head, and heads of auxiliary losses."""

import logging
from dataclasses import asdict
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F

from critic.auxiliary_losses import TokenHead
from critic.weights import longest_sequence
from data_modules.encoding.encoder import Subset
from faithkit.errors import UserError
from faithkit.records import LABELS
from faithkit.training.checkpoints import is_in_shards
from faithkit.training.module import Figures, TrainingModule, is_head
from faithkit.training.training_options import OptimizerOptions

HINT = "data=faithcritic, begin, ragtruth and embedded have both labels"

log = logging.getLogger("faithkit")
# Options of encoding and calibration, which are not hyperparameters of the module.
NOT_HYPERPARAMETERS = (
    *("max_length", "max_windows", "train_windows", "order", "max_knowledge_words", "evidence", "evidence_alone"),
    *("token_support", "threshold_aim"),
)


Options = TypeVar("Options", bound=Any)  # CriticOptions or TaggerOptions


def check_labels(subsets: dict[str, list[Subset]]) -> None:
    """Refuses training without both labels and validation without labels; warns if validation has a single label.

    Args:
        subsets: The encoded examples by split; a streamed training split is not included and not checked.

    Raises:
        UserError: The training examples lack labels of one class or of both, or no validation example has a label.
    """
    for name, split in (("train", "training"), ("validation", "validation")):
        found = [np.zeros(0)]  # 1 for hallucinated, NaN for none; in training also weak labels, cut at 0.5
        for subset in subsets[name]:
            columns = subset.encoded.columns
            label = np.asarray(columns["label"])[subset.indices].astype(np.float64)
            label[label < 0] = np.nan
            if name == "train" and "target" in columns:
                target = np.asarray(columns["target"])[subset.indices]
                label = np.where(np.isnan(label) & ~np.isnan(target), target >= 0.5, label)
            found.append(label)
        labels = np.concatenate(found)
        known = labels[~np.isnan(labels)]
        if not len(known):
            problem = f"no {split} example has a label"
        elif known.min() == known.max():
            problem = f"all {len(known):,} labelled {split} examples are {LABELS[int(known[0])]}"
        else:
            continue
        if name == "train":
            if len(labels):
                raise UserError(f"{problem}: a detector needs both", hint=HINT)
        elif not len(known):
            hint = "label some of them, or set data.validation_fraction=0.1 if training rows have labels"
            raise UserError(f"{problem}, and they choose the checkpoint and the threshold", hint=hint)
        else:
            log.warning("%s: no checkpoint or threshold can be chosen by its metrics; %s", problem, HINT)


class EncoderModule(TrainingModule, Generic[Options]):
    """A detector in training; a subclass calls `set_up` with its model."""

    options: Options
    # Heads of auxiliary losses. A class attribute would hide the module's submodules, so there is no default.
    support: TokenHead | None
    span_head: TokenHead | None
    _word_vectors: torch.Tensor | None = None

    def __init__(self, options: Options, optimizer: OptimizerOptions, figures: Figures, **hyperparameters: Any):
        kept = {name: value for name, value in asdict(cast(Any, options)).items() if name not in NOT_HYPERPARAMETERS}
        super().__init__(optimizer, figures, **kept, **hyperparameters)
        self.options = options

    def set_up(self, model: Any) -> None:
        """Sets the model, and adds the head of overlap supervision if the options enable it.

        Raises:
            UserError: Sequences are longer than the learnt positions of the encoder.
        """
        self.model, longest = model, longest_sequence(model)
        if longest is not None and self.options.max_length > longest:
            problem = f"model.max_length is {self.options.max_length}, but this encoder reads at most {longest} tokens"
            hint = f"set model.max_length={longest} or less"
            raise UserError(problem, place=self.options.weights, hint=hint)
        if self.options.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        model.get_input_embeddings().requires_grad_(not self.options.freeze_embeddings)
        self.support = self.span_head = None
        if self.options.support_weight:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.hparams["seed"])
                self.support = TokenHead(model.config.hidden_size)

    def configure_model(self) -> None:
        """Shards the model under FSDP2; then every process has its weights, and keeps the initial word vectors."""
        super().configure_model()
        if self.support is not None and self._word_vectors is None:
            weight = self.model.get_input_embeddings().weight
            # Not a buffer, which would be broadcast at every step and saved in every checkpoint.
            whole = weight.full_tensor() if is_in_shards(self.model) else weight
            self._word_vectors = F.normalize(whole.detach().float(), dim=-1)

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
        if self._word_vectors is not None:
            self._word_vectors = self._word_vectors.to(self.device)
