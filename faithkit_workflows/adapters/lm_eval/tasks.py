"""Loads the rows of the tasks: the prompt of our judge, and the label, read as `faithkit evaluate` reads them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from data_modules.build import read_benchmark
from faithkit.errors import UserError
from faithkit.records import HALLUCINATED
from judge.prompt import read_prompts

# FaithDial's labelled responses are those of its critic.
DATASETS = {"faithdial": "faithcritic", "halludial": "halludial", "ragtruth": "ragtruth", "diahalu": "diahalu"}
PROMPTS = {"diahalu": "diahalu"}  # whole dialogues are asked about differently


def load_rows(benchmark: str, num_rows: int | None = None, **metadata: Any) -> dict[str, Any]:
    """Loads the test rows of a benchmark.

    Args:
        num_rows: The largest number of rows, drawn as by `benchmark.num_rows`.
        metadata: What `--metadata` gives; the value of the benchmark's name is where its files are, or `embedded`.

    Raises:
        UserError: There is no such value, or no readable file at it.
    """
    from datasets import Dataset

    if not (path := metadata.get(benchmark)):
        hint = f"""--metadata '{{"{benchmark}": "DIR"}}'; `embedded` is a small corpus to try it"""
        raise UserError(f"the files of {benchmark} are not named", hint=hint)
    block = {"name": DATASETS[benchmark], "path": path, "num_rows": num_rows, "split": None, "on_bad_row": "stop"}
    prompts = read_prompts("verdict", PROMPTS.get(benchmark))
    rows = [
        {
            "id": example.id,
            "prompt": "\n\n".join(message.content for message in prompts.messages(example)),
            "label": int(example.label == HALLUCINATED),
        }
        for example in read_benchmark({**block, "options": {}}).examples
    ]
    return {"test": Dataset.from_list(rows)}


def read_verdict(row: dict[str, Any], results: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """Compares the log-likelihoods of No and Yes with the label."""
    no, yes = (likelihood for likelihood, _ in results)
    label, is_yes = row["label"], yes > no
    return {"acc": float(is_yes == label), "macro_f1": (label, int(is_yes)), "auroc": (label, yes - no)}


def macro_f1(pairs: Sequence[tuple[int, int]]) -> float:
    """Computes the mean of both classes' F1."""
    from sklearn.metrics import f1_score

    return float(f1_score(*zip(*pairs, strict=True), average="macro", zero_division=0))


def auroc(pairs: Sequence[tuple[int, float]]) -> float:
    """Computes the area under the ROC curve; NaN if all rows have one label."""
    from sklearn.metrics import roc_auc_score

    labels, odds = np.array(pairs).T
    return float(roc_auc_score(labels, odds)) if len(set(labels)) > 1 else float("nan")
