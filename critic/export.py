"""Exports a detector's run as a folder that plain transformers loads."""

from pathlib import Path
from typing import Any

import torch

from critic.cards import LIMITS, PAIRS, card_of
from faithkit.evaluation.results import read_metrics
from faithkit.files.model_folder import TAGGER, Sidecar
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoints import best_weights, load_weights, model_state
from faithkit.weights.export import Report, export_folder, model_card
from faithkit.weights.load import load_model, load_tokenizer
from faithkit.weights.resolve import loading


def export(checkpoint: str, output_dir: str) -> Report:
    """Writes the folder, reloads it in plain transformers, and compares logits with the best checkpoint's."""
    return export_folder(checkpoint, output_dir, card=_card, compare=_compare)


def _card(sidecar: Sidecar, run: RunFolder) -> str:
    texts = card_of(sidecar)
    return model_card(
        title=texts.title,
        purpose=texts.purpose,
        usage=texts.usage,
        pipeline=texts.pipeline,
        config=sidecar.origin["config"],
        data=sidecar.origin["data"],
        metrics=read_metrics(run.metrics),
        thresholds=texts.thresholds,
        limits=LIMITS,
        labels=sidecar.labels,
    )


def _compare(sidecar: Sidecar, run: RunFolder, folder: Path) -> tuple[int, float]:
    """Compares logits of the exported folder with those of best.ckpt: their number, and the largest difference."""
    import transformers

    is_tagger = sidecar.kind == TAGGER
    auto: Any = (
        transformers.AutoModelForTokenClassification if is_tagger else transformers.AutoModelForSequenceClassification
    )
    with loading(str(folder)) as source:
        reloaded = load_model(auto, source).eval()
        tokenizer = load_tokenizer(source)
    reference = auto.from_config(reloaded.config).eval()
    if run.best.exists():
        load_weights(reference, model_state(best_weights(run)), run.best)
    else:
        reference.load_state_dict(reloaded.state_dict())
    texts = [list(side) for side in zip(*PAIRS, strict=True)]
    inputs = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        found, wanted = reloaded(**inputs).logits, reference(**inputs).logits
    real = inputs["attention_mask"].bool() if is_tagger else ...
    return found[real].numel(), float((found - wanted)[real].abs().max())
