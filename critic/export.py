"""Exports a detector's run as a folder that plain transformers loads, optionally with an ONNX graph."""

import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
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
from critic.sequence.settings import Settings as CriticSettings
from critic.tagger.predictor import Tagger
from critic.tagger.span_calibration import Settings as TaggerSettings
from critic.tagger.windows import token_logits
from critic.weights import EVIDENCE, HEAD, find_head, rescale_head
from data_modules.encoding.tokens import PairTemplate
from faithkit.detector import CRITIC, TAGGER
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, hash_file
from faithkit.files.model_folder import (
    CARD,
    MARK,
    SIDECAR,
    Sidecar,
    check_folder,
    find_folder,
    read_sidecar,
    read_stored,
    seal,
)
from faithkit.files.run_folder import RunFolder, run_lock
from faithkit.packages import needs_package
from faithkit.records import HALLUCINATED, Prediction
from faithkit.training.export import TOLERANCE, Card, Report, export_folder, trained_model
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
MAX_LOGIT_DIFFERENCE = 1e-3  # in fp32: the kernels round differently
MAX_MEAN_CHANGE = 0.05  # of the responses' probabilities in int8

LIMITS = (
    "It compares a response with the given source and has no world knowledge: a true statement that is missing "
    "from the source counts as hallucinated.",
    "Scores on other kinds of text than the training data, such as code or tables, are not reliable.",
    "The probability is calibrated on the validation data named above. Recalibrate it for other data.",
    "A score supports a human decision; it does not judge a person or a whole system.",
)
PAIRS_IN_ORDER = {"knowledge_response": "knowledge, response", "response_knowledge": "response, knowledge"}
CRITIC_USAGE = """```python
from transformers import pipeline

critic = pipeline("text-classification", model=FOLDER)
critic({{"text": {first}, "text_pair": {second}}}, truncation=True, max_length={max_length})
```

{calibration} faithkit reads longer texts in windows."""
INSIDE = "It gives faithkit's label, and its probability of this label: the head contains temperature and threshold."
OUTSIDE = (
    "The head has no bias, so the calibration is outside the weights: faithkit divides the log-odds by "
    "{temperature:.4f}, and labels a response hallucinated from {threshold:.4f} on."
)
ONE_LOGIT_USAGE = """`sigmoid(logit)` is the probability that the response is hallucinated; it is labelled so
from 0.5 on. Servers of cross-encoders take the texts as a pair, in this order: {first}, {second}. vLLM has `/score`,
text-embeddings-inference `/rerank`.

```python
from transformers import pipeline

critic = pipeline("text-classification", model=FOLDER)
critic({{"text": {first}, "text_pair": {second}}}, truncation=True, max_length={max_length})[0]["score"]
```

faithkit reads the folder with two logits (`format=transformers`) and not this one."""
EVIDENCE_USAGE = """```python
from faithkit import Critic

critic = Critic.load(FOLDER)
critic.score(knowledge="...", response="...").probability  # hallucinated from {threshold:.4f} on
```

The encoder is a plain sequence classifier of transformers, but this critic combines its log-odds with other features:
unknown words, word pairs, numbers and names, lengths, negations and, if enabled, the least supported tokens of the
response. The logits alone are no probability."""
TAGGER_USAGE = """```python
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForTokenClassification.from_pretrained(FOLDER)
inputs = tokenizer(context, answer, truncation="only_first", max_length={max_length}, return_tensors="pt")
logits = model(**inputs).logits[0]
{probability}  # of each token
in_answer = torch.tensor([side == 1 for side in inputs.sequence_ids()])
```

A question comes before the context, with a separator. `faithkit.Tagger.load(FOLDER)` also reads texts of any length,
{more}merges tokens to spans. A plain pipeline labels each token by its most probable class instead."""
INSIDE_HEAD = "probability = logits.softmax(1)[:, 1]"
OUTSIDE_HEAD = """odds = logits[:, 1:].logsumexp(1) - logits[:, 0]
probability = torch.sigmoid({slope:.4f} * odds + {bias:.4f})"""

GRAPH_TITLE = "\n## ONNX\n"
GRAPH_CARD = """
`{file}` is the same model as a graph of opset {opset}, in {numbers}, for ids and masks of any size [windows, tokens].
{comparison} faithkit reads it with `precision="onnx"`.

```python
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
session = onnxruntime.InferenceSession(FOLDER + "/{file}")
inputs = tokenizer({texts}, truncation={truncation}, max_length={max_length}, return_tensors="np")
logits = session.run(["logits"], {{one.name: inputs[one.name] for one in session.get_inputs()}})[0][0]
```
"""


