"""Exports a model: its folder, a model card, and a check that a reload gives the same logits.

A card's metadata, which the hub reads, have base model, licence, data, metrics and results.
"""

import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder
from faithkit.files.model_folder import SIDECAR, Sidecar, check_folder, find_folder, parse, read_sidecar, read_stored
from faithkit.files.run_folder import RunFolder
from faithkit.languages import ANY
from faithkit.provenance.used_model import DATASETS, trained_languages, training_sets
from faithkit.records import Example, Turn
from faithkit.statistics.metric import read_metrics
from faithkit.training.checkpoints import best_weights, load_weights, model_state
from faithkit.weights.resolve import LOCAL, is_hub_name

# The hub's names of metrics; `response_f1` and `macro_f1` are an f1.
METRICS = {"auroc": "roc_auc", "perplexity": "perplexity", "ece": "ece"}
METRICS |= {name: name for name in ("f1", "precision", "recall", "accuracy")}


def card_metadata(
    sidecar: Sidecar, rows: Sequence[tuple[str, Mapping[str, Any]]], *, title: str, pipeline: str | None, tags: str
) -> str:
    """Returns the metadata in YAML. What is not known is left out.

    Args:
        rows: Names (split/dataset/metric) and values of the metrics in the card.
        pipeline: The hub's name of the task.
    """
    from huggingface_hub import EvalResult, ModelCardData

    weights, names = weights_of(sidecar) or "", training_sets(sidecar.origin)
    known = [DATASETS[name] for name in names if name in DATASETS]
    spoken = trained_languages(sidecar.origin)
    results = []
    for name, metric in rows:
        split, dataset, short = name.split("/", 2)
        results.append(
            EvalResult(
                task_type=pipeline or "text-classification",
                dataset_type=DATASETS.get(dataset, {}).get("hub", dataset),
                dataset_name=dataset,
                dataset_split=split,
                metric_type=next((hub for ending, hub in METRICS.items() if short.endswith(ending)), short),
                metric_name=short,
                metric_value=round(metric["value"], 6),
            )
        )
    stated = LOCAL[weights].licence.lower() if weights in LOCAL else ""
    licences = {None if not stated or " " in stated else stated}  # one with a space is stated in two ways
    licences |= {DATASETS.get(name, {}).get("licence") for name in names}
    data = ModelCardData(
        language=None if ANY in spoken else spoken[0] if len(spoken) == 1 else list(spoken),
        license=licences.pop() if len(licences) == 1 else None,
        library_name="transformers",
        pipeline_tag=pipeline,
        tags=tags.split(", "),
        base_model=base_model(weights),
        datasets=sorted({one["hub"] for one in known if "hub" in one}) or None,
        metrics=sorted({result.metric_type for result in results}) or None,
        eval_results=results or None,
        model_name=title if results else None,
    )
    return str(data.to_yaml())


def weights_of(sidecar: Sidecar) -> str | None:
    """Names the weights that a training started from; None if the folder does not."""
    model = (sidecar.origin.get("config") or {}).get("model") or {}
    return str(model["weights"]) if model.get("weights") else None


def base_model(weights: str) -> str | None:
    """Returns the hub's name of the weights that a training started from; None for a folder."""
    if weights in LOCAL:
        return LOCAL[weights].hub_equivalent
    return weights if is_hub_name(weights) else None


TOLERANCE = 1e-5
SHOWN_METRICS = {
    *("perplexity", "token_accuracy"),
    *("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece"),
    *(f"{level}_{name}" for level in ("response", "char") for name in ("f1", "precision", "recall")),
}


