"""Writes a Hugging Face folder from arrays, a config and a tokenizer, for all converters."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Tensors = dict[str, NDArray[Any]]


def write_tensors(target: Path, tensors: Tensors) -> None:
    """Write `model.safetensors`."""
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # transformers refuses a file that does not say for which framework it was written
    path = target / "model.safetensors"
    save_file(contiguous, path, metadata={"format": "pt"})
    path.chmod(0o644)  # it is written for its owner alone, but a cache may be shared


def write_config(target: Path, config: "PretrainedConfig", architecture: str) -> None:
    """Write `config.json`, naming the class to which the tensors' names belong."""
    config.architectures = [architecture]
    config.dtype = "float32"
    config.save_pretrained(target)


def write_tokenizer(target: Path, definition: str, **settings: Any) -> None:
    """Write a tokenizer from the text of its `tokenizer.json`.

    Truncation and padding that the file carries are dropped: they are its last user's choices, and
    lengths are decided where texts are encoded.

    Args:
        settings: Special tokens, `model_max_length`, `chat_template` and the like.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    content = json.loads(definition) | {"truncation": None, "padding": None}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **settings).save_pretrained(target)
