"""Trains LettuceDetect's own Trainer on rows and predicts others with its own detector, as a user of the package would.

Run by the peer's Python (speed/peers/README.md), so it imports nothing of ours:

PEER_PYTHON lettuce_quality.py --weights FOLDER --train ROWS --test ROWS --out FOLDER --lr 1e-4 --epochs 6

Rows are as in lettuce_worker.py. Its recipe is kept: a tenth of the responses, taken at random, is its dev set; AdamW
at a constant rate; the checkpoint with the best token F1 on the dev set. As the rate is constant, a training of six
epochs contains those of one to five: every epoch's predictions are written, and summary.json says which epoch its own
rule chooses.
"""

import argparse
import json
import random
import shutil
import sys
from pathlib import Path

import torch
from lettuce_worker import cpu_seconds, loader, read_rows
from lettucedetect import HallucinationDetector
from lettucedetect.models.trainer import Trainer
from transformers import AutoModelForTokenClassification, AutoTokenizer

DEV_SHARE = 0.1  # of the responses: its published recipe


def main() -> None:
    """Trains epoch by epoch and predicts after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("weights", "train", "test", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    rows, test = read_rows(options.train), read_rows(options.test)
    random.Random(options.seed).shuffle(rows)
    cut = len(rows) - max(1, int(DEV_SHARE * len(rows)))
    tokenizer = AutoTokenizer.from_pretrained(options.weights)
    limits = {"batch_size": options.batch_size, "max_length": options.max_length}
    training = loader(rows[:cut], tokenizer, shuffle=True, **limits)
    dev = loader(rows[cut:], tokenizer, shuffle=False, **limits)
    model = AutoModelForTokenClassification.from_pretrained(options.weights, num_labels=2)
    trainer = Trainer(model, tokenizer, training, dev, epochs=1, learning_rate=options.lr)
    epochs = []
    for epoch in range(1, options.epochs + 1):
        trainer.save_path = str(out / "model")
        shutil.rmtree(trainer.save_path, ignore_errors=True)
        begin = cpu_seconds()
        dev_f1 = trainer.train()
        trained = cpu_seconds()
        if not Path(trainer.save_path).exists():  # its rule keeps no checkpoint of a dev F1 of nought
            model.save_pretrained(trainer.save_path)
            tokenizer.save_pretrained(trainer.save_path)
        predict(trainer.save_path, test, options.max_length, out / f"epoch-{epoch}.jsonl")
        epochs.append(
            {
                "epoch": epoch,
                "dev_f1": dev_f1,
                "train_cpu_seconds": trained - begin,
                "predict_cpu_seconds": cpu_seconds() - trained,
            }
        )
        chosen = max(epochs, key=lambda one: one["dev_f1"])["epoch"]  # the first of equals, as its rule
        summary = {"options": vars(options), "num_train": cut, "num_dev": len(rows) - cut, "num_test": len(test)}
        (out / "summary.json").write_text(json.dumps({**summary, "chosen": chosen, "epochs": epochs}, indent=2))
        print(json.dumps(epochs[-1]), file=sys.stderr, flush=True)
    shutil.rmtree(out / "model", ignore_errors=True)


def predict(folder: str, rows: list[dict], max_length: int, path: Path) -> None:
    """Predictions in our format; the score is the highest token probability, as its example-level evaluation has it."""
    detector = HallucinationDetector(method="transformer", model_path=folder, max_length=max_length)
    prompts, answers = [row["prompt"] for row in rows], [row["answer"] for row in rows]
    found = detector.predict_prompt_batch(prompts, answers, output_format="spans")
    tokens = detector.predict_prompt_batch(prompts, answers, output_format="tokens")
    with path.open("w", encoding="utf-8") as file:
        for row, spans, probabilities in zip(rows, found, tokens, strict=True):
            prediction = {
                "id": row["id"],
                "label": "hallucinated" if spans else "faithful",
                "score": max((one["prob"] for one in probabilities), default=0.0),
                "spans": [
                    {"start": s["start"], "end": s["end"], "label": "hallucination", "score": s["confidence"]}
                    for s in spans
                ],
                "text": "",
            }
            file.write(json.dumps(prediction) + "\n")


if __name__ == "__main__":
    main()