@dataclass(frozen=True, slots=True)
class Report:
    """The exported folder, and the largest difference of its logits from the run's.

    Args:
        reloaded_in: The program that the folder was reloaded in.
    """

    folder: Path
    num_logits: int
    difference: float
    reloaded_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The parts of a model card that depend on the kind of model; the others come from its sidecar and its metrics.

    Args:
        pipeline: The hub's name of its task; None if a plain pipeline would give other labels.
        thresholds: How a score becomes a label; empty for a model without labels.
        reloaded_in: The program that loads the folder, and compares its logits.
    """

    title: str
    purpose: str
    usage: str
    pipeline: str | None
    limits: Sequence[str]
    thresholds: str = ""
    tags: str = "hallucination-detection, faithfulness"
    reloaded_in: str = "plain transformers"


def compared_examples(*rows: tuple[str, Sequence[str], str]) -> list[Example]:
    """Builds examples on which logits are compared, from knowledge, history (the seeker begins) and response."""
    return [
        Example(
            id=str(place),
            source="export",
            split="test",
            group=str(place),
            knowledge=knowledge,
            history=tuple(Turn(speaker=("seeker", "wizard")[i % 2], text=text) for i, text in enumerate(history)),
            response=response,
        )
        for place, (knowledge, history, response) in enumerate(rows)
    ]


def export_folder(
    checkpoint: str,
    output_dir: str,
    *,
    settings: Callable[[Sidecar], Any],
    card: Callable[[Sidecar, RunFolder], Card],
    compare: Callable[[Sidecar, RunFolder, Path], tuple[int, float]],
    copy_model: Callable[[Path, Path], None] | None = None,
    finish: Callable[[Sidecar, Path], None] = lambda _, __: None,
) -> Report:
    """Copies the hf/ folder of a run, adds a card, and checks the copy's logits before it takes its place.

    Args:
        settings: Reads the settings of the model, which refuses an incomplete sidecar.
        card: Returns the texts of the model card.
        compare: Returns the number of compared logits, and the largest difference from the run's checkpoint.
        copy_model: Copies the model without its card; None copies the folder.
        finish: Adds files to the folder before it gets its final name.

    Raises:
        UserError: The output folder is not empty, the sidecar is incomplete, or the reloaded model differs.
    """
    target = Path(output_dir)
    if target.exists() and any(target.iterdir()):
        raise UserError("the output folder is not empty", place=str(target), hint="name a new folder")
    source = find_folder(checkpoint)
    sidecar = read_sidecar(source)
    stored = read_stored(source)
    if sidecar is None or stored is None:
        raise UserError(
            f"no {SIDECAR} in this folder: it was not trained with faithkit",
            place=str(source),
            hint="give a run's folder",
        )
    check_folder(source)
    parse(source, lambda: settings(sidecar))
    with atomic_folder(target) as unfinished:
        if copy_model:
            copy_model(source, unfinished)
        else:
            shutil.copytree(source, unfinished, dirs_exist_ok=True)
        run = RunFolder(checkpoint)
        texts = card(sidecar, run)
        text = model_card(texts, sidecar, read_metrics(run.metrics))
        (unfinished / "README.md").write_text(text, encoding="utf-8")
        num_logits, difference = compare(sidecar, run, unfinished)
        if not difference <= TOLERANCE:
            raise UserError(f"the reloaded model differs by {difference:.1e} in its logits", place=str(source))
        finish(sidecar, unfinished)
    return Report(target, num_logits, difference, texts.reloaded_in)


def trained_model(reloaded: Any, run: RunFolder) -> Any:
    """Copies an exported model and gives it the weights of the best checkpoint, if its run is there."""
    trained = copy.deepcopy(reloaded)  # not from the config: T5's declares tied embeddings even if they are not
    if run.best.exists():
        load_weights(trained, model_state(best_weights(run)), run.best)
    return trained


def model_card(card: Card, sidecar: Sidecar, metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Writes a Hugging Face model card in Markdown: data, metrics with intervals, intended use, limits."""
    config, data = sidecar.origin.get("config") or {}, sidecar.origin.get("data") or {}
    shown = [(name, metric) for name, metric in metrics.items() if name.split("/", 2)[-1] in SHOWN_METRICS]
    labels = ", ".join(f"{index} = {label}" for index, label in enumerate(sidecar.labels))
    started = f"`{weights}`" if (weights := weights_of(sidecar)) else "weights that were not recorded"
    spoken = trained_languages(sidecar.origin)
    language = f"Trained on texts in {', '.join(spoken)}; in other languages it is not reliable."
    if ANY in spoken:
        language = "The languages of its training data are not recorded; in other languages it is not reliable."
    sizes = data.get("sizes", {})
    trained = ", ".join(f"{name} ({count:,} examples)" for name, count in sizes.get("train", {}).items())
    licences = []
    if weights:
        licences.append(f"- `{weights}`: {LOCAL[weights].licence if weights in LOCAL else 'see its model card'}")
    for name in training_sets(sidecar.origin):
        licences.append(f"- `{name}`: {DATASETS.get(name, {}).get('licence', 'not confirmed; see its page')}")
    figures = []
    for name, metric in shown:
        split, dataset, short = name.split("/", 2)
        interval = f"{metric['low']:.3f} to {metric['high']:.3f}" if "low" in metric else "-"
        figures.append(f"| {split}/{dataset} | {short} | {metric['value']:.3f} | {interval} | {metric.get('n', '-')} |")
    fingerprints = "\n".join(f"- `{name}`: `{value}`" for name, value in data.get("fingerprints", {}).items())
    lines = [
        "---",
        card_metadata(sidecar, shown, title=card.title, pipeline=card.pipeline, tags=card.tags),
        "---",
        "",
        f"# {card.title}",
        "",
        card.purpose,
        "",
        "## Use",
        "",
        card.usage,
        "",
        *([f"Labels: {labels}.", ""] if labels else []),
        "## Training",
        "",
        f"Started from {started}; data: {trained or 'not recorded'}; seed {config.get('seed', 'not recorded')}.",
        "Settings: "
        + ", ".join(f"{name} {value}" for name, value in config.get("optimizer", {}).items() if value is not None)
        + ".",
        "",
        "Fingerprints of the records (equal fingerprints mean equal data):",
        "",
        fingerprints or "- not recorded",
        "",
        "Licences:",
        "",
        *licences,
        "",
        "## Metrics",
        "",
        "| test set | metric | value | 95% interval | n |",
        "|---|---|---|---|---|",
        *figures,
        "",
        *([card.thresholds, ""] if card.thresholds else []),
        "## Limits",
        "",
        *(f"- {limit}" for limit in (*card.limits, language)),
        "",
    ]
    return "\n".join(lines)
