"""LoRA adapters of a language model: put on it for a training, written in peft's format, loaded on their base again.

peft is imported when adapters are used, and only then: it takes seconds.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import ADAPTER_CONFIG, ADAPTER_WEIGHTS, is_adapter
from faithkit.weights.adapter_folder import ALL_LINEAR, MEND, AdapterFolder, read_adapter_folder
from faithkit.weights.resolve import LOCAL, loading, resolve
from faithkit.weights.used_model import describe_model

NAME = "default"  # of an adapter, as peft names it where nobody else does
INSTALL = "pip install '.[lora]'"


def base_name(weights: str) -> str:
    """Names a base so that it is found again from anywhere: a folder by its whole path."""
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
    """Puts new LoRA adapters on a model, which change nothing before they are trained; only they learn from here on.

    Args:
        base: The model's name, as `adapter_config.json` shall tell it.

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
    model.name_or_path = base  # peft writes it into its configuration
    try:
        return get_peft_model(model, config, adapter_name=NAME)
    except ValueError as error:  # no module of these names, or one that is no linear layer
        problem = f"LoRA adapters cannot be put on {shorten(', '.join(modules))}"
        raise UserError(problem, hint=f"this model has {', '.join(layers)}; {ALL_LINEAR} takes all of them") from error


def linear_layers(model: Any) -> list[str]:
    """Names the linear layers of a model but for its output: the last parts of their names."""
    from transformers.pytorch_utils import Conv1D

    output = model.get_output_embeddings()
    kinds = (torch.nn.Linear, Conv1D)  # the latter is GPT-2's
    return sorted(
        {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, kinds) and m is not output}
    )


def load_adapters(model: Any, stored: AdapterFolder, *, merge: bool = False) -> Any:
    """Puts a folder's adapters on their base; beside its weights, or added to them.

    Raises:
        UserError: They are damaged, or another model's.
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
        raise UserError(f"{ADAPTER_WEIGHTS} is missing; pickled adapters are not read", place=str(folder), hint=MEND)
    found = load_file(path)
    wanted = get_peft_model_state_dict(adapted, adapter_name=NAME, save_embedding_layers=False)
    wrong = [
        name
        for name in sorted(found.keys() | wanted.keys())
        if name not in found or name not in wanted or found[name].shape != wanted[name].shape
    ]
    if wrong:
        problem = f"the adapters do not fit {ADAPTER_CONFIG} or the base: {len(wrong)} tensors differ ({wrong[0]}, ...)"
        raise UserError(problem, place=str(path), hint=MEND)
    set_peft_model_state_dict(adapted, found, adapter_name=NAME)


def write_adapters(folder: Path, state: Mapping[str, Any], config: Any) -> None:
    """Writes adapters in peft's format.

    Args:
        state: Tensors by their names in the model that peft wraps.
        config: peft's own, of the adapters.
    """
    from safetensors.torch import save_file

    tensors = {name.replace(f".{NAME}.", "."): tensor.float().contiguous() for name, tensor in state.items()}
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    own = copy.deepcopy(config)
    own.target_modules, own.inference_mode = sorted(config.target_modules), True
    own.save_pretrained(folder)


def stored_adapters(path: str) -> AdapterFolder | None:
    """Reads what a folder of adapters says; None for anything else.

    Raises:
        UserError: The folder is damaged, or its base is not the one that the adapters were trained on.
    """
    folder = Path(path).expanduser()
    if not is_adapter(folder):
        return None
    with loading(path):  # checks the files
        stored = read_adapter_folder(folder)
    if is_adapter(Path(stored.base).expanduser()):
        raise UserError("adapters on adapters are not loaded", place=str(folder), hint="name a whole model as base")
    return stored


def check_base(stored: AdapterFolder, source: str) -> None:
    """Compares the base's weights with those that the adapters were trained on.

    Args:
        source: The base as it was found.

    Raises:
        UserError: They differ.
    """
    found = describe_model(source).weights
    if stored.base_weights is not None and found != stored.base_weights:
        problem = f"these adapters were trained on other weights than {shorten(stored.base)} has now"
        hint = "put the base's folder back, or use the run's hf/ folder, in which they are merged"
        raise UserError(problem, place=str(stored.folder), hint=hint)
