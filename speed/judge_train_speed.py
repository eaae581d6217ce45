"""Compares fine-tuning a judge: ours packed, one padded row at a time as in HalluDial, and TRL's SFTTrainer.

All train the same weights on the same token ids: prompts and judgements of the embedded corpus in HalluDial's layout,
with a loss of the judgements' tokens alone, AdamW at a constant rate, batches of `--batch-size` (HalluDial: 1, padded
to the length). TRL gets our batches in our order, so that the loss of each step can be compared. Every training is a
process of its own, since what one leaves behind is gigabytes. Each round begins from the same weights with rows of its
own; the loss of held-out rows is taken behind it. Several responses answer each turn, as in HalluDial, whose turns have
eight: ours can read what these share once.

    FAITHKIT_TRL_PYTHON=~/trl/bin/python python -m speed.judge_train_speed [--rows 96] [--replies 5] [--rounds 3]

Needs: `smollm2-135m` (fetched once), and TRL in an environment of its own (peers/README.md); without it TRL is left out
and the section says so.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from faithkit.records import Example
from speed.measure import Ratio, alternate, cpu_seconds, report, table
from speed.mixed import InMemory
from speed.own_training import train_one_epoch
from speed.peer import TRL, peer

LR, LENGTH, HELD_OUT = 3e-5, 1280, 32
SHOWN = 8  # steps of a curve


def main() -> None:
    """Takes the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=96, help="of a round")
    parser.add_argument("--replies", type=int, default=5, help="rows of a turn: 60%% of HalluDial's 8 are for training")
    parser.add_argument("--padded", type=int, default=8, help="rows of a round that are padded one by one")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        compare(Judging(options, Path(folder)), options)


