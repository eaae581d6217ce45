"""Pushes a model to the hub: the files listed in its sidecar and its card, and nothing else.

Local paths in the configuration are shortened to their last part first. A folder that still contains a token or a path
of the home folder is refused.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import write_json, write_text
from faithkit.files.jsonl import read_strict_json
from faithkit.files.model_folder import CARD, CONFIG, SIDECAR, read_stored, seal

REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
CONFIGS = (CONFIG, "tokenizer_config.json", "generation_config.json")
NAMES_OF_PATHS = ("_name_or_path", "name_or_path", "tokenizer_file")  # keys that may contain a path
PATH = re.compile(r"(~?/|file:/|[A-Za-z]:[\\/])[^\n]+")
TOKENS = re.compile(r"\b(hf_[A-Za-z0-9]{30,}|sk-[\w-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16})\b")
SECRETS = re.compile(r"TOKEN|KEY|SECRET|PASSW", re.IGNORECASE)  # in the names of environment variables
CARD_LINES = 16  # lines of the card shown by a dry run


def shorten_paths(folder: Path) -> list[str]:
    """Shortens local paths in a folder's sidecar, configurations and card; returns their keys.

    The hashes of the folder are updated.
    """
    stored = read_stored(folder)
    assert stored is not None, "a folder with a sidecar"
    found: dict[str, str] = {}
    origin = _shortened(stored["origin"], "origin", found)
    for name in CONFIGS:
        if not (folder / name).exists():
            continue
        config = read_strict_json(folder / name, hint="export the run again")
        held = {key: config[key] for key in NAMES_OF_PATHS if key in config}
        if (changed := _shortened(held, name, found)) != held:
            write_json(folder / name, {**config, **changed})
    if not found:
        return []
    seal(folder, {**stored, "origin": origin})
    card = folder / CARD
    if card.exists():
        text = card.read_text(encoding="utf-8")
        for path in sorted(found.values(), key=len, reverse=True):
            text = text.replace(path, _last_part(path))
        write_text(card, text)
    return list(found)


def _shortened(value: Any, key: str, found: dict[str, str]) -> Any:
    """Copies plain data with each path shortened to its last part, and adds the paths to `found` by key."""
    if isinstance(value, Mapping):
        return {name: _shortened(one, f"{key}.{name}", found) for name, one in value.items()}
    if isinstance(value, list):
        return [_shortened(one, f"{key}.{place}", found) for place, one in enumerate(value)]
    if isinstance(value, str) and PATH.fullmatch(value) and _last_part(value) != value:
        found[key] = value
        return _last_part(value)
    return value


def _last_part(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1] or "/"


def published_files(folder: Path) -> dict[str, int]:
    """Lists the files that are pushed with their sizes: card, sidecar, its files, and an ONNX graph."""
    stored = read_stored(folder) or {}
    graph = stored.get("onnx")
    names = [CARD, *stored.get("hashes", {}), *([graph["file"]] if graph else [])]
    return {name: (folder / name).stat().st_size for name in names if (folder / name).exists()}


def check_private(folder: Path) -> int:
    """Checks the pushed text files for tokens and paths of the home folder; returns the number of files.

    Raises:
        UserError: It names the file, but not the content.
    """
    values = [value for name, value in os.environ.items() if SECRETS.search(name) and len(value) >= 12]
    names = [name for name in (CARD, SIDECAR, *CONFIGS) if (folder / name).exists()]
    home = f"{Path.home()}/"
    for name in names:
        text = (folder / name).read_text(encoding="utf-8")
        if TOKENS.search(text) or any(value in text for value in values):
            hint = "remove it from the run's config.yaml, train or export again, and revoke the token"
            raise UserError(f"{name} contains a token: nothing is pushed", hint=hint)
        if len(home) > 2 and home in text:
            hint = f"search it for {home}, and use relative paths"
            raise UserError(f"{name} contains a path of this machine: nothing is pushed", hint=hint)
    return len(names)


def describe(folder: Path, repository: str, *, private: bool, run: Path | None) -> Iterator[str]:
    """Describes a push: repository, files with sizes, files that are not pushed, and the beginning of the card."""
    from huggingface_hub import constants

    files = published_files(folder)
    seen = "private" if private else "public"
    yield f"would push to {constants.ENDPOINT}/{repository} ({seen} if it is new):"
    for name, size in sorted(files.items()):
        yield f"  {size:>13,} bytes  {name}"
    yield f"  {sum(files.values()):>13,} bytes  in {len(files)} files"
    if run is not None:
        kept = [path.name + "/" * path.is_dir() for path in sorted(run.iterdir()) if path.name not in ("hf", ".lock")]
        yield f"left out, of the run: {', '.join(kept) or 'nothing'}"
    if others := sorted({path.name for path in folder.iterdir() if path.is_file()} - files.keys()):
        yield f"left out, of the folder: {', '.join(others)}"
    yield f"{CARD} begins:"
    yield from (f"  {line}".rstrip() for line in (folder / CARD).read_text(encoding="utf-8").splitlines()[:CARD_LINES])


def push(folder: Path, repository: str, *, private: bool) -> str:
    """Pushes the folder in one commit; returns its URL.

    Args:
        private: Makes a new repository private; an existing one is not changed.

    Raises:
        UserError: The hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(endpoint=constants.ENDPOINT)
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(published_files(folder)),
            commit_message="Export by faithkit",
        )
    except (HfHubHTTPError, HFValidationError) as error:
        hint = "check the name, and that the token may write there"
        raise UserError(f"the hub refuses: {_first_line(error)}", place=repository, hint=hint) from error
    except Exception as error:  # errors of connections have no common class
        problem = f"the push to {constants.ENDPOINT} broke off: {_first_line(error)}"
        raise UserError(problem, place=repository, hint="try again; output_dir=DIR keeps the export") from error
    return str(done.commit_url)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
