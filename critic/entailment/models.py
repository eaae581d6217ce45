"""Loads entailment models and computes P(supported) of what they read; no code of a repository is run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critic.runtime.model_inputs import pad_inputs
from faithkit.errors import UserError
from faithkit.fast import FIRST_TOKEN, accelerate
from faithkit.published.known_detectors import WindowChecker
from faithkit.weights.load import check_vocabulary, import_transformers, load_config, load_model, load_tokenizer
from faithkit.weights.resolve import loading

ALIGNSCORE_NAMES = {
    "base_model.pooler.dense.": "classifier.dense.",  # both are a dense layer and tanh on the first state
    "base_model.": "roberta.",
    "tri_layer.": "classifier.out_proj.",
}


@dataclass(frozen=True, slots=True)
class Head:
    """How an entailment model is loaded.

    Args:
        model: Its class in transformers.
        names: New beginnings of the names of tensors that transformers does not find; others are left out.
        num_labels: The number of its classes, if the weights are named otherwise.
    """

    model: str
    names: Mapping[str, str] = field(default_factory=dict)
    num_labels: int = 0


HEADS = {
    "classifier": Head("AutoModelForSequenceClassification"),
    "first_token": Head("AutoModelForSeq2SeqLM"),  # of an encoder-decoder, which writes one of two answers (MiniCheck)
    "t5_encoder": Head("T5ForTokenClassification", {"t5.": "", "": ""}, 2),  # its first state (HHEM)
    "alignscore": Head("RobertaForSequenceClassification", ALIGNSCORE_NAMES, 3),
}


def load_entailment_model(known: WindowChecker, source: str, base: str) -> tuple[Any, Any]:
    """Loads the model in fp32, and its tokenizer.

    Args:
        source: A folder or hub name of its repository.
        base: The repository of its configuration and tokenizer, if it has none of its own.

    Raises:
        UserError: Files are missing, damaged, or of another model.
    """
    import_transformers()
    import transformers

    head = HEADS[known.head]
    kind = getattr(transformers, head.model)
    with loading(base or source) as place:
        tokenizer = load_tokenizer(place)
        if head.names:
            config = load_config(transformers.AutoConfig, place)
        else:
            model = load_model(kind, place, pickled=True)
    if head.names:
        config.num_labels, renamed = head.num_labels, {}
        for name, tensor in _read_tensors(source, known.file or "model.safetensors").items():
            prefix = next((old for old in head.names if name.startswith(old)), None)
            if prefix is not None and not name.endswith("position_ids"):  # a buffer of older versions
                renamed[head.names[prefix] + name.removeprefix(prefix)] = tensor
        model = _fill(kind(config), renamed, source)
    if (len(known.answers) or model.config.num_labels) <= known.supported:
        problem = f"{known.name} has a class {known.supported}, and these weights have {model.config.num_labels}"
        raise UserError(problem, place=source, hint=f"name a copy of {known.hub}")
    check_vocabulary(model, tokenizer, source)
    return accelerate(model.eval(), FIRST_TOKEN), tokenizer


def _read_tensors(source: str, file: str) -> dict[str, Tensor]:
    """Reads safetensors, or a Lightning checkpoint without unpickling anything but tensors and plain values."""
    if Path(source).is_dir():
        path = Path(source) / file
        if not path.is_file():
            raise UserError(f"{file} is missing", place=source, hint="copy it from the hub's repository")
    else:
        from huggingface_hub import hf_hub_download

        with loading(source) as name:
            path = Path(hf_hub_download(name, file))
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's errors have no common class
        problem = f"the checkpoint is damaged, or has more than weights in it: {type(error).__name__}"
        raise UserError(problem, place=str(path), hint="copy or download it again; its code is not run") from error
    state = stored.get("state_dict") if isinstance(stored, dict) else None
    if not isinstance(state, dict):
        raise UserError("the checkpoint has no state_dict", place=str(path), hint="copy or download it again")
    return state


def _fill(model: Any, tensors: Mapping[str, Tensor], source: str) -> Any:
    try:
        report = model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # shapes differ
        line = str(error).splitlines()[-1].strip()
        raise UserError(f"the weights do not fit: {line}", place=source, hint="copy or download them again") from error
    tied = {"transformer.encoder.embed_tokens.weight", "transformer.shared.weight"}  # T5's are one
    lost = [name for name in report.missing_keys if name not in tied] or (
        ["transformer.shared.weight"] if tied <= {*report.missing_keys} else []
    )
    if wrong := [*lost, *report.unexpected_keys]:
        problem = f"the weights lack or have too much: {', '.join(wrong[:3])}"
        raise UserError(problem, place=source, hint="copy or download them again")
    return model


@torch.inference_mode()
def support(known: WindowChecker, model: Any, rows: list[list[int]], pad_id: int) -> NDArray[np.float64]:
    """Computes P(supported) of a batch of token ids."""
    inputs = pad_inputs(rows, pad_id, model)
    if known.answers:
        inputs["decoder_input_ids"] = torch.full((len(rows), 1), model.config.decoder_start_token_id).to(model.device)
    logits = model(**inputs).logits
    logits = logits[:, 0] if logits.ndim == 3 else logits  # of the first token
    logits = logits[:, list(known.answers)] if known.answers else logits
    return logits.double().softmax(-1)[:, known.supported].cpu().numpy()