class Judging:
    """The rows, the weights, and what each side found."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        from data_modules.embedded.corpus import Embedded
        from data_modules.reading.dataset import read_examples
        from data_modules.reading.rows import ReadReport
        from faithkit.weights.resolve import resolve

        self.weights, self.folder, self.size = str(resolve(options.model)), folder, options.rows
        self.batch_size = options.batch_size
        os.environ["FAITHKIT_HOME"] = str(folder / "home")  # nothing is encoded already
        count = options.rows * options.rounds
        source = Embedded(num_train=count, num_test=HELD_OUT)
        train, self.held_out = (list(read_examples(source, split, ReadReport())) for split in ("train", "test"))
        # The corpus answers a turn twice: more answers are those of the turns behind it, of the same lengths.
        firsts = (train[place - place % options.replies] for place in range(count))
        self.train = [
            replace(row, knowledge=first.knowledge, history=first.history)
            for row, first in zip(train, firsts, strict=True)
        ]
        self.encoder = self.task().encoder
        self.rows = [self._ids(self.train), self._ids(self.held_out)]

    def task(self, **options: Any) -> Any:
        """Makes a judge's task, in training mode without dropout."""
        from judge.task import JudgeTask

        optimizer = {"lr": LR, "weight_decay": 0.0, "warmup": 0.0, "schedule": "constant"}
        chosen = {"ask": "judgement", "max_length": LENGTH, "gradient_checkpointing": False, **options}
        return JudgeTask(optimizer=optimizer, weights=self.weights, **chosen)

    def _ids(self, examples: Sequence[Example]) -> list[dict[str, list[int]]]:
        columns = self.encoder.encode(examples, Counter())
        rows = []
        for place in range(len(examples)):
            context, reply = (columns[name].row(place).tolist() for name in ("context", "response"))
            rows.append({"input_ids": context + reply, "completion_mask": [0] * len(context) + [1] * len(reply)})
        return rows

    def data(self, task: Any, start: int, stop: int) -> Any:
        """Sets up a round's rows for our Trainer."""
        from data_modules.data_module import DataModule

        data = DataModule([(InMemory(self.train[start:stop]), 1.0)], task.encoder, batch_size=self.batch_size)
        data.setup()
        return data

    def in_our_order(self) -> list[dict[str, list[int]]]:
        """Gives all rows, each round's in the order in which our batches take them."""
        ordered, task = [], self.task()
        for start in range(0, len(self.train), self.size):
            batches = [rows for rows, _ in self.data(task, start, start + self.size).train_dataloader().sampler]
            assert all(len(batch) == self.batch_size for batch in batches[:-1])
            ordered += [self.rows[0][start + place] for batch in batches for place in batch]
        assert len(ordered) == len(self.train)
        return ordered

    def write(self) -> list[str]:
        """Writes the rows for the other side; gives its arguments."""
        for name, rows in (("rows", self.in_our_order()), ("held_out", self.rows[1])):
            text = "\n".join(map(json.dumps, rows))
            (self.folder / f"{name}.jsonl").write_text(text + "\n", encoding="utf-8")
        paths = ["--rows", str(self.folder / "rows.jsonl"), "--held-out", str(self.folder / "held_out.jsonl")]
        limits = ["--lr", str(LR), "--batch-size", str(self.batch_size), "--max-length", str(LENGTH)]
        return ["--weights", self.weights, *paths, *limits]

    def own(self, precision: str, start: int, stop: int, **options: Any) -> "Trained":
        """Trains with our Trainer and its callbacks. `options` are the judge's."""
        from faithkit.training.trainer import seed_and_threads

        seed_and_threads(seed=0, num_threads=1)
        task = self.task(**options)
        data = self.data(task, start, stop)
        module = task.module(num_steps=data.num_batches, dataset="mixed", seed=0)
        losses: list[float] = []
        monitor = "validation/mixed/macro_f1"
        taken = train_one_epoch(data, module, precision=precision, monitor=monitor, losses=losses)
        return Trained(taken, losses, self.held_out_loss(module.model))

    def held_out_loss(self, model: Any) -> float:
        """Computes the mean loss of the held-out judgements' tokens, row by row."""
        model.set_attn_implementation("sdpa")
        total, count = 0.0, 0
        with torch.inference_mode():
            for row in self.rows[1]:
                ids, wanted = torch.tensor([row["input_ids"]]), torch.tensor(row["completion_mask"][1:]).bool()
                logits = model.eval()(input_ids=ids).logits[0, :-1].float()[wanted]
                total += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:][wanted], reduction="sum"))
                count += int(wanted.sum())
        return total / count

    def padded(self, start: int, stop: int) -> "Trained":
        """Trains a row at a time, padded to the full length, with the logits of every place: as HalluDial does."""
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(self.weights, dtype=torch.float32).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
        begin = cpu_seconds()
        for row in self.rows[0][start:stop]:
            filling = LENGTH - len(row["input_ids"])
            ids = torch.tensor([row["input_ids"] + [0] * filling])
            labels = torch.where(torch.tensor([row["completion_mask"] + [0] * filling]).bool(), ids, -100)
            mask = (torch.arange(LENGTH) < LENGTH - filling)[None].long()
            model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return Trained(cpu_seconds() - begin)

    def other(self, kind: str, start: int, stop: int) -> "Trained":
        """Trains with TRL."""
        with peer(TRL, "trl_train.py", *self.write()) as worker:
            found = worker.ask(kind, start, stop)
        return Trained(float(found["seconds"]), found["losses"], float(found["held_out"]))


@dataclass(frozen=True)
class Trained:
    """A round of one side: CPU-seconds, the loss of each step, and that of the held-out rows."""

    seconds: float
    losses: Sequence[float] = ()
    held_out: float | None = None


