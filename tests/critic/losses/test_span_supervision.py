"""The span loss: marks of response tokens, worked out by hand; in training, and not in what is exported."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from critic.export import export
from critic.losses.span_supervision import marked_tokens, span_loss
from data_modules.encoding.pair_encoder import RESPONSE, PairEncoder
from data_modules.encoding.sequence_layout import RESPONSE_FIRST
from data_modules.encoding.tokens import load_tokenizer
from faithkit.records import Example, Span
from tests.running import SMALL, train_here


def example(response: str, spans: tuple[Span, ...] | None) -> Example:
    return Example(
        id=response, source="s", split="train", group="g", knowledge="it is red", response=response, label=None,
        spans=spans,
    )  # fmt: skip


@pytest.mark.parametrize("order", ["knowledge_response", RESPONSE_FIRST])
def test_marks_stand_at_the_tokens_of_the_spans(tiny_bert: Path, order: str) -> None:
    tokenizer = load_tokenizer(str(tiny_bert))
    encoder = PairEncoder(tokenizer=tokenizer, max_length=64, order=order, marked=True)
    rows = [
        example("it is blue and it is big", (Span(start=6, end=10, label="contradiction"),)),
        example("it is red", ()),
        example("it is old", None),
    ]
    columns = encoder.encode(rows, Counter())
    batch = encoder.collate(columns)
    before = len(tokenizer("it is", add_special_tokens=False)["input_ids"])
    inside = len(tokenizer("blue", add_special_tokens=False)["input_ids"])
    first, faithful, unknown = (batch["mark"][i][batch["segment"][i] == RESPONSE] for i in range(3))
    assert np.flatnonzero(first == 1).tolist() == list(range(before, before + inside))
    assert not first[before + inside :].any() and not faithful.any() and (unknown == -1).all()
    assert (batch["mark"][batch["segment"] != RESPONSE] == -1).all()
    plain = PairEncoder(tokenizer=tokenizer, max_length=64, order=order)
    assert "mark" not in plain.encode(rows, Counter()) and plain.fingerprint() != encoder.fingerprint()


def test_the_loss_is_the_mean_over_marked_rows_and_shares_add_up() -> None:
    marks = torch.tensor([[-1, 0, 1], [-1, 1, -1], [-1, 1, 1]])
    marks = marked_tokens(marks, torch.tensor([0, 1, -1]))
    logits = torch.full((3, 3), math.log(3))  # says 3/4 of every token
    loss = span_loss(logits, marks, num_tokens=torch.tensor(3), world_size=1)
    assert loss.item() == pytest.approx(-(math.log(1 / 4) + 2 * math.log(3 / 4)) / 3), "the third row is padding"
    shares = [span_loss(logits[i::2], marks[i::2], num_tokens=torch.tensor(3), world_size=2) for i in (0, 1)]
    assert float(sum(shares)) / 2 == pytest.approx(float(loss))


def test_nothing_marked_is_no_loss_and_no_gradient() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    loss = span_loss(logits, torch.tensor([[-1, -1]]), num_tokens=torch.tensor(0), world_size=2)
    loss.backward()
    assert loss.item() == 0 and logits.grad is not None and not logits.grad.any()


def test_the_head_is_trained_and_kept_out_of_the_export(tiny_bert: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    run = tmp_path / "run"
    train_here(
        f"run_dir={run}", f"model.weights={tiny_bert}", "model.span_weight=2", "callbacks.log_every_num_steps=1", *SMALL
    )
    state = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert any(name.startswith("span_head.") for name in state)
    header, *rows = (run / "csv" / "metrics.csv").read_text().splitlines()
    place = header.split(",").index("train/span_loss")
    losses = [float(row.split(",")[place]) for row in rows if row.split(",")[place]]
    assert losses and losses[-1] < losses[0], "the tokens learn"
    assert export(str(run), str(tmp_path / "out")).difference <= 1e-5
    assert not any("span_head" in name for name in load_file(tmp_path / "out" / "model.safetensors"))
