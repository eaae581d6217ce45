"""A damaged metrics.csv never stops a resume, and what is logged then can be read."""

import csv
import random
from pathlib import Path

from faithkit.training.loggers.csv_files import CsvLogger
from tests.faults.campaign import Campaign, Wrong
from tests.faults.mutations import mutate_bytes

HEAD = "epoch,lr-AdamW/pg1,step,train/loss,validation/embedded/f1"
TEXT = "\r\n".join(
    [HEAD, *(f"0,{1 / step},{step},{2 / step},{0.5 if step % 20 else ''}" for step in range(9, 199, 10))]
)


def resume(rng: random.Random, folder: Path) -> None:
    file = folder / "metrics.csv"
    file.write_bytes(mutate_bytes(f"{TEXT}\r\n".encode(), rng))
    logger = CsvLogger(folder, first_step=rng.choice([0, 50, 1000]))
    logger.log_metrics({"train/loss": 0.5}, 1009)
    logger.log_metrics({"other": 0.25}, 1019)
    with file.open(newline="", encoding="utf-8") as opened:
        last = list(csv.DictReader(opened))[-2:]
    if [(row["step"], row["train/loss"], row["other"]) for row in last] != [("1009", "0.5", ""), ("1019", "", "0.25")]:
        raise Wrong(f"what was logged after the damage reads as {last}")


CAMPAIGNS = [Campaign("metrics.csv, a resumed training", resume, share=0.5)]
