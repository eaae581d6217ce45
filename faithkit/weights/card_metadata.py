"""Writes the metadata of a model card, which the hub reads: base model, licence, data, metrics and results."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faithkit.files.model_folder import Sidecar
from faithkit.weights.local import LOCAL
from faithkit.weights.resolve import is_hub_name

DATASETS: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "datasets.toml").read_text(encoding="utf-8")
)
EMBEDDED = "embedded"  # the prefix of the embedded corpus in the layout of a dataset
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

    weights, names = str(sidecar.origin["config"]["model"]["weights"]), training_sets(sidecar)
    known = [DATASETS[name] for name in names if name in DATASETS]
    results = []
    for name, metric in rows:
        split, dataset, short = name.split("/", 2)
        results.append(
            EvalResult(
                task_type=pipeline or "text-classification",
                dataset_type=DATASETS.get(dataset, {}).get("hub", dataset),
                dataset_name=dataset,
                dataset_split=split,
                metric_type=_metric_type(short),
                metric_name=short,
                metric_value=round(metric["value"], 6),
            )
        )
    licences = {licence_of(weights), *(DATASETS.get(name, {}).get("licence") for name in names)}
    data = ModelCardData(
        language="en" if names and len(known) == len(names) and not any("language" in one for one in known) else None,
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


def training_sets(sidecar: Sidecar) -> list[str]:
    """Lists the datasets of training; `embedded` for the embedded corpus in any layout."""
    sizes = sidecar.origin["data"].get("sizes", {}).get("train", {})
    return sorted({EMBEDDED if str(name).startswith(EMBEDDED) else str(name) for name in sizes})


def base_model(weights: str) -> str | None:
    """Returns the hub's name of the weights that a training started from; None for a folder."""
    if weights in LOCAL:
        return LOCAL[weights].hub_equivalent
    return weights if is_hub_name(weights) else None


def licence_of(weights: str) -> str | None:
    """Returns the hub's identifier of the licence of local weights; None if it is unknown or stated in two ways."""
    stated = LOCAL[weights].licence.lower() if weights in LOCAL else ""
    return None if not stated or " " in stated else stated


def describe_licences(sidecar: Sidecar) -> Iterator[str]:
    """Yields a line for the licence of the base model and of each dataset of training."""
    weights = str(sidecar.origin["config"]["model"]["weights"])
    yield f"- `{weights}`: {LOCAL[weights].licence if weights in LOCAL else 'see its model card'}"
    for name in training_sets(sidecar):
        yield f"- `{name}`: {DATASETS.get(name, {}).get('licence', 'not confirmed; see its page')}"


def _metric_type(name: str) -> str:
    return next((hub for ending, hub in METRICS.items() if name.endswith(ending)), name)
