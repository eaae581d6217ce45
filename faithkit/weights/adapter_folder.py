"""Reads and checks the configuration of LoRA adapters in peft's format.

Only the numbers and names of a plain LoRA are used from `adapter_config.json`. Settings that would load other modules,
name a class (`auto_mapping`) or change the base are refused; torch's pickles are never read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.checks import check_number, check_text
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_strict_json
from faithkit.files.model_folder import ADAPTER_CONFIG, read_stored

ALL_LINEAR = "all-linear"
MAX_RANK, MAX_ALPHA, MOST_MODULES = 512, 16_384, 1000
REPAIR_HINT = "copy or download the folder again, or name another"
KINDS: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none",),
    "revision": (None, "main"),
}
# Only used before training; other values change the weights of the base.
KINDS["init_lora_weights"] = (True, False, "gaussian")
NUMBERS = ("r", "lora_alpha", "lora_dropout", "target_modules", "base_model_name_or_path")
SWITCHES = ("use_rslora", "fan_in_fan_out", "inference_mode")
# Without effect on adapters of this kind.
IDLE = ("peft_version", "megatron_core", "qalora_group_size", "runtime_config")


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


def read_adapter_folder(folder: Path) -> AdapterFolder:
    """Reads and checks `adapter_config.json`; the weights are not read.

    Raises:
        UserError: It is damaged, or not a plain LoRA.
    """
    place = str(folder / ADAPTER_CONFIG)
    stored = read_strict_json(folder / ADAPTER_CONFIG, hint=REPAIR_HINT)
    if not isinstance(stored, dict):
        raise UserError("not a JSON object", place=place, hint=REPAIR_HINT)
    try:
        return _read(folder, stored)
    except UserError as error:
        if error.place:
            raise
        raise UserError(error.problem, place=place, hint=error.hint or REPAIR_HINT) from error


def _read(folder: Path, stored: dict[str, Any]) -> AdapterFolder:
    for name, allowed in KINDS.items():
        value = stored.get(name, allowed[0])
        if not any(type(value) is type(one) and value == one for one in allowed):
            raise UserError(f"{name} is {shorten(value)}: such adapters are not loaded")
    for name in SWITCHES:
        if not isinstance(stored.get(name, False), bool):
            raise UserError(f"{name} is {shorten(stored[name])}, instead of true or false")
    for name, value in stored.items():
        if name not in (*KINDS, *NUMBERS, *SWITCHES, *IDLE) and value not in (None, False, {}, [], ""):
            raise UserError(
                f"{shorten(name)} is {shorten(value)}: faithkit loads plain LoRA adapters, and runs no code"
            )
    if missing := [name for name in NUMBERS if name != "lora_dropout" and stored.get(name) is None]:
        raise UserError(f"it lacks {missing[0]}")
    check_number("r", stored["r"], 1, MAX_RANK, whole=True)
    check_number("lora_alpha", stored["lora_alpha"], 0, MAX_ALPHA)
    check_text("base_model_name_or_path", stored["base_model_name_or_path"])
    return AdapterFolder(
        folder=folder,
        base=stored["base_model_name_or_path"],
        rank=stored["r"],
        alpha=stored["lora_alpha"],
        target_modules=_modules(stored["target_modules"]),
        rslora=stored.get("use_rslora", False),
        base_weights=_base_weights(folder),
    )


def _modules(value: Any) -> str | list[str]:
    """Accepts names only: peft reads a text as a regular expression."""
    if value == ALL_LINEAR:
        return ALL_LINEAR
    names = value if isinstance(value, list) else []
    if not 0 < len(names) <= MOST_MODULES or not all(_is_name(name) for name in names):
        raise UserError(f"target_modules is {shorten(value)}, instead of a list of module names")
    return names


def _is_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) < 300
        and all(part.isidentifier() or part.isdigit() for part in value.split("."))
    )


def _base_weights(folder: Path) -> str | None:
    """Reads the hash of the base weights from a sidecar."""
    stored = read_stored(folder)
    layout = stored.get("layout") if stored else None
    value = layout.get("base_weights") if isinstance(layout, dict) else None
    return value if isinstance(value, str) else None
