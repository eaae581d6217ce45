"""Loads models and tokenizers completely or not at all; only a new head is initialised, and no code of a folder runs.

transformers initialises missing tensors randomly, and uses an empty vocabulary if a tokenizer's files are missing. Both
are refused here. Call these functions within `faithkit.weights.resolve.loading`, which explains other errors, or all of
them by `load_pretrained`.
"""

import logging
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_strict_json
from faithkit.files.model_folder import ADAPTER_CONFIG, check_config
from faithkit.weights.resolve import loading

REPAIR_HINT = "copy or download the folder again, or name another model"
# Tensors of files that models lack: buffers of older versions, and the pooler of classes without one.
LEFT_OUT = re.compile(r"(^|\.)(position_ids|masked_bias|inv_freq|pooler\..*)$")

_BUILDS_EMPTY = ContextVar("_BUILDS_EMPTY", default=False)
log = logging.getLogger("faithkit")


def read_config(source: str, *, own_types: Collection[str] = ()) -> dict[str, Any]:
    """Reads `config.json` of a folder or a hub name as plain values, and checks what it asks for.

    Args:
        own_types: Model types of faithkit.

    Raises:
        UserError: The type is unknown or needs code from the folder, or the file is damaged.
    """
    from transformers import CONFIG_MAPPING, PreTrainedConfig

    stored, _ = PreTrainedConfig.get_config_dict(source)
    check_config(stored, source, hint=REPAIR_HINT)
    name = stored.get("model_type")
    is_known = isinstance(name, str) and (name in CONFIG_MAPPING or name in own_types)
    if "auto_map" in stored and not is_known:
        problem = f"this model needs code from its folder (auto_map): its type {shorten(name)} is not built in"
        raise UserError(problem, place=source, hint="faithkit runs no code of a model: use one that transformers has")
    if not is_known:
        problem = f"transformers does not know the model_type {shorten(name)} of config.json"
        raise UserError(problem, place=source, hint=REPAIR_HINT)
    if "auto_map" in stored:
        log.warning("%s: the code of its auto_map is not run: %s is built in", source, name)
    return stored


def load_config(config_class: Any, source: str) -> Any:
    """Reads a model's configuration after checking it."""
    read_config(source)
    return config_class.from_pretrained(source, trust_remote_code=False)


@contextmanager
def empty_models(if_true: bool = True) -> Iterator[None]:
    """Makes `load_model` build models without weights (on the meta device): another process sends them."""
    token = _BUILDS_EMPTY.set(if_true)
    try:
        yield
    finally:
        _BUILDS_EMPTY.reset(token)


def builds_empty() -> bool:
    """Whether `empty_models` is in force."""
    return _BUILDS_EMPTY.get()


def load_model(
    model_class: Any, source: str, *, config: Any = None, head_may_be_new: bool = False, pickled: bool = False
) -> Any:
    """Loads a model in fp32 from safetensors; within `empty_models` without values.

    Args:
        model_class: Of transformers, or an Auto class of it.
        config: None reads the folder's configuration.
        head_may_be_new: A missing head or pooler is initialised from torch's seed, and one that the class lacks is
            ignored; for training, and for encoders of which only the states are used.
        pickled: Weights that exist only as a pickle are read too, as tensors alone.

    Raises:
        UserError: Tensors of the model are missing from its files, have another shape, or are too many.
    """
    import torch
    from transformers import AutoConfig

    if (Path(source) / ADAPTER_CONFIG).exists():  # transformers would load them without our checks
        raise _with_adapters(source)
    # Index files name files of this folder alone, and none that is read as a pickle.
    for path in sorted(Path(source).glob("*.index.json")):
        index = read_strict_json(path, hint=REPAIR_HINT)
        names = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(names, dict):
            raise UserError("weight_map must name a file for each tensor", place=str(path), hint=REPAIR_HINT)
        for name in dict.fromkeys(map(str, names.values())):
            if name != Path(name).name or "\\" in name:
                problem = f"weight_map names {shorten(name)}, which is not a file of this folder"
                raise UserError(problem, place=str(path), hint=REPAIR_HINT)
            if not (name.endswith(".safetensors") or pickled):
                problem = f"weight_map names {shorten(name)}, and weights are read from safetensors alone"
                raise UserError(problem, place=str(path), hint=REPAIR_HINT)
    config = config or load_config(getattr(model_class, "config_class", None) or AutoConfig, source)
    known = getattr(model_class, "_model_mapping", None)
    if known is not None and type(config) not in known:
        wanted = model_class.__name__.removeprefix("AutoModel").removeprefix("For") or "a model of text"
        problem = f"transformers has no {wanted} for models of type {config.model_type!r}"
        raise UserError(problem, place=source, hint="give a model of another type")
    check_size(model_class, config, source)
    if builds_empty():
        return build_empty(model_class, config)
    with quietly():
        model, report = model_class.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=None if pickled else True,
            weights_only=True,
            ignore_mismatched_sizes=True,  # refused below by name
            output_loading_info=True,
        )
    if getattr(model, "_hf_peft_config_loaded", False):  # of a hub name, which was not checked before
        raise _with_adapters(source)
    if mismatched := sorted(report["mismatched_keys"]):
        name, found, expected = mismatched[0]
        problem = f"{name} has the shape {tuple(found)} in the weights and {tuple(expected)} by config.json"
        raise UserError(f"{problem}{_others(mismatched)}", place=source, hint=REPAIR_HINT)
    missing = sorted(report["missing_keys"])
    new = [name for name in missing if head_may_be_new and not _in_encoder(model, name)]
    if lost := [name for name in missing if name not in new]:
        raise UserError(f"the weights lack {lost[0]}{_others(lost)}", place=source, hint=REPAIR_HINT)
    unexpected = sorted(name for name in report["unexpected_keys"] if not LEFT_OUT.search(name))
    if extra := [name for name in unexpected if not head_may_be_new or _in_encoder(model, name)]:
        problem = f"the weights have {extra[0]}{_others(extra)}, for which the model has no place"
        raise UserError(problem, place=source, hint=REPAIR_HINT)
    log_new_tensors(new, source)
    return model