def export(
    checkpoint: str, output_dir: str, *, graph: bool = False, int8: bool = False, one_logit: bool = False
) -> Report:
    """Writes the folder, reloads it in plain transformers, and compares logits with the best checkpoint's.

    Args:
        graph: Also writes an ONNX graph; otherwise an existing graph is copied.
        int8: Quantises the graph.
        one_logit: Writes a critic with one logit, the log-odds of hallucinated, in the place of two.
    """

    def finish(sidecar: Sidecar, folder: Path) -> None:
        if graph:
            write_graph(folder, quantised=int8)
        _describe_in_card(sidecar, folder)
        if one_logit:
            _reduce_to_one_logit(folder)

    def card(sidecar: Sidecar, _: RunFolder) -> Card:
        if one_logit and (sidecar.kind != CRITIC or HEAD not in sidecar.thresholds):
            problem = "format=one_logit is for critics whose head contains their calibration"
            raise UserError(problem, place=checkpoint, hint="train with model=critic model.evidence=false")
        return card_of(sidecar, one_logit=one_logit)

    def settings(sidecar: Sidecar) -> CriticSettings | TaggerSettings:
        if sidecar.kind not in (CRITIC, TAGGER):
            raise UserError(f"kind is {sidecar.kind!r}, and the export is for {CRITIC} and {TAGGER}")
        return CriticSettings.from_sidecar(sidecar) if sidecar.kind == CRITIC else TaggerSettings.from_sidecar(sidecar)

    return export_folder(checkpoint, output_dir, settings=settings, card=card, compare=_compare, finish=finish)


def _load_plain(folder: Path, kind: str) -> tuple[Any, Any, Any]:
    """Loads a folder's model in plain transformers, its tokenizer, and PAIRS as inputs."""
    import transformers

    task = "TokenClassification" if kind == TAGGER else "SequenceClassification"
    with loading(str(folder)) as source:
        model = load_model(getattr(transformers, f"AutoModelFor{task}"), source).eval()
        tokenizer = load_tokenizer(source)
    texts = [list(side) for side in zip(*PAIRS, strict=True)]
    return model, tokenizer, tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")


def _reduce_to_one_logit(folder: Path) -> None:
    """Rewrites a critic of two logits as a plain transformers model of one, without faithkit.json, and checks it."""
    model, _, inputs = _load_plain(folder, CRITIC)
    with torch.inference_mode():
        logits = model(**inputs).logits
    head = find_head(model)
    head.weight = torch.nn.Parameter(head.weight[1:] - head.weight[:1])
    head.bias = torch.nn.Parameter(head.bias[1:] - head.bias[:1])
    head.out_features, model.num_labels = 1, 1
    model.config.id2label, model.config.label2id = {0: HALLUCINATED}, {HALLUCINATED: 0}
    delattr(model.config, MARK)
    (folder / SIDECAR).unlink()
    model.save_pretrained(folder)
    with torch.inference_mode():
        found = type(model).from_pretrained(folder).eval()(**inputs).logits[:, 0]
    assert torch.allclose(found, logits[:, 1] - logits[:, 0], atol=TOLERANCE), "one logit, the difference of two"


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
        is_tagger = sidecar.kind == TAGGER
        section = GRAPH_CARD.format(
            file=described["file"],
            opset=described["opset"],
            numbers="int8" if described["int8"] else "fp32",
            comparison=describe_comparison(described["compared"]),
            texts="context, answer" if is_tagger else PAIRS_IN_ORDER[sidecar.layout["order"]],
            truncation='"only_first"' if is_tagger else "True",
            max_length=sidecar.layout["max_length"],
        )
        card.write_text(text + GRAPH_TITLE + section, encoding="utf-8")


def describe_graph(folder: Path) -> list[str]:
    """Describes the graph of a folder; returns nothing if there is none."""
    described = (read_stored(folder) or {}).get(ONNX)
    if described is None:
        return []
    return [f"{described['file']}, opset {described['opset']}: {describe_comparison(described['compared'])}"]


