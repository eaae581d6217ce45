"""The `hf/` folder of a model of ours: plain Hugging Face files, and `faithkit.json` with what they do not hold."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, write_json
from faithkit.files.run_folder import RunFolder, environment, read_json
from faithkit.words import VERSION as WORDS_VERSION

SIDECAR = "faithkit.json"
CRITIC, TAGGER, GENERATOR = "critic", "tagger", "generator"  # the kinds of model
Settings = TypeVar("Settings")
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """Everything beside the weights that is needed to use them as they were trained.

    Args:
        kind: CRITIC, TAGGER or GENERATOR.
        labels: Names of the classes; a generator has none.
        layout: How texts become sequences.
        thresholds: How logits become labels: thresholds and calibration.
        origin: Configuration, data and its fingerprint.
    """

    kind: str
    labels: list[str]
    layout: dict[str, Any]
    thresholds: dict[str, Any]
    origin: dict[str, Any]


def write_folder(folder: Path, model: Any, tokenizer: Any, sidecar: Sidecar) -> None:
    """Writes weights as safetensors, the tokenizer and the sidecar; an older folder is replaced whole."""
    stored = {name: getattr(sidecar, name) for name in Sidecar.__slots__}
    with atomic_folder(folder, replace=True) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        write_json(unfinished / SIDECAR, {**stored, "versions": {**environment(), "words": WORDS_VERSION}})


def find_folder(path: str) -> Path:
    """Finds the hf/ folder behind a path: of a run, or the folder itself."""
    root = Path(path).expanduser()
    for candidate in (root, RunFolder(root).hf):
        if (candidate / "config.json").exists():
            return candidate
    if not root.exists():
        raise UserError("no such run or folder", place=path, hint="give a run's folder, an hf/ folder or a hub name")
    if RunFolder(root).last.exists():
        raise UserError("this run has not finished", place=path, hint=f"python train.py resume={path}")
    raise UserError("neither a run nor a Hugging Face folder", place=path, hint="it should hold hf/ or config.json")


def read_sidecar(folder: Path) -> Sidecar | None:
    """Reads the sidecar; None for a folder of someone else's."""
    path = folder / SIDECAR
    if not path.exists():
        return None
    stored = read_json(path)
    _check_words(stored, path)
    return parse(folder, lambda: Sidecar(**{name: stored[name] for name in Sidecar.__slots__}))


def _check_words(stored: Any, path: Path) -> None:
    """Warns of a model that was made with other rules for words than today's."""
    versions = stored.get("versions") if isinstance(stored, dict) else None
    made_with = versions.get("words", 1) if isinstance(versions, dict) else 1  # older sidecars are of version 1
    if made_with != WORDS_VERSION:
        fitted = "control features and a tagger's evidence were fitted on words"
        log.warning("%s: %s of version %s, now %s: train again", path, fitted, made_with, WORDS_VERSION)


def read_settings(folder: Path, kind: str, build: Callable[[Sidecar], Settings]) -> Settings | None:
    """Reads the settings of a model of this kind from its sidecar; None for a folder of someone else's.

    Raises:
        UserError: It is of another kind, or broken.
    """
    sidecar = read_sidecar(folder)
    if sidecar is None:
        return None
    if sidecar.kind != kind:
        hint = f"give the folder of a run of a {kind}"
        problem = f"a checkpoint of another kind: {sidecar.kind!r}, wanted {kind!r}"
        raise UserError(problem, place=str(folder / SIDECAR), hint=hint)
    return parse(folder, lambda: build(sidecar))


def parse(folder: Path, build: Callable[[], Settings]) -> Settings:
    """Builds settings from a sidecar, and explains one that is broken."""
    try:
        return build()
    except (KeyError, TypeError, ValueError) as error:
        problem = f"broken sidecar: {error}"
        raise UserError(problem, place=str(folder / SIDECAR), hint="export the run again") from error


@contextmanager
def whole_weights(source: str) -> Iterator[None]:
    """Explains a weights file that was cut short: safetensors raises a kind of its own."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        hint = "export or fetch it again"
        raise UserError(f"the weights cannot be read: {error}", place=source, hint=hint) from error
