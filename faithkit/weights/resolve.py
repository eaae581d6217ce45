"""Resolves where models come from: a folder, a local name, or a model hub's name; resolved here and nowhere else.

Anything that loads a model does it under `loading`.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faithkit.errors import UserError, nearest, shorten
from faithkit.files.model_folder import ADAPTER_CONFIG, CONFIG, MARK, SIDECAR, check_folder
from faithkit.weights.local import LOCAL, LocalWeights, fetch
from faithkit.weights.models import known_models

__all__ = [
    "LOCAL",
    "LocalWeights",
    "check_at_hand",
    "explain",
    "hub_adapters",
    "hub_folder",
    "is_hub_name",
    "loading",
    "resolve",
]

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
CONFIGS = ("config.json", "adapter_config.json", "meta.json")  # of a model, of an adapter, of spaCy
# All that a folder of ours is read from.
OUR_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.parquet")
GRAPHS = "onnx/*.onnx"  # beside them; many times as large as all but the weights
PATH_STARTS = (".", "~", "/")
RUST_PANIC = "PanicException"  # of tokenizers and safetensors; it is no Exception, and its class has no module

log = logging.getLogger("faithkit")


def resolve(name_or_path: str) -> str:
    """Resolves a model's name for `from_pretrained`: a folder's path, or a hub's name as it is.

    A local name comes first, and is downloaded and converted once; `./minilm` means a folder of that name.
    A hub's name is not looked up here: load it under `loading`, which explains what goes wrong.

    Raises:
        UserError: It is neither a folder nor a possible name, or the local weights cannot be fetched.
    """
    if name_or_path in LOCAL:
        return str(fetch(LOCAL[name_or_path]))
    path = Path(name_or_path).expanduser()
    if name_or_path and path.is_dir():
        return str(path)
    if name_or_path in known_models():
        problem = f"{name_or_path} is a recipe of `faithkit models`: it has no weights to download, and is trained"
        raise UserError(problem, hint=f"faithkit models {name_or_path} tells how; then give the folder of its run")
    if name_or_path and path.exists():
        raise UserError(
            f"{shorten(name_or_path)} is a file: a model is a folder, with config.json and its weights",
            hint="name the folder; a run's model is in its hf/ folder",
        )
    if name_or_path.startswith(PATH_STARTS) or not HUB_NAME.fullmatch(name_or_path):
        raise UserError(
            f"{shorten(name_or_path)} is no folder, no local name and no hub's name",
            hint=f"name a folder that exists, one of {', '.join(LOCAL)}, or a model such as roberta-large",
        )
    return name_or_path


def check_at_hand(name: str | None) -> None:
    """Refuses a hub's name that is in no cache while the hub is out of reach: at once, and not when torch is loaded.

    Raises:
        UserError: It is neither here nor in reach.
    """
    if name is None or name in LOCAL or not is_hub_name(name):
        return
    resolve(name)  # a recipe's name is no hub's
    if not _in_hub_cache(name) and not _in_hub_cache(name, ADAPTER_CONFIG) and not _hub_in_reach():
        raise _out_of_reach(name)


def is_hub_name(path: str) -> bool:
    """Tells a hub's name (or a local one) from a path."""
    return not Path(path).expanduser().exists() and bool(HUB_NAME.fullmatch(path))


def hub_folder(name: str, *, with_graph: bool = False) -> Path | None:
    """Fetches a model of ours from the hub, with its sidecar, or LoRA adapters; None for another model.

    Args:
        with_graph: Fetches its ONNX graph too.
    """
    if name in LOCAL:
        return None
    if (adapters := hub_adapters(name)) is not None:
        return adapters
    from huggingface_hub import snapshot_download
    from transformers import PreTrainedConfig

    with loading(name) as source:
        stored, _ = PreTrainedConfig.get_config_dict(source)
        wanted = [*OUR_FILES, *([GRAPHS] if with_graph else [])]
        return Path(snapshot_download(source, allow_patterns=wanted)) if MARK in stored else None


