"""A detector's run as a folder that plain transformers loads."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from common.checkpoints import model_state
from common.errors import UserError
from common.export import model_card
from common.model_folder import SIDECAR, TAGGER, Sidecar, find_folder, read_sidecar, whole_weights
from common.run_folder import RunFolder, read_json
from critic.cards import LIMITS, PAIRS, card_of

TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Report:
    """What was written, and how far its logits are from the run's own."""

    folder: Path
    num_logits: int
    difference: float


def export(checkpoint: str, output_dir: str) -> Report:
    """Writes the folder, reloads it in plain transformers, and compares logits with the best checkpoint's.

    Raises:
        UserError: The output folder is not empty, or the reloaded model differs.
    """
    target = Path(output_dir)
    if target.exists() and any(target.iterdir()):
        raise UserError("the output folder is not empty", place=str(target), mend="name a new folder")
    source = find_folder(checkpoint)
    sidecar = read_sidecar(source)
    if sidecar is None:
        raise UserError(f"no {SIDECAR} here: not a model of ours", place=str(source), mend="give a run's folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        run = RunFolder(checkpoint)
        (temporary / "README.md").write_text(_card(sidecar, run), encoding="utf-8")
        num_logits, difference = _compare(run, temporary, sidecar.kind)
        if not difference <= TOLERANCE:
            raise UserError(f"the reloaded model differs by {difference:.1e} in its logits", place=str(source))
        if target.exists():
            target.rmdir()
        temporary.replace(target)
        target.chmod(0o755)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Report(target, num_logits, difference)


def _card(sidecar: Sidecar, run: RunFolder) -> str:
    texts = card_of(sidecar)
    return model_card(
        title=texts.title,
        purpose=texts.purpose,
        usage=texts.usage,
        pipeline=texts.pipeline,
        config=sidecar.origin["config"],
        data=sidecar.origin["data"],
        metrics=read_json(run.metrics)["metrics"] if run.metrics.exists() else {},
        thresholds=texts.thresholds,
        limits=LIMITS,
        labels=sidecar.labels,
    )


def _compare(run: RunFolder, folder: Path, kind: str) -> tuple[int, float]:
    """How many logits of the reloaded folder differ how far, at most, from those of best.ckpt in a model of its own."""
    import transformers

    auto: Any = (
        transformers.AutoModelForTokenClassification
        if kind == TAGGER
        else transformers.AutoModelForSequenceClassification
    )
    with whole_weights(str(folder)):
        reloaded = auto.from_pretrained(folder).eval()
    reference = auto.from_config(transformers.AutoConfig.from_pretrained(folder)).eval()
    if run.best.exists():
        state = torch.load(run.best, map_location="cpu", weights_only=True)["state_dict"]
        reference.load_state_dict(model_state(state))
    else:
        reference.load_state_dict(reloaded.state_dict())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [list(side) for side in zip(*PAIRS, strict=True)]
    inputs = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        found, wanted = reloaded(**inputs).logits, reference(**inputs).logits
    real = inputs["attention_mask"].bool() if kind == TAGGER else ...
    return found[real].numel(), float((found - wanted)[real].abs().max())
