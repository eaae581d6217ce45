"""Exports a detector's run as a folder that plain transformers loads, optionally with an ONNX graph."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from critic.runtime.onnx_export import PAIRS, write_graph
from critic.runtime.onnx_model import ONNX
from critic.sequence.evidence import EVIDENCE
from faithkit.detector import CRITIC, TAGGER
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder
from faithkit.files.model_folder import CARD, SIDECAR, Sidecar, check_folder, find_folder, read_sidecar, read_stored
from faithkit.files.run_folder import RunFolder
from faithkit.files.run_lock import run_lock
from faithkit.weights.export import Card, Report, export_folder, trained_model
from faithkit.weights.load import load_model, load_tokenizer
from faithkit.weights.resolve import loading

LIMITS = (
    "It compares a response with the given source and has no world knowledge: a true statement that is missing "
    "from the source counts as hallucinated.",
    "Trained on English; scores on other languages, code or tables are not reliable.",
    "The probability is calibrated on the validation data named above. Recalibrate it for other data.",
    "A score supports a human decision; it does not judge a person or a whole system.",
)
CRITIC_USAGE = """```python
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSequenceClassification.from_pretrained(FOLDER)
inputs = tokenizer({texts}, truncation=True, max_length={max_length}, return_tensors="pt")
logits = model(**inputs).logits[0]
probability = torch.sigmoid((logits[1] - logits[0]) / {temperature:.4f})  # hallucinated from {threshold:.4f} on
```"""
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
odds = logits[:, 1:].logsumexp(1) - logits[:, 0]
probability = torch.sigmoid({slope:.4f} * odds + {bias:.4f})  # of each token
in_answer = torch.tensor([side == 1 for side in inputs.sequence_ids()])
```

A question comes before the context, with a separator. `faithkit.Tagger.load(FOLDER)` also reads texts of any length,
combines a token's log-odds with its sentence and missing words, and merges tokens to spans."""

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


def card_of(sidecar: Sidecar) -> Card:
    """Returns the texts for a detector of this kind."""
    return {CRITIC: _critic, TAGGER: _tagger}[sidecar.kind](sidecar.layout, sidecar.thresholds)


def _critic(layout: dict[str, Any], thresholds: dict[str, Any]) -> Card:
    return Card(
        title="A hallucination critic",
        purpose="A hallucination critic: predicts from a source text (knowledge) and a response the probability "
        "that the response contains something that the source does not support.",
        usage=(EVIDENCE_USAGE if EVIDENCE in thresholds else CRITIC_USAGE).format(
            texts=_ordered(layout),
            max_length=layout["max_length"],
            temperature=thresholds["temperature"],
            threshold=thresholds["threshold"],
        ),
        pipeline=None if EVIDENCE in thresholds else "text-classification",
        limits=LIMITS,
        thresholds=f"Decision threshold {thresholds['threshold']:.4f}, chosen on validation for {thresholds['aim']}; "
        f"temperature {thresholds['temperature']:.4f}, fitted on validation.",
    )


def _ordered(layout: dict[str, Any]) -> str:
    return "knowledge, response" if layout["order"] == "knowledge_response" else "response, knowledge"


def _tagger(layout: dict[str, Any], thresholds: dict[str, Any]) -> Card:
    return Card(
        title="A hallucination span tagger",
        purpose="A span tagger: predicts from a context, a question and an answer the probability of each token of the "
        "answer that the context does not support it.",
        usage=TAGGER_USAGE.format(
            max_length=layout["max_length"],
            slope=thresholds["slope"],
            bias=thresholds["bias"],
        ),
        pipeline="token-classification",
        limits=LIMITS,
        thresholds=f"Characters are marked from {thresholds['char_threshold']:.4f} on, spans with at most "
        f"{thresholds['merge_gap']} characters between them are merged and spans of fewer than "
        f"{thresholds['min_length']} dropped; a response is labelled hallucinated from "
        f"{thresholds['response_threshold']:.4f} on, chosen for {thresholds['aim']}. All were fitted on validation.",
    )


def graph_card(sidecar: Sidecar, described: dict[str, Any]) -> str:
    """Writes the card's section about an ONNX graph, from its description in faithkit.json."""
    texts = "context, answer" if sidecar.kind == TAGGER else _ordered(sidecar.layout)
    return GRAPH_TITLE + GRAPH_CARD.format(
        file=described["file"],
        opset=described["opset"],
        numbers="int8" if described["int8"] else "fp32",
        comparison=describe_comparison(described["compared"]),
        texts=texts,
        truncation='"only_first"' if sidecar.kind == TAGGER else "True",
        max_length=sidecar.layout["max_length"],
    )


def describe_comparison(found: dict[str, Any]) -> str:
    """Describes the difference between a graph's outputs and the model's, and its speed."""
    return (
        f"On {found['responses']} embedded responses its logits differ from the weights' by at most "
        f"{found['largest_logit_difference']:.1e}, their probabilities by {found['mean_probability_change']:.1e} on "
        f"average and {found['largest_probability_change']:.1e} at most; {found['labels_changed']} labels change. "
        f"onnxruntime is {found['times_as_fast']:.2f} times as fast as torch in fp32 (one thread)."
    )
