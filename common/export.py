"""What every exported model has: a card that says what it is for, and the proof that a plain reload is the same."""

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN_METRICS = {
    *("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece"),
    *(f"{level}_{name}" for level in ("response", "char") for name in ("f1", "precision", "recall")),
}


def model_card(
    *,
    title: str,
    purpose: str,
    usage: str,
    pipeline: str,
    config: Mapping[str, Any],
    data: Mapping[str, Any],
    metrics: Mapping[str, Mapping[str, Any]],
    thresholds: str,
    limits: Sequence[str],
    labels: Sequence[str],
) -> str:
    """A Hugging Face model card in Markdown: data, metrics with intervals, intended use, limits."""
    sizes = data.get("sizes", {})
    trained = ", ".join(f"{name} ({count:,} examples)" for name, count in sizes.get("train", {}).items())
    fingerprints = "\n".join(f"- `{name}`: `{value}`" for name, value in data.get("fingerprints", {}).items())
    lines = [
        "---",
        "language: en",
        "library_name: transformers",
        f"pipeline_tag: {pipeline}",
        "tags: [hallucination-detection, faithfulness]",
        "---",
        "",
        f"# {title}",
        "",
        purpose,
        "",
        "## Use",
        "",
        usage,
        "",
        f"Labels: {', '.join(f'{index} = {label}' for index, label in enumerate(labels))}.",
        "",
        "## Training",
        "",
        f"Started from `{config['model']['weights']}`; data: {trained or 'not recorded'}; seed {config.get('seed')}.",
        "Settings: "
        + ", ".join(f"{name} {value}" for name, value in config.get("optimizer", {}).items() if value is not None)
        + ".",
        "",
        "Fingerprints of the records (equal fingerprints mean equal data):",
        "",
        fingerprints or "- not recorded",
        "",
        "## Metrics",
        "",
        "| test set | metric | value | 95% interval | n |",
        "|---|---|---|---|---|",
        *_metric_rows(metrics),
        "",
        thresholds,
        "",
        "## Limits",
        "",
        *(f"- {limit}" for limit in limits),
        "",
    ]
    return "\n".join(lines)


def _metric_rows(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = []
    for name, metric in metrics.items():
        split, dataset, short = name.split("/", 2)
        if short in SHOWN_METRICS:
            interval = f"{metric['low']:.3f} to {metric['high']:.3f}" if "low" in metric else "-"
            rows.append(
                f"| {split}/{dataset} | {short} | {metric['value']:.3f} | {interval} | {metric.get('n', '-')} |"
            )
    return rows
