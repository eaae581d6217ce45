"""The `hf/` folder of a critic: plain Hugging Face files, and `faithkit.json` with what they do not hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.disk import write_json
from common.errors import UserError
from common.records import LABELS
from common.run_folder import RunFolder, environment, read_json
from critic.verdict import Verdict

KIND = "critic"
SIDECAR = "faithkit.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What must be known to use the weights as they were trained.

    Args:
        max_length: Tokens of a sequence.
        order: Which text stands first.
        origin: Where this came from: base weights, data and its fingerprint, versions.
    """

    max_length: int
    order: str
    verdict: Verdict
    origin: dict[str, Any]


def write_folder(folder: Path, model: Any, tokenizer: Any, settings: Settings) -> None:
    """Writes weights as safetensors, the tokenizer and the sidecar."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(
        folder / SIDECAR,
        {
            "kind": KIND,
            "labels": list(LABELS),
            "layout": {"order": settings.order, "max_length": settings.max_length},
            "thresholds": asdict(settings.verdict),
            "origin": settings.origin,
            "versions": environment(),
        },
    )


def find_folder(path: str) -> Path:
    """The hf/ folder behind a path: of a run, or the folder itself."""
    root = Path(path).expanduser()
    for candidate in (root, RunFolder(root).hf):
        if (candidate / "config.json").exists():
            return candidate
    if not root.exists():
        raise UserError("no such run or folder", place=path, mend="give a run's folder, an hf/ folder or a hub name")
    if RunFolder(root).last.exists():
        raise UserError("this run has not finished", place=path, mend=f"python train.py resume={path}")
    raise UserError("neither a run nor a Hugging Face folder", place=path, mend="it should hold hf/ or config.json")


def read_settings(folder: Path) -> Settings | None:
    """What the sidecar says; None for a folder of someone else's."""
    path = folder / SIDECAR
    if not path.exists():
        return None
    stored = read_json(path)
    if stored.get("kind") != KIND:
        mend = "give the folder of a run of model=critic"
        raise UserError(
            f"a checkpoint of another kind: {stored.get('kind')!r}, wanted {KIND!r}", place=str(path), mend=mend
        )
    try:
        return Settings(
            max_length=int(stored["layout"]["max_length"]),
            order=stored["layout"]["order"],
            verdict=Verdict(**stored["thresholds"]),
            origin=stored["origin"],
        )
    except (KeyError, TypeError) as error:
        raise UserError(f"broken sidecar: {error}", place=str(path), mend="export the run again") from error


@contextmanager
def whole_weights(source: str) -> Iterator[None]:
    """Explains a weights file that was cut short: safetensors raises a kind of its own."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        mend = "export or fetch it again"
        raise UserError(f"the weights cannot be read: {error}", place=source, mend=mend) from error
