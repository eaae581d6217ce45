"""An encoder with a classification head, from wherever its weights come."""

from collections.abc import Mapping
from typing import Any

import torch

from common.errors import UserError
from common.records import LABELS
from common.weights import loading


def load_classifier(weights: str, *, dropout: float | None = None, seed: int = 0) -> Any:
    """A sequence classifier over our two labels; a head that the weights do not have starts from the seed.

    Raises:
        UserError: The weights are not to be had, or are those of a classifier with other labels.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it reports the head as missing: that is the point of fine-tuning
    try:
        with loading(weights) as folder, torch.random.fork_rng(devices=[]):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            _check_labels(config, weights)
            config.num_labels = len(LABELS)
            config.id2label = dict(enumerate(LABELS))
            config.label2id = {label: index for index, label in enumerate(LABELS)}
            if dropout is not None:
                config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
            torch.manual_seed(seed)
            return AutoModelForSequenceClassification.from_pretrained(
                folder, config=config, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
            )
    finally:
        logging.set_verbosity(verbosity)


def model_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of a checkpoint of `CriticModule` the classifier's own weights: what helped in training stays behind."""
    return {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}


def _check_labels(config: Any, weights: str) -> None:
    architecture = (config.architectures or [""])[0]
    if architecture.endswith("ForSequenceClassification") and config.num_labels != len(LABELS):
        labels = ", ".join(map(str, config.id2label.values()))
        problem = f"these weights are a classifier of {config.num_labels} classes ({labels})"
        raise UserError(problem, place=weights, mend="start from an encoder, or from one of our critics")
