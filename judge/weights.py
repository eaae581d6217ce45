"""Loads causal language models for the training of a judge, and finds trained judges."""

from typing import Any, NamedTuple

from faithkit.detector import JUDGE
from faithkit.files.model_folder import read_settings
from faithkit.weights.load import check_places, check_vocabulary, load_config, load_model, override
from faithkit.weights.resolve import fetch_folder, loading
from judge.settings import Settings

DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "dropout")  # config keys, by family


class StoredJudge(NamedTuple):
    """A judge without its weights.

    Args:
        source: A folder for an engine.
        settings: The settings of its training; None for an external model.
    """

    source: str
    settings: Settings | None


def load_causal(weights: str, tokenizer: Any, *, max_length: int, dropout: float | None) -> Any:
    """Loads a causal model in fp32 for training.

    Raises:
        UserError: It is an encoder-decoder, its positions are too few, or it cannot be found.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    with loading(weights) as source:
        config = load_config(AutoConfig, source)
        check_places(config, weights, max_length, "model.max_length")
        override(config, DROPOUTS, dropout)
        model = load_model(AutoModelForCausalLM, source, config=config)
        check_vocabulary(model, tokenizer, source)
    return model


def stored_judge(path: str) -> StoredJudge:
    """Finds a trained judge by its run or hf/ folder, or any model by folder, local or hub name."""
    folder = fetch_folder(path)
    settings = read_settings(folder, JUDGE, Settings.from_sidecar) if folder else None
    return StoredJudge(str(folder or path), settings)
