"""The model card of a detector, and the texts that its export is tried on."""

from dataclasses import dataclass
from typing import Any

from faithkit.files.model_folder import CRITIC, TAGGER, Sidecar

PAIRS = [
    ("The Danube flows through ten countries.", "It passes through ten countries."),
    ("The Danube flows through ten countries.", "I swam in it once, it crosses twelve countries!"),
    ("Bread is baked from flour and water.", "Flour and water."),
    ("A " + "long " * 40 + "source about clocks.", "Clocks are mentioned, and so is the moon."),
]
LIMITS = (
    "It compares a response with the given source alone; it knows nothing of the world, and a true statement that the "
    "source lacks counts as hallucinated.",
    "Trained on English; scores on other languages, on code or on tables mean little.",
    "The probability is calibrated on the validation data named above. On other data fit it anew.",
    "A score is evidence for a reader, not a verdict on a person or on a system as a whole.",
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
TAGGER_USAGE = """```python
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForTokenClassification.from_pretrained(FOLDER)
inputs = tokenizer(context, answer, truncation="only_first", max_length={max_length}, return_tensors="pt")
logits = model(**inputs).logits[0]
odds = logits[:, 1:].logsumexp(1) - logits[:, 0]
probability = torch.sigmoid({slope:.4f} * odds + {bias:.4f})  # that a token is hallucinated, each by itself
in_answer = torch.tensor([side == 1 for side in inputs.sequence_ids()])
```

A question stands before the context, with a separator between them. faithkit's own `Tagger.load(FOLDER)` also reads
texts of any length, weighs a token's sentence and the words that the context lacks, and joins tokens into spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The parts of a card that depend on the kind of detector."""

    title: str
    purpose: str
    usage: str
    pipeline: str
    thresholds: str


def card_of(sidecar: Sidecar) -> Card:
    """The card's texts for a detector of this kind."""
    return {CRITIC: _critic, TAGGER: _tagger}[sidecar.kind](sidecar.layout, sidecar.thresholds)


def _critic(layout: dict[str, Any], thresholds: dict[str, Any]) -> Card:
    first = layout["order"] == "knowledge_response"
    return Card(
        title="A hallucination critic",
        purpose="A hallucination critic: given a source text (knowledge) and a response, it gives the probability that "
        "the response says something that the source does not support.",
        usage=CRITIC_USAGE.format(
            texts="knowledge, response" if first else "response, knowledge",
            max_length=layout["max_length"],
            temperature=thresholds["temperature"],
            threshold=thresholds["threshold"],
        ),
        pipeline="text-classification",
        thresholds=f"Decision threshold {thresholds['threshold']:.4f}, chosen on validation for {thresholds['aim']}; "
        f"temperature {thresholds['temperature']:.4f}, fitted on validation.",
    )


def _tagger(layout: dict[str, Any], thresholds: dict[str, Any]) -> Card:
    return Card(
        title="A hallucination span tagger",
        purpose="A span tagger: given a context, a question and an answer, it gives for each token of the answer the "
        "probability that the context does not support it.",
        usage=TAGGER_USAGE.format(
            max_length=layout["max_length"],
            slope=thresholds["slope"],
            bias=thresholds["bias"],
        ),
        pipeline="token-classification",
        thresholds=f"Characters are called hallucinated from {thresholds['char_threshold']:.4f} on, spans with at most "
        f"{thresholds['merge_gap']} characters between them are joined and those of fewer than "
        f"{thresholds['min_length']} dropped; a response is called hallucinated from "
        f"{thresholds['response_threshold']:.4f} on, chosen for {thresholds['aim']}. All were fitted on validation.",
    )
