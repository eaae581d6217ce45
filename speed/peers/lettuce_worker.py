"""Parts that the scripts of this folder share: rows as LettuceDetect takes them, and commands read line by line.

A row is a JSON line {"id", "prompt", "answer", "labels": [{"start", "end"}], "task"}.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read_rows(path: str) -> list[dict[str, Any]]:
    """Reads the rows of a JSONL file."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def sample(row: dict[str, Any]) -> Any:
    """Makes its sample from a row."""
    from lettucedetect import HallucinationSample

    return HallucinationSample(row["prompt"], row["answer"], row["labels"], "train", row["task"], "ragtruth", "en")


def loader(rows: list[dict[str, Any]], tokenizer: Any, *, batch_size: int, max_length: int, shuffle: bool) -> Any:
    """Builds its dataset with the loader and the collator of its training script."""
    from lettucedetect import HallucinationDataset
    from torch.utils.data import DataLoader
    from transformers import DataCollatorForTokenClassification

    dataset = HallucinationDataset([sample(row) for row in rows], tokenizer, max_length)
    collator = DataCollatorForTokenClassification(tokenizer=tokenizer, label_pad_token_id=-100)
    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle, collate_fn=collator)


def serve(run: Callable[..., Any]) -> None:
    """Answers each line of words with a line of JSON, until the input ends; what libraries print goes to stderr."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(*line.split())), file=answers, flush=True)


def cpu_seconds() -> float:
    """Returns the CPU-seconds of this process, all threads."""
    return time.process_time()
