"""Writes a detector's ONNX graph into its folder, and compares it with the torch model on texts of many lengths.

torch's exporter writes the graph with dynamic axes; onnxruntime quantises it to int8: weights and embeddings have 7
bits with a scale per output, activations 8 bits with dynamic ranges. A graph whose outputs differ too much from the
model's is refused.
"""

import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from critic.runtime import (
    GRAPH,
    ONNX,
    QUANTISED,
    calibration_pairs,
    calibration_requests,
    check_graph_is_enough,
    import_runtime,
)
from critic.sequence.scorer import Critic, window_logits
from critic.tagger.predictor import Tagger
from critic.tagger.windows import token_logits
from data_modules.encoding.tokens import PairTemplate
from faithkit.detector import TAGGER
from faithkit.errors import UserError
from faithkit.files.atomic import hash_file
from faithkit.files.model_folder import read_stored, seal
from faithkit.packages import needs_package
from faithkit.records import Prediction
from faithkit.weights.load import load_model, load_tokenizer
from faithkit.weights.resolve import loading

# Knowledge and responses of different lengths, on which logits are compared.
PAIRS = [
    ("The Danube flows through ten countries.", "It passes through ten countries."),
    ("The Danube flows through ten countries.", "I swam in it once, it crosses twelve countries!"),
    ("Bread is baked from flour and water.", "Flour and water."),
    ("A " + "long " * 40 + "source about clocks.", "Clocks are mentioned, and so is the moon."),
]
OPSET = 18
MAX_BYTES = 2**31 - 2**24  # of the weights: an ONNX file has at most 2 GiB
MAX_LOGIT_DIFFERENCE = 1e-3  # in fp32, whose kernels round differently
MAX_MEAN_CHANGE = 0.05  # of the responses' probabilities in int8


def write_graph(folder: Path, *, quantised: bool) -> dict[str, Any]:
    """Writes the graph into a model's folder, replacing an existing graph, and describes it in faithkit.json.

    Returns:
        The description: the file with its hash, opset, and the differences to the model's outputs.

    Raises:
        UserError: A package is missing, the model is too large, or the outputs differ too much.
    """
    import_runtime()
    stored = read_stored(folder)
    assert stored is not None, "the folder has a faithkit.json"
    check_graph_is_enough(stored, folder)
    shutil.rmtree(folder / ONNX, ignore_errors=True)
    (folder / ONNX).mkdir()
    name = QUANTISED if quantised else GRAPH
    with tempfile.TemporaryDirectory(dir=folder / ONNX) as temporary:
        exact = Path(temporary, "exact.onnx")
        _export(folder, exact, is_tagger=stored["kind"] == TAGGER)
        if quantised:
            with _quiet():
                from onnxruntime.quantization import QuantType, quantize_dynamic

                # 7 bits: two products of 8 by 7 bits fit the 16-bit accumulators of CPUs without VNNI.
                options = {"per_channel": True, "reduce_range": True, "weight_type": QuantType.QInt8}
                quantize_dynamic(exact, folder / name, **options)
        else:
            exact.rename(folder / name)
    described = {
        "file": name,
        "sha256": hash_file(folder / name),
        "opset": OPSET,
        "int8": quantised,
        "versions": {package: version(package) for package in ("onnx", "onnxruntime", "torch")},
    }
    seal(folder, {**stored, ONNX: described})
    described["compared"] = found = compare(folder, is_tagger=stored["kind"] == TAGGER)
    difference, change = found["largest_logit_difference"], found["mean_probability_change"]
    if quantised and not change <= MAX_MEAN_CHANGE:
        problem = f"int8 changes the probability of a response by {change:.3f} on average, over {MAX_MEAN_CHANGE}"
        raise UserError(problem, place=str(folder), hint="format=onnx writes the graph in fp32")
    if not quantised and not difference <= MAX_LOGIT_DIFFERENCE:
        problem = f"the graph's logits differ by up to {difference:.1e}, over {MAX_LOGIT_DIFFERENCE:.0e}"
        raise UserError(problem, place=str(folder), hint="export it without format=onnx")
    seal(folder, {**stored, ONNX: described})
    return described


class _Logits(nn.Module):
    """Returns only the logits of a classifier, from positional inputs."""

    def __init__(self, model: nn.Module, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True))).logits


def _export(folder: Path, path: Path, *, is_tagger: bool) -> None:
    import transformers

    task = "TokenClassification" if is_tagger else "SequenceClassification"
    with loading(str(folder)) as source:
        model = load_model(getattr(transformers, f"AutoModelFor{task}"), source).eval()
        tokenizer = load_tokenizer(source)
    if (size := 4 * sum(tensor.numel() for tensor in model.parameters())) > MAX_BYTES:
        problem = f"the encoder has {size / 2**30:.1f} GiB, and an ONNX file at most 2"
        raise UserError(problem, place=str(folder), hint="export it without format=onnx")
    texts = [list(side) for side in zip(*PAIRS, strict=True)]
    inputs = dict(tokenizer(*texts, padding=True, truncation=True, return_tensors="pt"))
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if PairTemplate.of(tokenizer).typed else [])]
    free = {0: "windows", 1: "tokens"}
    with _quiet(), needs_package("format=onnx"):
        try:
            torch.onnx.export(
                _Logits(model, names).eval(),
                tuple(inputs[name] for name in names),
                os.fspath(path),
                input_names=names,
                output_names=["logits"],
                dynamic_shapes=(tuple(dict(free) for _ in names),),
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error).strip().partition("\n")[0][:160]
            problem = f"torch cannot export a {type(model).__name__} to ONNX: {reason}"
            raise UserError(problem, place=str(folder), hint="export it without format=onnx") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences exporters, which print their steps and irrelevant warnings."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def compare(folder: Path, *, is_tagger: bool) -> dict[str, Any]:
    """Compares logits, probabilities, labels and CPU-seconds of a folder's graph with those of its weights."""
    num_threads, sides = torch.get_num_threads(), []
    torch.set_num_threads(1)  # waiting threads would count as CPU time
    try:
        for precision in ("32-true", ONNX):
            results: Sequence[Prediction]
            if is_tagger:
                tagger, requests = Tagger.load(folder, device="cpu", precision=precision), calibration_requests()
                texts = [[getattr(one, name) for one in requests] for name in ("question", "knowledge", "response")]
                columns = tagger.encoder.encode_texts(*texts)
                logits = token_logits(tagger.model, tagger.encoder, columns, tagger.batch_tokens)
                begin = time.process_time()
                results = tagger.tag(requests)
            else:
                critic = Critic.load(folder, device="cpu", precision=precision)
                knowledge, response = calibration_pairs()
                columns = critic.encoder.encode_texts(knowledge, response)
                logits, _ = window_logits(critic.model, critic.encoder, columns, critic.batch_tokens)
                begin = time.process_time()
                results = critic.score(knowledge, response)
            sides.append((logits, results, time.process_time() - begin))
    finally:
        torch.set_num_threads(num_threads)
    (expected, expected_results, expected_seconds), (found, results, seconds) = sides
    scores, expected_scores = ([one.score or 0.0 for one in side] for side in (results, expected_results))
    change = np.abs(np.array(scores) - np.array(expected_scores))
    return {
        "responses": len(scores),
        "largest_logit_difference": float(np.abs(found - expected).max()),
        "mean_probability_change": float(change.mean()),
        "largest_probability_change": float(change.max()),
        "labels_changed": sum(a.label != b.label for a, b in zip(results, expected_results, strict=True)),
        "times_as_fast": expected_seconds / seconds,
    }