def _with_adapters(source: str) -> UserError:
    hint = "name a complete model: for adapters of a run its hf/ folder, in which they are merged"
    return UserError(f"the folder has {ADAPTER_CONFIG}: adapters are not a complete model", place=source, hint=hint)


def check_size(model_class: Any, config: Any, source: str) -> None:
    """Checks that a config's model is not much larger than its files, before memory is allocated."""
    if not Path(source).is_dir():
        return
    files = [path for suffix in ("safetensors", "bin") for path in Path(source).glob(f"*.{suffix}")]
    stored = sum(path.stat().st_size for path in files)  # a number takes at least a byte
    empty = build_empty(model_class, config)
    wanted = sum(tensor.numel() for tensor in (*empty.parameters(), *empty.buffers()))
    if wanted > stored + 50_000_000:  # numbers of a head, a pooler or positions are not in the files
        problem = f"config.json is damaged: its model has {wanted:,} numbers, and its files {stored:,} bytes"
        raise UserError(problem, place=source, hint=REPAIR_HINT)


def build_empty(model_class: Any, config: Any) -> Any:
    """Builds a model in fp32 with tensors that have no values (on the meta device)."""
    import torch

    build = getattr(model_class, "from_config", None) or model_class._from_config
    with torch.device("meta"), torch.random.fork_rng(devices=[]):  # keeps the seed unchanged
        return build(config).float()


def log_new_tensors(names: Collection[str], source: str) -> None:
    """Logs the tensors that are not in the files."""
    if names:
        log.info("%s: new, and random before training: %s", source, ", ".join(sorted(names)))


def _in_encoder(model: Any, name: str) -> bool:
    """Whether a tensor belongs to the encoder without its pooler; names in files may lack the model's prefix."""
    if LEFT_OUT.search(name):
        return False
    inside = name.removeprefix(f"{model.base_model_prefix}.")
    encoder = {child for child, _ in model.base_model.named_children()}
    if inside == name and model.base_model is not model:
        encoder -= {child for child, _ in model.named_children()}
    return inside.partition(".")[0] in encoder


