"""A critic's run as a folder that plain transformers loads."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from common.errors import UserError
from common.export import model_card
from common.records import LABELS
from common.run_folder import RunFolder, read_json
from critic.folder import SIDECAR, find_folder, read_settings, whole_weights
from critic.weights import model_state

TOLERANCE = 1e-5
PURPOSE = (
    "A hallucination critic: given a source text (knowledge) and a response, it gives the probability that the "
    "response says something that the source does not support."
)
USAGE = """```python
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSequenceClassification.from_pretrained(FOLDER)
inputs = tokenizer({texts}, truncation=True, max_length={max_length}, return_tensors="pt")
logits = model(**inputs).logits[0]
probability = torch.sigmoid((logits[1] - logits[0]) / {temperature:.4f})  # hallucinated from {threshold:.4f} on
```"""
LIMITS = (
    "It compares a response with the given source alone; it knows nothing of the world, and a true statement that the "
    "source lacks counts as hallucinated.",
    "Trained on English; scores on other languages, on code or on tables mean little.",
    "The probability is calibrated on the validation data named above. On other data fit it anew.",
    "A score is evidence for a reader, not a verdict on a person or on a system as a whole.",
)
PAIRS = [
    ("The Danube flows through ten countries.", "It passes through ten countries."),
    ("The Danube flows through ten countries.", "I swam in it once, it crosses twelve countries!"),
    ("Bread is baked from flour and water.", "Flour and water."),
    ("A " + "long " * 40 + "source about clocks.", "Clocks are mentioned, and so is the moon."),
]


@dataclass(frozen=True, slots=True)
class Report:
    """What was written, and how far its logits are from the run's own."""

    folder: Path
    num_pairs: int
    difference: float


def export(checkpoint: str, output_dir: str) -> Report:
    """Writes the folder, reloads it in plain transformers, and compares logits with the best checkpoint's.

    Raises:
        UserError: The output folder is not empty, or the reloaded model differs.
    """
    target = Path(output_dir)
    if target.exists() and any(target.iterdir()):
        raise UserError("the output folder is not empty", place=str(target), mend="name a new folder")
    source = find_folder(checkpoint)
    settings = read_settings(source)
    if settings is None:
        raise UserError(f"no {SIDECAR} here: not a critic of ours", place=str(source), mend="give a run's folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        run = RunFolder(checkpoint)
        metrics = read_json(run.metrics)["metrics"] if run.metrics.exists() else {}
        verdict = settings.verdict
        first = settings.order == "knowledge_response"
        card = model_card(
            title="A hallucination critic",
            purpose=PURPOSE,
            usage=USAGE.format(
                texts="knowledge, response" if first else "response, knowledge",
                max_length=settings.max_length,
                temperature=verdict.temperature,
                threshold=verdict.threshold,
            ),
            config=settings.origin["config"],
            data=settings.origin["data"],
            metrics=metrics,
            thresholds={"threshold": verdict.threshold, "aim": verdict.aim, "temperature": verdict.temperature},
            limits=LIMITS,
            labels=LABELS,
        )
        (temporary / "README.md").write_text(card, encoding="utf-8")
        difference = _largest_difference(run, temporary)
        if not difference <= TOLERANCE:
            raise UserError(f"the reloaded model differs by {difference:.1e} in its logits", place=str(source))
        if target.exists():
            target.rmdir()
        temporary.replace(target)
        target.chmod(0o755)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Report(target, len(PAIRS), difference)


def _largest_difference(run: RunFolder, folder: Path) -> float:
    """Between the reloaded folder and, in a run, the weights of best.ckpt put into a model of their own."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    with whole_weights(str(folder)):
        reloaded = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    reference = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(folder)).eval()
    if run.best.exists():
        state = torch.load(run.best, map_location="cpu", weights_only=True)["state_dict"]
        reference.load_state_dict(model_state(state))
    else:
        reference.load_state_dict(reloaded.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [list(side) for side in zip(*PAIRS, strict=True)]
    inputs = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        return float(np.abs(reloaded(**inputs).logits.numpy() - reference(**inputs).logits.numpy()).max())