def hub_adapters(name: str) -> Path | None:
    """Fetches LoRA adapters from the hub as a folder, without pickles and code; None where the name is no adapters'."""
    if name in LOCAL or _in_hub_cache(name):
        return None
    from huggingface_hub import file_exists, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    if not _in_hub_cache(name, ADAPTER_CONFIG):
        try:
            if not _hub_in_reach() or not file_exists(name, ADAPTER_CONFIG) or file_exists(name, CONFIG):
                return None
        except (HfHubHTTPError, ConnectionError):
            return None  # `loading` explains it
    try:
        return Path(snapshot_download(name, allow_patterns=[*OUR_FILES]))
    except Exception as error:
        raise explain(name, error) from error


@contextmanager
def loading(name_or_path: str) -> Iterator[str]:
    """Resolve a name, and turn what goes wrong while it is loaded into a `UserError`.

        with loading("roberta-large") as source:
            model = AutoModel.from_pretrained(source)

    A hub that is out of reach is noticed first, in place of the minute of retries that its client takes. The files of
    a folder are checked before anything reads them (`faithkit.files.model_folder`).

    Raises:
        UserError: Whatever goes wrong within, but for errors of the system (a full disk, a permission). What a damaged
            or hostile folder makes its readers raise has no end of kinds, so all are explained here.
    """
    source = resolve(name_or_path)
    folder = Path(source)
    if not folder.is_dir():
        if not _in_hub_cache(source) and not _hub_in_reach():
            raise _out_of_reach(name_or_path)
    elif not any((folder / name).exists() for name in (*CONFIGS, SIDECAR)):
        raise UserError(
            f"{shorten(name_or_path)} is a folder, but holds no model: it has no config.json",
            hint="name the folder that has one; a run's model is in its hf/ folder",
        )
    try:
        if folder.is_dir():
            check_folder(folder)
        yield source
    except UserError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != RUST_PANIC:
            raise
        if getattr(error, "errno", None) is not None:  # a full disk or a permission says best what it is
            raise
        raise explain(name_or_path, error) from error


def explain(name_or_path: str, error: BaseException) -> UserError:
    """Explains transformers' error about a model that it could not load, with what to do about it."""
    from huggingface_hub import errors

    causes = list(_chain(error))
    if any(isinstance(cause, errors.GatedRepoError) for cause in causes):
        return UserError(
            f"{name_or_path} is gated: the hub gives it only to accounts that accepted its terms",
            hint="accept them on its page and set HF_TOKEN, or use another model",
        )
    if any(isinstance(cause, errors.RepositoryNotFoundError) for cause in causes):
        guess = _guess(name_or_path)
        return UserError(
            f"{shorten(name_or_path)} is not a folder here, and the hub knows no such model{guess}",
            hint=f"check the name; a private model needs HF_TOKEN; local names are {', '.join(LOCAL)}",
        )
    unreached = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError)
    if any(isinstance(cause, unreached) for cause in causes):
        return _out_of_reach(name_or_path)
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    told = said if isinstance(error, OSError) else f"{type(error).__name__}: {said}"
    hint = "its files are damaged or unknown to this version of transformers: copy or download them again"
    return UserError(f"the model cannot be loaded: {told[:200]}", place=name_or_path, hint=hint)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _out_of_reach(name: str) -> UserError:
    same = [weights.name for weights in LOCAL.values() if weights.hub_equivalent == name]
    parent = Path(name).parent
    if "/" in name and parent.is_dir():
        near = nearest(Path(name).name, sorted(child.name for child in parent.iterdir() if child.is_dir()), 1)
        did = f"; did you mean {parent / near[0]}?" if near else ""
        problem = f"{shorten(name)} is not a folder here, and the model hub was not reached{did}"
        return UserError(problem, hint=f"name a folder below {parent}, or set HF_HOME to a cache that holds the model")
    local = f"the local name {same[0]}" if same else f"a local name ({', '.join(LOCAL)})"
    return UserError(
        f"{shorten(name)} is not a folder here, and the model hub was not reached{_guess(name)}",
        hint=f"use {local}, a folder, or set HF_HOME to a cache that holds it",
    )


def _guess(name: str) -> str:
    close = nearest(name, LOCAL, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _in_hub_cache(name: str, file: str = CONFIG) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, file), str)


def _hub_in_reach() -> bool:
    import socket
    import urllib.parse
    import urllib.request

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if urllib.request.getproxies():
        return True  # a direct connection would say nothing; the client finds out
    address = urllib.parse.urlsplit(constants.ENDPOINT)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=5).close()
    except OSError:
        return False
    return True
