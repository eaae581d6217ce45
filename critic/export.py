"""Exports a detector's run as a folder that plain transformers loads, optionally with an ONNX graph."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from critic.cards import GRAPH_TITLE, PAIRS, card_of, describe_comparison, graph_card
from critic.runtime.onnx_export import write_graph
from critic.runtime.onnx_model import ONNX
from faithkit.detector import TAGGER
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder
from faithkit.files.model_folder import CARD, SIDECAR, Sidecar, check_folder, find_folder, read_sidecar, read_stored
from faithkit.files.run_folder import RunFolder
from faithkit.files.run_lock import run_lock
from faithkit.weights.export import Report, export_folder, trained_model
from faithkit.weights.load import load_model, load_tokenizer
from faithkit.weights.resolve import loading


def export(checkpoint: str, output_dir: str, *, graph: bool = False, int8: bool = False) -> Report:
    """Writes the folder, reloads it in plain transformers, and compares logits with the best checkpoint's.

    Args:
        graph: Also writes an ONNX graph; otherwise an existing graph is copied.
        int8: Quantises the graph.
    """

    def finish(sidecar: Sidecar, folder: Path) -> None:
        if graph:
            write_graph(folder, quantised=int8)
        _describe_in_card(sidecar, folder)

    return export_folder(
        checkpoint, output_dir, card=lambda sidecar, _: card_of(sidecar), compare=_compare, finish=finish
    )


def add_graph(checkpoint: str, *, int8: bool) -> Path:
    """Writes an ONNX graph into the hf/ folder of a run, or another folder of a detector; returns the folder."""
    folder = find_folder(checkpoint)
    run = RunFolder(folder.parent)
    with run_lock(run.path) if folder == run.hf and run.config.exists() else nullcontext():
        if (sidecar := read_sidecar(folder)) is None:
            raise UserError(f"no {SIDECAR} in this folder", place=str(folder), hint="give a run's folder")
        check_folder(folder)
        with atomic_folder(folder, replace=True) as unfinished:
            shutil.copytree(folder, unfinished, dirs_exist_ok=True)
            write_graph(unfinished, quantised=int8)
            _describe_in_card(sidecar, unfinished)
    return folder


def _describe_in_card(sidecar: Sidecar, folder: Path) -> None:
    """Updates the section about the ONNX graph in the folder's card, if it has both."""
    card, described = folder / CARD, (read_stored(folder) or {}).get(ONNX)
    if described and card.exists():
        text = card.read_text(encoding="utf-8").partition(GRAPH_TITLE)[0]
        card.write_text(text + graph_card(sidecar, described), encoding="utf-8")


def describe_graph(folder: Path) -> list[str]:
    """Describes the graph of a folder; returns nothing if there is none."""
    described = (read_stored(folder) or {}).get(ONNX)
    if described is None:
        return []
    return [f"{described['file']}, opset {described['opset']}: {describe_comparison(described['compared'])}"]


def _compare(sidecar: Sidecar, run: RunFolder, folder: Path) -> tuple[int, float]:
    """Compares the logits of the exported folder with best.ckpt; returns their number and the largest difference."""
    import transformers

    is_tagger = sidecar.kind == TAGGER
    auto: Any = (
        transformers.AutoModelForTokenClassification if is_tagger else transformers.AutoModelForSequenceClassification
    )
    with loading(str(folder)) as source:
        reloaded = load_model(auto, source).eval()
        tokenizer = load_tokenizer(source)
    reference = trained_model(reloaded, run)
    texts = [list(side) for side in zip(*PAIRS, strict=True)]
    inputs = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        found, expected = reloaded(**inputs).logits, reference(**inputs).logits
    real = inputs["attention_mask"].bool() if is_tagger else ...
    return found[real].numel(), float((found - expected)[real].abs().max())
