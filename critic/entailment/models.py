"""Loads entailment models and computes P(supported) of what they read; no code of a repository is run.

Four heads: a classifier of one text, the first token of an encoder-decoder (MiniCheck's Flan-T5), the first state of a
T5 encoder (HHEM), and AlignScore's classifier of a pair, which is a RoBERTa classifier under other names.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critic.runtime.model_inputs import pad_inputs
from faithkit import fast
from faithkit.errors import UserError
from faithkit.published.known_detectors import ALIGNSCORE, CLASSIFIER, FIRST_TOKEN, T5_ENCODER, KnownDetector
from faithkit.weights.load import check_vocabulary, import_transformers, load_config, load_model, load_tokenizer
from faithkit.weights.resolve import loading

ALIGNSCORE_NAMES = {
    "base_model.pooler.dense.": "classifier.dense.",  # both are a dense layer and tanh on the first state
    "base_model.": "roberta.",
    "tri_layer.": "classifier.out_proj.",
}


def load_entailment_model(known: KnownDetector, source: str, base: str) -> tuple[Any, Any]:
    """Loads the model in fp32, and its tokenizer.

    Args:
        source: A folder or hub name of its repository.
        base: The repository of its configuration and tokenizer, if it has none of its own.

    Raises:
        UserError: Files are missing, damaged, or of another model.
    """
    import_transformers()
    import transformers

    with loading(base or source) as place:
        tokenizer = load_tokenizer(place)
        if known.reads in (T5_ENCODER, ALIGNSCORE):
            config = load_config(transformers.AutoConfig, place)
        elif known.reads == CLASSIFIER:
            model = load_model(transformers.AutoModelForSequenceClassification, place, pickled=True)
        else:
            model = load_model(transformers.AutoModelForSeq2SeqLM, place, pickled=True)
    if known.reads == T5_ENCODER:
        config.num_labels = 2
        tensors = _read_tensors(source, known.file or "model.safetensors")
        renamed = {name.removeprefix("t5."): tensor for name, tensor in tensors.items()}
        model = _fill(transformers.T5ForTokenClassification(config), renamed, source)
    elif known.reads == ALIGNSCORE:
        config.num_labels = 3
        renamed = {}
        for name, tensor in _read_tensors(source, known.file).items():
            prefix = next((old for old in ALIGNSCORE_NAMES if name.startswith(old)), None)
            if prefix and not name.endswith("position_ids"):  # a buffer of older versions
                renamed[ALIGNSCORE_NAMES[prefix] + name.removeprefix(prefix)] = tensor
        model = _fill(transformers.RobertaForSequenceClassification(config), renamed, source)
    if known.reads != FIRST_TOKEN and model.config.num_labels <= known.supported:
        problem = f"{known.name} has a class {known.supported}, and these weights have {model.config.num_labels}"
        raise UserError(problem, place=source, hint=f"name a copy of {known.hub}")
    check_vocabulary(model, tokenizer, source)
    return fast.accelerate(model.eval(), fast.FIRST_TOKEN), tokenizer


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
def support(known: KnownDetector, model: Any, rows: list[list[int]], pad_id: int) -> NDArray[np.float64]:
    """Computes P(supported) of a batch of token ids."""
    inputs = pad_inputs(rows, pad_id, model)
    if known.reads == FIRST_TOKEN:
        start = torch.full((len(rows), 1), model.config.decoder_start_token_id, device=model.device)
        logits = model(**inputs, decoder_input_ids=start).logits[:, 0, list(known.answers)]
    elif known.reads == T5_ENCODER:
        logits = model(**inputs).logits[:, 0]
    else:
        logits = model(**inputs).logits
    return logits.double().softmax(-1)[:, known.supported].cpu().numpy()