def apart(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Calls a function in a process of its own, which takes its memory with it."""
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        return pool.submit(function, *arguments, **options).result()


def compare(judging: Judging, options: argparse.Namespace) -> None:
    """Times the sides in turns and writes the section."""
    from faithkit.hardware import best_precision

    best = best_precision("cpu")
    first = "a padded row at a time, fp32"
    sides: dict[str, Callable[[int, int], Trained]] = {first: partial(apart, judging.padded)}
    notes = []
    if TRL.variable in os.environ:
        for kind in ("padded", *(["padded-bf16"] if best == "bf16-mixed" else [])):
            sides[f"TRL, {kind}"] = partial(judging.other, kind)
        with peer(TRL, "trl_train.py", *judging.write()) as worker:
            leak = worker.ask("leak", 0, 2)
        notes.append(
            f"TRL in {TRL.versions()}. Two rows packed by it have logits up to {leak['difference']:.1e} away from "
            f"those of the rows alone (the largest logit is {leak['scale']:.0f}); ours "
            f"{apart(packed_difference, judging):.1e}."
        )
    else:
        print(f"without TRL: {TRL.missing}", file=sys.stderr)
        notes.append("TRL was not at hand.")
    for precision in dict.fromkeys(("32-true", best)):
        for name, share in ((f"ours, {precision}, each row whole", False), (f"ours, {precision}", True)):
            sides[name] = partial(apart, judging.own, precision, share_beginnings=share)
    done: Counter[str] = Counter()
    tokens: dict[str, list[int]] = {label: [] for label in sides}
    found: dict[str, list[Trained]] = {label: [] for label in sides}

    def turn(label: str) -> Callable[[], float]:
        def work() -> float:
            start = done[label] * judging.size
            done[label] += 1
            stop = start + (options.padded if label == first else judging.size)
            tokens[label].append(sum(len(row["input_ids"]) for row in judging.rows[0][start:stop]))
            trained = sides[label](start, stop)
            found[label].append(trained)
            line = f"{label}: {trained.seconds:.1f} CPU-seconds, held-out loss {trained.held_out}"
            print(line, file=sys.stderr, flush=True)
            return trained.seconds

        return work

    taken = alternate({label: turn(label) for label in sides}, options.rounds)
    by_token = {label: [s / n for s, n in zip(taken[label], tokens[label], strict=True)] for label in sides}
    rows = [
        [
            label,
            f"{1 / np.median(seconds):,.0f}",
            str(Ratio.of(by_token[first], seconds)),
            ", ".join(f"{one.held_out:.4f}" for one in found[label] if one.held_out is not None),
        ]
        for label, seconds in by_token.items()
    ]
    read = [len(row["input_ids"]) for row in judging.rows[0]]
    body = (
        f"`{options.model}`; {options.rows} rows a round ({options.padded} where they are padded one by one), of "
        f"{min(read)} to {max(read)} tokens (median {np.median(read):.0f}), no dropout, no gradient checkpointing, "
        f"rate {LR}, batches of {options.batch_size}; {options.replies} rows of each turn. "
        f"A row's tokens count whole, padding never. "
        f"{' '.join(notes)}"
    )
    header = ["side", "tokens a CPU-second", "against a padded row", f"loss of {HELD_OUT} held-out rows, by round"]
    report("Judge: fine-tuning", f"{body}\n\n{table(header, rows)}\n\n{curves(found)}")


def curves(found: dict[str, list[Trained]]) -> str:
    """Shows the loss by step of the first round, and how far the sides' losses are from the first one's anywhere."""
    first, *others = (label for label, rounds in found.items() if rounds[0].losses)
    every = {label: np.array([one.losses for one in found[label]]) for label in (first, *others)}
    steps = every[first].shape[1]
    shown = sorted(set(np.linspace(0, steps - 1, min(SHOWN, steps)).round().astype(int).tolist()))
    rows = []
    for label, losses in every.items():
        apart_from_it = "" if label == first else f"{np.abs(losses - every[first]).max():.1e}"
        rows.append([label, *(f"{losses[0, step]:.4f}" for step in shown), apart_from_it])
    header = ["side", *(f"step {step + 1}" for step in shown), "most apart from the first line, all rounds"]
    return (
        f"The loss of a step, of {steps} in a round, with the same rows in the same order (where each row is read "
        f"whole, ours has an order of its own); the first round:\n\n"
        f"{table(header, rows)}"
    )


def packed_difference(judging: Judging) -> float:
    """Tells how far the logits of two packed rows are from those of the rows alone, in our model."""
    from faithkit.packing import Packing

    module = judging.task().module(num_steps=1, dataset="mixed", seed=0)
    model = module.model.eval()
    rows = [torch.tensor(row["input_ids"]) for row in judging.rows[0][:2]]
    places = [torch.arange(len(row)) for row in rows]
    with torch.inference_mode():
        together = model(
            input_ids=torch.cat(rows)[None],
            position_ids=torch.cat(places)[None],
            packing=Packing.of([len(row) for row in rows]),
        ).logits[0]
        model.set_attn_implementation("sdpa")
        alone = torch.cat([model(input_ids=row[None]).logits[0] for row in rows])
    return float((together - alone).abs().max())


if __name__ == "__main__":
    main()
