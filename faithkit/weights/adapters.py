"""Adds LoRA adapters to a language model, writes them in peft's format, and loads them onto their base.

Only the numbers and names of a plain LoRA are read from `adapter_config.json`. Settings that would load other modules,
name a class (`auto_mapping`) or change the base are refused; pickles are never read. peft and torch are imported only
when adapters are used, because they take seconds.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_strict_json
from faithkit.files.model_folder import ADAPTER_CONFIG, ADAPTER_WEIGHTS, is_adapter, read_stored
from faithkit.packages import needs_package
from faithkit.settings.check import check_value
from faithkit.settings.types import ALL_LINEAR, MAX_ALPHA, Range, Rank, Text
from faithkit.weights.load import REPAIR_HINT
from faithkit.weights.resolve import LOCAL, hash_weights, loading, resolve

NAME = "default"  # of an adapter, as in peft
# The values that a plain LoRA may have.
ALLOWED: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none",),
    "revision": (None, "main"),
    "init_lora_weights": (True, False, "gaussian"),  # used before training; other values change the base's weights
    **dict.fromkeys(("use_rslora", "fan_in_fan_out", "inference_mode"), (False, True)),
}
REQUIRED = ("r", "lora_alpha", "target_modules", "base_model_name_or_path")
TYPES = {"r": Rank, "lora_alpha": Annotated[float, Range(ge=0, le=MAX_ALPHA)], "base_model_name_or_path": Text}
# Without effect on adapters of this kind.
UNUSED = ("lora_dropout", "peft_version", "megatron_core", "qalora_group_size", "runtime_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFolder:
    """The configuration of adapters in a folder.

    Args:
        base: The model that they were trained on: a folder, a local name or a hub name.
        base_weights: The hash of its weights; None for adapters from elsewhere.
        target_modules: `ALL_LINEAR`, or the last parts of the modules' names.
        rslora: The adapters are scaled by the root of their rank.
    """

    folder: Path
    base: str
    rank: int
    alpha: float
    target_modules: str | list[str]
    rslora: bool = False
    base_weights: str | None = None


def stored_adapters(path: str) -> AdapterFolder | None:
    """Reads the configuration of a folder of adapters, but not the weights; None for any other path.

    Raises:
        UserError: The folder is damaged, not a plain LoRA, or its base is another folder of adapters.
    """
    folder = Path(path).expanduser()
    if not is_adapter(folder):
        return None
    place = str(folder / ADAPTER_CONFIG)
    with loading(path):  # checks the files
        config = read_strict_json(folder / ADAPTER_CONFIG, hint=REPAIR_HINT)
        if not isinstance(config, dict):
            raise UserError("not a JSON object", place=place, hint=REPAIR_HINT)
        try:
            stored = _read(folder, config)
        except UserError as error:
            raise UserError(error.problem, place=error.place or place, hint=error.hint or REPAIR_HINT) from error
    if is_adapter(Path(stored.base).expanduser()):
        raise UserError("adapters on adapters are not loaded", place=str(folder), hint="name a complete model as base")
    return stored


def _read(folder: Path, config: dict[str, Any]) -> AdapterFolder:
    for name, allowed in ALLOWED.items():
        value = config.get(name, allowed[0])
        if not any(type(value) is type(one) and value == one for one in allowed):
            raise UserError(f"{name} is {shorten(value)}: such adapters are not loaded")
    for name, value in config.items():
        if name not in (*ALLOWED, *REQUIRED, *UNUSED) and value not in (None, False, {}, [], ""):
            raise UserError(
                f"{shorten(name)} is {shorten(value)}: faithkit loads plain LoRA adapters, and runs no code"
            )
    if missing := [name for name in REQUIRED if config.get(name) is None]:
        raise UserError(f"it lacks {missing[0]}")
    for name, kind in TYPES.items():
        check_value(name, config[name], kind)
    modules = config["target_modules"]
    # Names only: peft reads a text as a regular expression.
    are_names = isinstance(modules, list) and all(
        isinstance(name, str)
        and len(name) < 300
        and all(part.isidentifier() or part.isdigit() for part in name.split("."))
        for name in modules[:1001]
    )
    if modules != ALL_LINEAR and not (are_names and 0 < len(modules) <= 1000):
        raise UserError(f"target_modules is {shorten(modules)}, instead of a list of module names")
    sidecar = read_stored(folder)
    layout = sidecar.get("layout") if sidecar else None
    base_weights = layout.get("base_weights") if isinstance(layout, dict) else None
    return AdapterFolder(
        folder=folder,
        base=config["base_model_name_or_path"],
        rank=config["r"],
        alpha=config["lora_alpha"],
        target_modules=modules,
        rslora=config.get("use_rslora", False),
        base_weights=base_weights if isinstance(base_weights, str) else None,
    )


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
    with needs_package("a LoRA adapter"):
        from peft import LoraConfig, get_peft_model
    import torch
    from transformers.pytorch_utils import Conv1D

    output = model.get_output_embeddings()
    linear = (torch.nn.Linear, Conv1D)  # Conv1D is GPT-2's
    found = (name for name, one in model.named_modules() if isinstance(one, linear) and one is not output)
    layers = sorted({name.rpartition(".")[2] for name in found})
    modules = layers if target_modules == ALL_LINEAR else list(target_modules)
    options: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "lora_dropout": dropout, "use_rslora": rslora}
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=modules, **options)
    model.name_or_path = base  # peft writes it to its configuration
    try:
        return get_peft_model(model, config, adapter_name=NAME)
    except ValueError as error:  # no module has these names, or one is not a linear layer
        problem = f"LoRA adapters cannot be added to {shorten(', '.join(modules))}"
        raise UserError(problem, hint=f"this model has {', '.join(layers)}; {ALL_LINEAR} takes all of them") from error


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
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    path = stored.folder / ADAPTER_WEIGHTS
    if not path.is_file():
        raise UserError(
            f"{ADAPTER_WEIGHTS} is missing; pickled adapters are not read", place=str(stored.folder), hint=REPAIR_HINT
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
    model = adapted.merge_and_unload(safe_merge=True) if merge else adapted.get_base_model()
    return model.eval()


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


def check_base(stored: AdapterFolder, source: str) -> None:
    """Compares the base's weights with those that the adapters were trained on.

    Args:
        source: The resolved base.

    Raises:
        UserError: They differ.
    """
    found = hash_weights(source)
    if stored.base_weights is not None and found != stored.base_weights:
        problem = f"the weights of {shorten(stored.base)} have changed since these adapters were trained on them"
        hint = "restore the base's folder, or use the run's hf/ folder, in which they are merged"
        raise UserError(problem, place=str(stored.folder), hint=hint)
