"""Exports a detector's run as a folder that plain transformers loads, optionally with an ONNX graph."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from critic.onnx_export import PAIRS, write_graph
from critic.runtime import ONNX
from critic.sequence.settings import Settings as CriticSettings
from critic.tagger.span_calibration import Settings as TaggerSettings
from critic.weights import EVIDENCE, HEAD, find_head, rescale_head
from faithkit.detector import CRITIC, TAGGER
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder
from faithkit.files.model_folder import (
    CARD,
    MARK,
    SIDECAR,
    Sidecar,
    check_folder,
    find_folder,
    read_sidecar,
    read_stored,
)
from faithkit.files.run_folder import RunFolder, run_lock
from faithkit.records import HALLUCINATED
from faithkit.training.export import TOLERANCE, Card, Report, export_folder, trained_model
from faithkit.weights.load import load_model, load_tokenizer
from faithkit.weights.resolve import loading

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

    return export_folder(checkpoint, output_dir, settings=_read_settings, card=card, compare=_compare, finish=finish)


def _read_settings(sidecar: Sidecar) -> CriticSettings | TaggerSettings:
    if sidecar.kind not in (CRITIC, TAGGER):
        raise UserError(f"kind is {sidecar.kind!r}, and the export is for {CRITIC} and {TAGGER}")
    return CriticSettings.from_sidecar(sidecar) if sidecar.kind == CRITIC else TaggerSettings.from_sidecar(sidecar)


def _reduce_to_one_logit(folder: Path) -> None:
    """Rewrites a critic of two logits as a plain transformers model of one, without faithkit.json, and checks it."""
    import transformers

    auto: Any = transformers.AutoModelForSequenceClassification
    with loading(str(folder)) as source:
        model, tokenizer = load_model(auto, source).eval(), load_tokenizer(source)
    inputs = tokenizer(*zip(*PAIRS, strict=True), padding=True, truncation=True, return_tensors="pt")
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
        found = auto.from_pretrained(folder).eval()(**inputs).logits[:, 0]
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
    import transformers

    is_tagger = sidecar.kind == TAGGER
    auto: Any = (
        transformers.AutoModelForTokenClassification if is_tagger else transformers.AutoModelForSequenceClassification
    )
    with loading(str(folder)) as source:
        reloaded = load_model(auto, source).eval()
        tokenizer = load_tokenizer(source)
    reference = trained_model(reloaded, run)
    if run.best.exists() and (head := sidecar.thresholds.get(HEAD)):
        rescale_head(reference, *head)
    texts = [list(side) for side in zip(*PAIRS, strict=True)]
    inputs = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        found, expected = reloaded(**inputs).logits, reference(**inputs).logits
    real = inputs["attention_mask"].bool() if is_tagger else ...
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
