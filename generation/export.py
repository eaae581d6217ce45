"""Exports a generator's run as a folder that plain transformers loads."""

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from data_modules.encoding.sequence_layout import KNOWLEDGE, SEEKER, SEQ2SEQ, WIZARD, bos_of
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.files.model_folder import Sidecar
from faithkit.files.run_folder import RunFolder
from faithkit.training.export import Card, Report, compared_examples, export_folder, trained_model
from faithkit.training.language_model import run_model
from faithkit.weights.load import load_model
from faithkit.weights.resolve import loading
from generation.control import control_tokens
from generation.options import ARCHITECTURES
from generation.weights import Settings

EXAMPLES = compared_examples(
    ("Ten countries lie along the Danube.", ("Where does it flow?",), "Through ten countries."),
    ("Bread is baked from flour.", ("I bake.", "So do I!", "What do you take?"), "Flour, and some water."),
    ("Clocks were once driven by weights.", (), "Clocks had weights."),
)
LIMITS = (
    "It was trained to answer from the given knowledge; information from elsewhere in its answers may be false.",
    "Trained on dialogues of a few turns.",
    "Faithfulness to a source is not proof of truth: a wrong source gives wrong answers.",
)
USAGE = """```python
from transformers import {loader}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = {loader}.from_pretrained(FOLDER)
text = "{bos}{knowledge}" + knowledge + "{seeker}" + question + "{end}"
inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
ids = model.generate(**inputs, max_new_tokens={max_response_length})[0]{cut}
print(tokenizer.decode(ids, skip_special_tokens=True))
```

Each turn of the history follows its speaker's marker, `{seeker}` or `{wizard}`, oldest first."""
DOHA_USAGE = """Plain transformers cannot load this model: BART with a second cross-attention in every decoder layer.
faithkit contains its class, and runs no code of the folder.

```python
from faithkit import Generator

Generator.load(FOLDER).reply(knowledge="...", history=["..."])
```"""


def export(checkpoint: str, output_dir: str) -> Report:
    """Writes the folder, reloads it, and compares its logits with the best checkpoint's.

    It is reloaded in plain transformers, and DoHA by the class in this package.
    """
    return export_folder(checkpoint, output_dir, settings=Settings.from_sidecar, card=_card, compare=_compare)


def _card(sidecar: Sidecar, run: RunFolder) -> Card:
    settings = Settings.from_sidecar(sidecar)
    family = ARCHITECTURES[settings.architecture]
    usage, reloaded_in = DOHA_USAGE, f"faithkit's {family.loader}"
    if not family.is_internal:
        reloaded_in = "plain transformers"
        is_seq2seq = settings.layout.kind == SEQ2SEQ
        tokenizer = load_tokenizer(str(run.hf if run.hf.exists() else run.path))
        usage = USAGE.format(
            loader=family.loader,
            bos=bos_of(tokenizer),
            knowledge=KNOWLEDGE,
            seeker=SEEKER,
            wizard=WIZARD,
            end=tokenizer.eos_token if is_seq2seq else WIZARD,
            max_response_length=settings.layout.max_response_length,
            cut="" if is_seq2seq else "[inputs.input_ids.shape[1] :]",
        )
    return Card(
        title="A faithful generator",
        purpose="A generator for knowledge-grounded dialogue: it answers from a source text and the dialogue history.",
        usage=usage,
        pipeline="text-generation",
        limits=LIMITS,
        tags="knowledge-grounded-dialogue, faithfulness",
        reloaded_in=reloaded_in,
    )


def _compare(sidecar: Sidecar, run: RunFolder, folder: Path) -> tuple[int, float]:
    """Compares logits with the best checkpoint; returns their number and the largest difference."""
    settings = Settings.from_sidecar(sidecar)
    with loading(str(folder)) as source:
        reloaded: Any = load_model(ARCHITECTURES[settings.architecture].model_class, source).eval()
    reference = trained_model(reloaded, run)
    encoder = TurnEncoder(load_tokenizer(str(folder)), settings.layout, packed=False)
    columns = encoder.encode(EXAMPLES, Counter())
    if settings.layout.control:
        columns["control"] = encoder.control_ids([control_tokens(settings.layout.control)] * len(EXAMPLES))
    batch = {name: torch.from_numpy(column) for name, column in encoder.collate(columns).items()}
    with torch.inference_mode():
        found, expected = run_model(reloaded, batch).logits, run_model(reference, batch).logits
    return found.numel(), float((found - expected).abs().max())