def _compare(sidecar: Sidecar, run: RunFolder, folder: Path) -> tuple[int, float]:
    """Compares the logits of the exported folder with best.ckpt; returns their number and the largest difference."""
    reloaded, _, inputs = _load_plain(folder, sidecar.kind)
    reference = trained_model(reloaded, run)
    if run.best.exists() and (head := sidecar.thresholds.get(HEAD)):
        rescale_head(reference, *head)
    with torch.inference_mode():
        found, expected = reloaded(**inputs).logits, reference(**inputs).logits
    real = inputs["attention_mask"].bool() if sidecar.kind == TAGGER else ...
    return found[real].numel(), float((found - expected)[real].abs().max())


def card_of(sidecar: Sidecar, *, one_logit: bool) -> Card:
    """Returns the texts for a detector of this kind; `one_logit` is the form of a critic's head."""
    layout, thresholds, head = sidecar.layout, sidecar.thresholds, sidecar.thresholds.get(HEAD)
    if sidecar.kind == CRITIC:
        first, second = PAIRS_IN_ORDER[layout["order"]].split(", ")
        usage = EVIDENCE_USAGE if EVIDENCE in thresholds else ONE_LOGIT_USAGE if one_logit else CRITIC_USAGE
        calibration = INSIDE if head else OUTSIDE.format(**thresholds)
        texts = {"first": first, "second": second, "max_length": layout["max_length"], "calibration": calibration}
        return Card(
            title="A hallucination critic",
            purpose="A hallucination critic: predicts from a source text (knowledge) and a response the probability "
            "that the response contains something that the source does not support.",
            usage=usage.format(**thresholds, **texts),
            pipeline=None if EVIDENCE in thresholds else "text-classification",
            limits=LIMITS,
            thresholds=f"A response is labelled hallucinated from {thresholds['threshold']:.4f} on. Threshold (for "
            f"{thresholds['aim']}) and temperature were fitted on validation."
            + (" The head scales its log-odds by {:.4f} and adds {:.4f} for them.".format(*head) if head else ""),
        )
    weighs = "combines a token's log-odds with its sentence and missing words, and "
    return Card(
        title="A hallucination span tagger",
        purpose="A span tagger: predicts from a context, a question and an answer the probability of each token of the "
        "answer that the context does not support it.",
        usage=TAGGER_USAGE.format(
            max_length=layout["max_length"],
            probability=INSIDE_HEAD if HEAD in thresholds else OUTSIDE_HEAD.format(**thresholds),
            more=weighs if thresholds["token_weights"] else "",
        ),
        pipeline="token-classification",
        limits=LIMITS,
        thresholds=f"Characters are marked from {thresholds['char_threshold']:.4f} on, spans with at most "
        f"{thresholds['merge_gap']} characters between them are merged and spans of fewer than "
        f"{thresholds['min_length']} dropped. A hallucinated response without a span has its most probable word "
        f"marked. A response is labelled hallucinated from "
        f"{thresholds['response_threshold']:.4f} on, chosen for {thresholds['aim']}. All were fitted on validation.",
    )


def describe_comparison(found: dict[str, Any]) -> str:
    """Describes the difference between a graph's outputs and the model's, and its speed."""
    return (
        f"On {found['responses']} embedded responses its logits differ from the weights' by at most "
        f"{found['largest_logit_difference']:.1e}, their probabilities by {found['mean_probability_change']:.1e} on "
        f"average and {found['largest_probability_change']:.1e} at most; {found['labels_changed']} labels change. "
        f"onnxruntime is {found['times_as_fast']:.2f} times as fast as torch in fp32 (one thread)."
    )


def write_graph(folder: Path, *, quantised: bool) -> dict[str, Any]:
    """Writes the graph into a model's folder, replacing an existing graph, and describes it in faithkit.json.

    torch's exporter writes it with dynamic axes; onnxruntime quantises it to int8: weights and embeddings have 7 bits
    with a scale per output, activations 8 bits with dynamic ranges. It is compared with the torch model on texts of
    many lengths, and refused if its outputs differ too much.

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
        _export(folder, exact, stored["kind"])
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


def _export(folder: Path, path: Path, kind: str) -> None:
    model, tokenizer, inputs = _load_plain(folder, kind)
    if (size := 4 * sum(tensor.numel() for tensor in model.parameters())) > MAX_BYTES:
        problem = f"the encoder has {size / 2**30:.1f} GiB, and an ONNX file at most 2"
        raise UserError(problem, place=str(folder), hint="export it without format=onnx")
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
