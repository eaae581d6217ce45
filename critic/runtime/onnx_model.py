"""Runs a detector's ONNX graph, which `export.py format=onnx` writes, instead of its torch model.

Each window is run separately without padding. A graph in int8 measures the ranges of its activations at run time, so
that otherwise a score would depend on its batch.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from critic.weights import EVIDENCE
from data_modules.encoding.pair_encoder import EVIDENCE as COLUMNS
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import hash_files
from faithkit.files.model_folder import SIDECAR, read_stored, repair_hint
from faithkit.packages import needs_package

ONNX = "onnx"  # the precision, the folder of the graph, and its key in faithkit.json
GRAPH, QUANTISED = f"{ONNX}/model.onnx", f"{ONNX}/model_quantized.onnx"  # the usual names on the hub


class Output(NamedTuple):
    """The part of a transformers output that detectors read."""

    logits: Tensor


class OnnxModel:
    """Runs a classifier as an ONNX graph on the CPU.

    Args:
        path: The graph, from token ids and masks [windows, tokens] to `logits`.
        config: The configuration of the exported model.
    """

    def __init__(self, path: Path, config: Any):
        runtime = import_runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores may be shared
        self.config, self.device = config, torch.device("cpu")
        self._session = runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs()]

    def __call__(self, *, attention_mask: Tensor | None = None, **inputs: Tensor) -> Output:
        """Computes the logits of a batch with padding on the right; the logits of padding are 0.

        Args:
            attention_mask: [windows, tokens]; None without padding.
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
    with needs_package("precision=onnx"):
        import onnxruntime
    return onnxruntime


def check_graph_is_enough(stored: Mapping[str, Any], folder: Path) -> None:
    """Refuses a detector that reads hidden states, which the graph does not output."""
    thresholds = stored.get("thresholds")
    weights = thresholds.get(EVIDENCE) if isinstance(thresholds, dict) else None
    if isinstance(weights, list) and len(weights) > len(COLUMNS) + 2:  # besides the log-odds and the bias
        problem = "this critic uses the weakest tokens, which need hidden states that an ONNX graph lacks"
        raise UserError(problem, place=str(folder), hint="use precision=auto, or train with model.evidence=words")
    layout = stored.get("layout")
    if isinstance(layout, dict) and layout.get("token_support"):
        problem = "this tagger compares hidden states, which an ONNX graph lacks"
        raise UserError(problem, place=str(folder), hint="use precision=auto")


def load_graph(folder: Path, config: Any) -> OnnxModel:
    """Loads the graph in a model's folder after checking its hash.

    Raises:
        UserError: There is no graph, it was not exported with these weights, or it is broken.
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
            f"broken sidecar: {ONNX} is {shorten(described)}", place=str(folder / SIDECAR), hint=repair_hint(folder)
        )
    name = described["file"]
    if not (folder / name).is_file():
        raise UserError(f"{name} is missing", place=str(folder), hint=hint)
    if hash_files(folder, [name])[name] != described.get("sha256"):
        raise UserError(f"{name} is not the graph that was exported with these weights", place=str(folder), hint=hint)
    import_runtime()
    try:
        return OnnxModel(folder / name, config)
    except Exception as error:  # onnxruntime's errors have no common class
        problem = f"onnxruntime cannot load {name}: {str(error)[:160]}"
        raise UserError(problem, place=str(folder), hint="pip install -U onnxruntime, or export it again") from error