def _others(names: Collection[Any]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def load_tokenizer(source: str) -> Any:
    """Loads the fast tokenizer of a folder or hub name without running its code.

    Raises:
        UserError: It is not a fast tokenizer, or its files are missing or incomplete.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    if not getattr(tokenizer, "is_fast", False):
        raise UserError("this model has no fast tokenizer", place=source, hint="use a model with tokenizer.json")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    known = {tuple(tokenizer(letter, add_special_tokens=False)["input_ids"]) for letter in letters}
    if len(known) < 2:
        problem = "the tokenizer has no vocabulary: tokenizer.json and its other files are missing or empty"
        raise UserError(problem, place=source, hint=REPAIR_HINT)
    return tokenizer


def check_vocabulary(model: Any, tokenizer: Any, source: str, *, new: Collection[int] = ()) -> None:
    """Checks that the model has embeddings for all ids of the tokenizer.

    Args:
        new: Ids whose embeddings will be added.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    highest = max((number for number in tokenizer.get_vocab().values() if number not in new), default=0)
    if highest >= rows:
        problem = f"the tokenizer has ids up to {highest}, and the weights have embeddings up to {rows - 1}"
        raise UserError(problem, place=source, hint="the tokenizer belongs to another model: copy the folder again")


DEFAULT_WINDOW = 4096  # tokens of prompt and answer for a model without a limit


def check_end_token(tokenizer: Any, place: str) -> None:
    """Checks that a tokenizer has a token that ends an answer."""
    if tokenizer.eos_token_id is None:
        hint = "set eos_token in its tokenizer_config.json, or use another model"
        raise UserError("the tokenizer has no token that ends an answer", place=place, hint=hint)


def filler_token(tokenizer: Any) -> int:
    """Returns the (masked) padding token of batches: the tokenizer's, or else its end token."""
    chosen: int = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return chosen


def check_places(config: Any, place: str, max_length: int | None, key: str = "max_length") -> int:
    """Checks a causal model's configuration and returns its maximum number of tokens of prompt and answer.

    Args:
        max_length: The requested number; None for the model's maximum.
        key: The setting's name for the hint.

    Raises:
        UserError: It is an encoder-decoder, or has fewer positions.
    """
    if config.is_encoder_decoder:
        raise UserError(
            "a judge must be a causal model, and this is an encoder-decoder", place=place, hint="use another"
        )
    have = getattr(config, "max_position_embeddings", None)
    if max_length is not None and have is not None and max_length > have:
        problem = f"{key} is {max_length}, but this model has {have} positions"
        raise UserError(problem, place=place, hint=f"set {key}={have} or less")
    return int(max_length or have or DEFAULT_WINDOW)


def import_transformers() -> None:
    """Imports transformers' models without scikit-learn, scipy and pandas: a second less until the first prediction.

    transformers imports them for a function of assisted generation and the losses of object detection, and works
    without them. Nothing happens if these modules are loaded already.
    """
    import sys

    if "transformers.generation.candidate_generator" in sys.modules:
        return
    from transformers import utils

    available = utils.is_sklearn_available, utils.is_scipy_available
    utils.is_sklearn_available = utils.is_scipy_available = lambda: False
    try:
        import transformers.generation.candidate_generator
        import transformers.loss.loss_for_object_detection  # noqa: F401
    finally:
        utils.is_sklearn_available, utils.is_scipy_available = available


@contextmanager
def quietly() -> Iterator[None]:
    """Disables progress bars permanently, and load reports in the context: fine-tuning starts without a head."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def override(config: Any, names: Sequence[str], value: Any) -> None:
    """Sets the attributes that this config has; None leaves them unchanged."""
    for name in names:
        if value is not None and hasattr(config, name):
            setattr(config, name, value)


class Pretrained(NamedTuple):
    """A model in evaluation mode on its device, and its fast tokenizer."""

    model: Any
    tokenizer: Any
    device: Any


def load_pretrained(auto: str, weights: str, *, device: str | None = None, precision: str = "32-true") -> Pretrained:
    """Loads a model by folder, local name or hub name; nothing in it is executed.

    Args:
        auto: The name of transformers' Auto class.
        device: None takes the GPU where there is one.
        precision: bf16, or auto: bf16 where the hardware computes in it; anything else is fp32.
    """
    import torch
    import transformers

    from faithkit.fast import accelerate, to_bf16, wants_bf16

    place = device or ("cuda" if torch.cuda.is_available() else "cpu")

    with loading(weights) as source:
        tokenizer = load_tokenizer(source)
        model = load_model(getattr(transformers, auto), source, head_may_be_new=auto == "AutoModel")
        check_vocabulary(model, tokenizer, source)
    model = to_bf16(model) if wants_bf16(precision, place) else model
    return Pretrained(accelerate(model.eval().to(place)), tokenizer, torch.device(place))


def longest_input(model: Any, tokenizer: Any) -> int:
    """Finds the longest input in tokens: what the model has positions for and its tokenizer allows."""
    import torch

    places = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if isinstance(places, torch.nn.Embedding):
        # RoBERTa's positions begin after its padding id.
        known = places.num_embeddings - (0 if places.padding_idx is None else places.padding_idx + 1)
    else:
        known = getattr(model.config, "max_position_embeddings", 512)
    return int(min(known, tokenizer.model_max_length))
