"""Adds LoRA adapters to a language model, writes them in peft's format, and loads them onto their base.

peft is imported only when adapters are used, because it takes seconds.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import ADAPTER_CONFIG, ADAPTER_WEIGHTS, is_adapter
from faithkit.weights.adapter_folder import ALL_LINEAR, REPAIR_HINT, AdapterFolder, read_adapter_folder
from faithkit.weights.resolve import LOCAL, loading, resolve
from faithkit.weights.used_model import describe_model

NAME = "default"  # of an adapter, as in peft
INSTALL = "pip install '.[lora]'"


def base_name(weights: str) -> str:
    """Returns the name of a base that works from any folder: for a folder its absolute path."""
    source = resolve(weights)
    return weights if weights in LOCAL or not Path(source).is_dir() else str(Path(source).absolute())


def add_adapters(
    model: Any,
    *,
    rank: int,
    alpha: float,
    target_modules: str | Sequence[str],
    dropout: float = 0.0,
    rslora: bool = False,
    base: str = "",
) -> Any:
    """Adds new LoRA adapters to a model and freezes everything else; before training they have no effect.

    Args:
        base: The model's name for `adapter_config.json`.

    Raises:
        UserError: peft is not installed, or the model has no such modules.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise UserError("LoRA adapters need the package peft", hint=INSTALL) from error
    layers = linear_layers(model)
    modules = layers if target_modules == ALL_LINEAR else list(target_modules)
    options: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "lora_dropout": dropout, "use_rslora": rslora}
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=modules, **options)
    model.name_or_path = base  # peft writes it to its configuration
    try:
        return get_peft_model(model, config, adapter_name=NAME)
    except ValueError as error:  # no module has these names, or one is not a linear layer
        problem = f"LoRA adapters cannot be added to {shorten(', '.join(modules))}"
        raise UserError(problem, hint=f"this model has {', '.join(layers)}; {ALL_LINEAR} takes all of them") from error


def linear_layers(model: Any) -> list[str]:
    """Returns the last parts of the names of a model's linear layers, without its output layer."""
    from transformers.pytorch_utils import Conv1D

    output = model.get_output_embeddings()
    kinds = (torch.nn.Linear, Conv1D)  # Conv1D is GPT-2's
    return sorted(
        {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, kinds) and m is not output}
    )


def load_adapters(model: Any, stored: AdapterFolder, *, merge: bool = False) -> Any:
    """Loads a folder's adapters onto their base, as separate layers or merged into its weights.

    Raises:
        UserError: They are damaged, or of another model.
    """
    adapted = add_adapters(
        model,
        rank=stored.rank,
        alpha=stored.alpha,
        target_modules=stored.target_modules,
        rslora=stored.rslora,
        base=stored.base,
    )
    _load_tensors(adapted, stored.folder)
    model = adapted.merge_and_unload(safe_merge=True) if merge else adapted.get_base_model()
    return model.eval()


def _load_tensors(adapted: Any, folder: Path) -> None:
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    path = folder / ADAPTER_WEIGHTS
    if not path.is_file():
        raise UserError(
            f"{ADAPTER_WEIGHTS} is missing; pickled adapters are not read", place=str(folder), hint=REPAIR_HINT
        )
    found = load_file(path)
    expected = get_peft_model_state_dict(adapted, adapter_name=NAME, save_embedding_layers=False)
    different = [
        name
        for name in sorted(found.keys() | expected.keys())
        if name not in found or name not in expected or found[name].shape != expected[name].shape
    ]
    if different:
        count, first = len(different), different[0]
        problem = f"the adapters do not fit {ADAPTER_CONFIG} or the base: {count} tensors differ ({first}, ...)"
        raise UserError(problem, place=str(path), hint=REPAIR_HINT)
    set_peft_model_state_dict(adapted, found, adapter_name=NAME)


def write_adapters(folder: Path, state: Mapping[str, Any], config: Any) -> None:
    """Writes adapters in peft's format.

    Args:
        state: Tensors by their names in peft's model.
        config: The adapters' configuration of peft.
    """
    from safetensors.torch import save_file

    tensors = {name.replace(f".{NAME}.", "."): tensor.float().contiguous() for name, tensor in state.items()}
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    stored = copy.deepcopy(config)
    stored.target_modules, stored.inference_mode = sorted(config.target_modules), True
    stored.save_pretrained(folder)


def stored_adapters(path: str) -> AdapterFolder | None:
    """Reads the configuration of a folder of adapters; None for any other path.

    Raises:
        UserError: The folder is damaged, or its base is another folder of adapters.
    """
    folder = Path(path).expanduser()
    if not is_adapter(folder):
        return None
    with loading(path):  # checks the files
        stored = read_adapter_folder(folder)
    if is_adapter(Path(stored.base).expanduser()):
        raise UserError("adapters on adapters are not loaded", place=str(folder), hint="name a complete model as base")
    return stored


def check_base(stored: AdapterFolder, source: str) -> None:
    """Compares the base's weights with those that the adapters were trained on.

    Args:
        source: The resolved base.

    Raises:
        UserError: They differ.
    """
    found = describe_model(source).weights
    if stored.base_weights is not None and found != stored.base_weights:
        problem = f"the weights of {shorten(stored.base)} have changed since these adapters were trained on them"
        hint = "restore the base's folder, or use the run's hf/ folder, in which they are merged"
        raise UserError(problem, place=str(stored.folder), hint=hint)
