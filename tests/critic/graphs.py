"""Small ONNX graphs in the place of exported ones, which take seconds to make."""

from pathlib import Path

import numpy as np

from critic.runtime.onnx_model import GRAPH, ONNX
from faithkit.files.hashes import hash_files
from faithkit.files.model_folder import read_stored, seal


def add_graph(folder: Path, num_classes: int, *, per_token: bool = False, seed: int = 0) -> Path:
    """Puts a graph into a detector's folder and describes it in the sidecar, as an export does.

    A window's logits are the mean over its tokens of rows of a random table; a token's are its own row and that mean.
    Padding would move the mean.
    """
    from onnx import TensorProto, helper, numpy_helper, save

    table = np.random.default_rng(seed).normal(size=(400, num_classes)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows", "axis"], ["mean"], keepdims=int(per_token)),
        helper.make_node("Add", ["rows", "mean"], ["logits"])
        if per_token
        else helper.make_node("Identity", ["mean"], ["logits"]),
    ]
    shape = ["windows", "tokens", num_classes] if per_token else ["windows", num_classes]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["windows", "tokens"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axis")],
    )
    (folder / ONNX).mkdir(exist_ok=True)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / GRAPH)
    compared = {"responses": 1, "labels_changed": 0, "times_as_fast": 1.0} | dict.fromkeys(
        ("largest_logit_difference", "mean_probability_change", "largest_probability_change"), 0.0
    )
    described = {"file": GRAPH, "opset": 18, "int8": False, "sha256": hash_files(folder, [GRAPH])[GRAPH]}
    seal(folder, {**(read_stored(folder) or {}), ONNX: {**described, "compared": compared}})
    return folder
