"""Loads a trained detector from a run, an hf/ folder or a hub name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from critic.runtime.onnx_model import load_graph
from critic.weights import longest_sequence
from data_modules.encoding.tokens import PairTemplate, load_tokenizer
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import SIDECAR, Sidecar, card_languages, read_settings, repair_hint
from faithkit.languages import ENGLISH
from faithkit.provenance.used_model import trained_languages
from faithkit.weights.load import check_vocabulary, import_transformers, load_config, load_model
from faithkit.weights.resolve import fetch_folder, loading


class LoadedCheckpoint(NamedTuple):
    """A model in fp32 or its ONNX graph, with tokenizer, device, settings (None without faithkit.json), languages."""

    model: Any
    tokenizer: Any
    device: str
    settings: Any
    languages: tuple[str, ...]


def load_checkpoint(
    path: str, auto: str, kind: str, build: Callable[[Sidecar], Any], device: str | None, *, onnx: bool = False
) -> LoadedCheckpoint:
    """Loads a model from a path; no code in it is executed.

    Args:
        auto: The name of transformers' Auto class.
        kind: The kind that faithkit.json must have.
        build: Makes settings from faithkit.json.
        device: None takes a GPU if there is one.
        onnx: Loads the exported ONNX graph, on the CPU, instead of the weights.
    """
    if onnx and device not in (None, "cpu"):
        raise UserError(f"precision=onnx runs on the CPU, and device is {device!r}", hint="leave device out")
    import_transformers()
    import torch
    import transformers

    folder = fetch_folder(path, with_graph=onnx)
    settings = read_settings(folder, kind, build) if folder else None
    if settings:
        languages = trained_languages(settings.origin)
    else:
        languages = (card_languages(folder) if folder else None) or (ENGLISH,)
    with loading(str(folder or path)) as source:
        config = load_config(transformers.AutoConfig, source)
        if settings is None:  # weights of others need the required head
            head = auto.removeprefix("AutoModel")
            names = config.architectures or [head]
            if not any(name.endswith(head) for name in names):
                what = {"ForTokenClassification": "token", "ForSequenceClassification": "sequence"}[head]
                problem = f"a {what} classifier is needed, and these are the weights of {', '.join(names)}"
                raise UserError(problem, place=source, hint=f"give a trained {kind}, or train one from these weights")
        tokenizer = load_tokenizer(source)
        PairTemplate.of(tokenizer)  # fails for a tokenizer that makes no pairs
        if onnx:
            return LoadedCheckpoint(load_graph(Path(source), config), tokenizer, "cpu", settings, languages)
        model = load_model(getattr(transformers, auto), source, config=config)
        check_vocabulary(model, tokenizer, source)
    if folder and settings:
        labels, longest = tuple(model.config.id2label.values()), longest_sequence(model)
        problem = ""
        if labels != settings.labels:
            problem = f"labels are {shorten(settings.labels)}, and config.json's are {shorten(labels)}"
        if longest is not None and settings.max_length > longest:
            problem = f"layout.max_length is {settings.max_length}, but this encoder reads at most {longest} tokens"
        if problem:
            raise UserError(f"broken sidecar: {problem}", place=str(folder / SIDECAR), hint=repair_hint(folder))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return LoadedCheckpoint(model.eval().to(device), tokenizer, device, settings, languages)
