"""Runs a detector's ONNX graph, which `export.py format=onnx` writes, in the place of its torch model.

A window is read by itself. Nothing is padded then, and a graph in int8, which measures the ranges of its activations
while it runs, measures them on that window alone: a score does not depend on its batch.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from critic.sequence.evidence import EVIDENCE, TOKEN_WEIGHTS
from faithkit.errors import UserError, shorten
from faithkit.files.hashes import hash_files
from faithkit.files.model_folder import SIDECAR, mend_hint, read_stored

INSTALL = "pip install '.[onnx]'"
ONNX = "onnx"  # the precision, the folder of the graph, and the sidecar's key that describes it
GRAPH, QUANTISED = f"{ONNX}/model.onnx", f"{ONNX}/model_quantized.onnx"  # as the hub's other tools name them


class Output(NamedTuple):
    """The part of a transformers output that detectors read."""

    logits: Tensor


class OnnxModel:
    """A classifier as an ONNX graph, on the CPU.

    Args:
        path: The graph: from token ids and masks [windows, tokens] to `logits`.
        config: The configuration of the model that it was made of.
    """

    def __init__(self, path: Path, config: Any):
        runtime = import_runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other work may share the cores
        self.config, self.device = config, torch.device("cpu")
        self._session = runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs()]

    def __call__(self, *, attention_mask: Tensor | None = None, **inputs: Tensor) -> Output:
        """Gives the logits of a batch that is padded on the right; those of padded tokens are 0.

        Args:
            attention_mask: [windows, tokens]; None where nothing is padded.
            inputs: `input_ids` and perhaps `token_type_ids` [windows, tokens].
        """
        ids = inputs["input_ids"]
        mask = torch.ones_like(ids) if attention_mask is None else attention_mask
        columns = {name: tensor.numpy() for name, tensor in {**inputs, "attention_mask": mask}.items()}
        rows = [
            self._session.run(["logits"], {name: columns[name][row : row + 1, :length] for name in self._names})[0][0]
            for row, length in enumerate(mask.sum(1).tolist())
        ]
        if rows[0].ndim == 1:  # a class for each window
            return Output(torch.from_numpy(np.stack(rows)))
        logits = np.zeros((*ids.shape, rows[0].shape[-1]), np.float32)
        for row, found in enumerate(rows):
            logits[row, : len(found)] = found
        return Output(torch.from_numpy(logits))


def import_runtime() -> Any:
    """Imports onnxruntime, an optional package."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError("precision=onnx needs the package onnxruntime", hint=INSTALL) from error
    return onnxruntime


def check_graph_is_enough(stored: Mapping[str, Any], folder: Path) -> None:
    """Refuses a detector that reads the states of tokens, which a graph of logits does not give."""
    thresholds = stored.get("thresholds")
    weights = thresholds.get(EVIDENCE) if isinstance(thresholds, dict) else None
    if isinstance(weights, list) and len(weights) == len(TOKEN_WEIGHTS):
        problem = "this critic weighs the response's weakest tokens, for which it reads states that an ONNX graph lacks"
        raise UserError(problem, place=str(folder), hint="use precision=auto, or train with model.evidence=words")
    layout = stored.get("layout")
    if isinstance(layout, dict) and layout.get("token_support"):
        problem = "this tagger compares the states of tokens, which an ONNX graph lacks"
        raise UserError(problem, place=str(folder), hint="use precision=auto")


def load_graph(folder: Path, config: Any) -> OnnxModel:
    """Loads the graph of a model's folder, after its hash was compared with the one in the sidecar.

    Raises:
        UserError: There is none, it is another one than was exported with these weights, or it is broken.
    """
    stored = read_stored(folder) or {}
    check_graph_is_enough(stored, folder)
    described = stored.get(ONNX)
    if described is None:
        hint = f"faithkit export checkpoint={folder} format=onnx   writes one"
        raise UserError("precision=onnx, but this model has no ONNX graph", place=str(folder), hint=hint)
    hint = "export it again with format=onnx"
    if not isinstance(described, dict) or described.get("file") not in (GRAPH, QUANTISED):
        raise UserError(
            f"broken sidecar: {ONNX} is {shorten(described)}", place=str(folder / SIDECAR), hint=mend_hint(folder)
        )
    name = described["file"]
    if not (folder / name).is_file():
        raise UserError(f"{name} is missing", place=str(folder), hint=hint)
    if hash_files(folder, [name])[name] != described.get("sha256"):
        raise UserError(f"{name} is not the graph that was exported with these weights", place=str(folder), hint=hint)
    import_runtime()
    try:
        return OnnxModel(folder / name, config)
    except Exception as error:  # onnxruntime's own kinds, which have no class in common
        problem = f"onnxruntime cannot load {name}: {str(error)[:160]}"
        raise UserError(problem, place=str(folder), hint="pip install -U onnxruntime, or export it again") from error
