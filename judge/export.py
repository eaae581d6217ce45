"""Exports a judge's run as a folder that plain transformers and vLLM load; adapters are merged into their base."""

import shutil
from pathlib import Path
from typing import Any

import torch

from faithkit.files.model_folder import Sidecar, is_adapter, read_stored, seal
from faithkit.files.run_folder import RunFolder
from faithkit.inference.messages import MessageTokens
from faithkit.metrics.results import read_metrics
from faithkit.provenance.seen_rows import SEEN_ROWS_FILE as SEEN_ROWS
from faithkit.training.checkpoints import best_weights, load_weights, model_state
from faithkit.weights.adapter_folder import AdapterFolder
from faithkit.weights.adapters import check_base, load_adapters, stored_adapters
from faithkit.weights.export import Report, compared_examples, export_folder, model_card
from faithkit.weights.load import load_model, load_tokenizer
from faithkit.weights.resolve import loading
from judge.settings import Settings

EXAMPLES = compared_examples(
    ("Ten countries lie along the Danube.", ("Where does it flow?",), "Through twelve countries."),
    ("Bread is baked from flour.", (), "Bread is baked from flour and water."),
)
LIMITS = (
    "It compares a response with the given knowledge and conversation alone; a true statement that these lack counts "
    "as hallucinated.",
    "Trained and calibrated on the data above: elsewhere its probabilities may be off.",
    "Its reasons and quoted parts are written by a language model, and may be wrong where its verdict is right.",
)
USAGE = """```python
from faithkit import Judge

judge = Judge.load(FOLDER)
judge.judge(knowledge="...", history=["..."], response="...")
```

Plain transformers and vLLM load the weights as any causal model. It learnt to reply to this prompt (`ask={ask}`), and
to no other; paragraphs whose only fields are empty are left out:

{prompt}"""


def export(checkpoint: str, output_dir: str) -> Report:
    """Writes the folder, reloads it in plain transformers, and compares logits with the best checkpoint's.

    Adapters are put on their base again for it, and merged.
    """
    return export_folder(checkpoint, output_dir, card=_card, compare=_compare, copy=_copy)


def _copy(source: Path, target: Path) -> None:
    adapters = stored_adapters(str(source))
    stored = read_stored(source)
    if adapters is None or stored is None:
        shutil.copytree(source, target, dirs_exist_ok=True)
        return
    _merged(adapters).save_pretrained(target)
    with loading(adapters.base) as base:
        load_tokenizer(base).save_pretrained(target)
    if (source / SEEN_ROWS).exists():
        shutil.copy(source / SEEN_ROWS, target)
    layout = {name: value for name, value in stored["layout"].items() if name != "base_weights"}
    seal(target, {**stored, "layout": layout})


def _merged(adapters: AdapterFolder) -> Any:
    from transformers import AutoModelForCausalLM

    with loading(adapters.base) as source:
        check_base(adapters, source)
        return load_adapters(load_model(AutoModelForCausalLM, source), adapters, merge=True)


def _card(sidecar: Sidecar, run: RunFolder) -> str:
    settings = Settings.from_sidecar(sidecar)
    shown = "\n".join(f"    {line}".rstrip() for line in settings.template.text.strip().splitlines())
    calibration = settings.calibration
    return model_card(
        title="A judge of hallucinations",
        purpose="A language model that says whether a response is supported by its knowledge and conversation.",
        usage=USAGE.format(ask=settings.ask, prompt=shown),
        pipeline="text-generation",
        config=sidecar.origin["config"],
        data=sidecar.origin["data"],
        metrics=read_metrics(run.metrics),
        thresholds=f"A response is called hallucinated at a probability of {calibration.threshold:.4g} or more, of the "
        f"reply's first word; temperature {calibration.temperature:.4g}. Both are fitted on validation.",
        limits=LIMITS,
    )


def _compare(sidecar: Sidecar, run: RunFolder, folder: Path) -> tuple[int, float]:
    """Gives the number of logits compared and their largest difference."""
    from transformers import AutoModelForCausalLM

    with loading(str(folder)) as source:
        reloaded = load_model(AutoModelForCausalLM, source).eval()
        tokens = MessageTokens(load_tokenizer(source))
    reference = _reference(run, reloaded)
    template = Settings.from_sidecar(sidecar).template
    count, largest = 0, 0.0
    for ids in tokens.prompts([template.messages(example) for example in EXAMPLES]):
        batch = torch.from_numpy(ids).long()[None]
        with torch.inference_mode():
            found, wanted = (model(input_ids=batch, use_cache=False).logits for model in (reloaded, reference))
        count, largest = count + found.numel(), max(largest, float((found - wanted).abs().max()))
    return count, largest


def _reference(run: RunFolder, reloaded: Any) -> Any:
    """The model as training left it; that of a folder without its run is the folder's own."""
    from transformers import AutoModelForCausalLM

    for folder in (run.path, run.adapter):
        if is_adapter(folder) and (adapters := stored_adapters(str(folder))):
            return _merged(adapters)
    reference: Any = AutoModelForCausalLM.from_config(reloaded.config).eval()
    if run.best.exists():
        load_weights(reference, model_state(best_weights(run)), run.best)
    else:
        reference.load_state_dict(reloaded.state_dict())
    return reference
