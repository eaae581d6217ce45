"""Folders of runs, as the scripts leave them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import write_config

TRAINED: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "faithcritic", "path": "embedded"},
    "callbacks": {"monitor": "validation/faithcritic/macro_f1"},
    "model": {"name": "critic", "max_length": 64},
    "optimizer": {"lr": 0.001},
}
EVALUATED: dict[str, Any] = {
    "benchmark": {"name": "begin", "path": "FILE"},
    "decoding": {"strategy": "nucleus"},
    "checkpoint": "runs/critic",
    "predictions": None,
}
F1 = {"value": 0.75, "low": 0.5, "high": 0.875, "n": 8}
ROWS = [
    {"id": "a", "label": "hallucinated", "score": 0.9, "spans": [{"start": 0, "end": 2, "label": "x"}], "text": ""},
    {"id": "b", "label": "faithful", "score": 0.1, "spans": [], "text": ""},
]


def make_run(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    predictions: Mapping[str, Any] | None = None,
) -> Path:
    """A finished training, or what else the arguments make of it."""
    config = TRAINED if config is None else config
    (folder / "checkpoints").mkdir(parents=True)
    write_config(folder / "config.yaml", config)
    found = {"test/faithcritic/macro_f1": F1} if metrics is None else metrics
    meta = {"config": config, "data": {"rows": 8}}
    (folder / "metrics.json").write_text(json.dumps({"metrics": found, "meta": meta}))
    for name, rows in ({"faithcritic": ROWS} if predictions is None else predictions).items():
        write_jsonl(folder / "predictions" / f"{name}.jsonl", rows)
        (folder / "predictions" / f"{name}.origin.json").write_text(json.dumps({"rows": {"dataset": name}}))
    (folder / "csv").mkdir()
    (folder / "csv" / "metrics.csv").write_text("step,train/loss,validation/f1\n10,0.5,\n20,0.25,0.75\n")
    (folder / "train.log").write_text("2026-11-02 10:00:00,123 INFO begins\n")
    return folder
