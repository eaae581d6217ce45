"""The losses of critic and tagger, worked out by hand; in training, the auxiliary heads stay out of the export."""

import doctest
import math
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from critic.auxiliary_losses import auxiliary_loss, overlap_targets
from critic.sequence.module import batch_loss
from critic.sequence.module import validation_metrics as critic_metrics
from critic.tagger.module import token_loss
from critic.tagger.module import validation_metrics as tagger_metrics
from critic.tagger.windows import best_windows
from data_modules.encoding.pair_encoder import RESPONSE, PairEncoder
from data_modules.encoding.sequence_layout import ORDERS
from data_modules.encoding.tokens import load_tokenizer
from faithkit.records import SPAN_LABELS, UNTYPED, Span
from tests.data_modules.examples import example

LOGITS = torch.tensor([[0.0, 0.0], [0.0, math.log(3)], [math.log(3), 0.0], [5.0, 5.0]])
LABELS = torch.tensor([0, 1, 1, -1])
BY_ROW = [math.log(2), math.log(4 / 3), math.log(4)]  # the fourth row has no label
UNTYPED_TAG = SPAN_LABELS.index(UNTYPED) + 1
TAGS = torch.tensor([0, UNTYPED_TAG, 2, -1])  # without types in the head every type counts as one
TYPED = torch.tensor([[math.log(4), 0.0, 0.0, 0.0, 0.0]]).repeat(4, 1)  # 4/8 outside, then 1/8 for each type
THREE_QUARTERS = torch.full((4, 7), math.log(3))  # logits that say 3/4 of every token

# Words of the overlap's batch; `near` lies at 60 degrees to `word`, `against` opposite to it.
WORDS = torch.tensor([(0.0, 0.0), (2.0, 0.0), (0.0, 3.0), (1.0, math.sqrt(3)), (-1.0, 0.0)])
PAD, WORD, OTHER, NEAR, AGAINST = range(len(WORDS))
SEGMENT = torch.tensor([[0, 1, 1, 0, 2, 2, 0]] * 4)  # special, knowledge twice, special, response twice, special
IDS = torch.tensor(
    [
        [WORD, WORD, OTHER, WORD, WORD, NEAR, WORD],  # a copied word; of two the nearer one counts
        [WORD, WORD, WORD, WORD, NEAR, OTHER, WORD],
        [WORD, OTHER, OTHER, WORD, AGAINST, WORD, WORD],  # special tokens support nothing
        [WORD, AGAINST, AGAINST, WORD, WORD, AGAINST, WORD],  # an overlap is never below 0
    ]
)
OVERLAPS = torch.tensor([[1.0, math.sqrt(3) / 2], [0.5, 0.0], [0.0, 0.0], [0.0, 1.0]])
MARKS = torch.tensor([[-1, 0, 1], [-1, 1, -1], [-1, -1, -1]])  # the third row is padding


def targets() -> Tensor:
    return overlap_targets(torch.nn.functional.normalize(WORDS, dim=-1)[IDS], SEGMENT)


def label_loss(rows: slice, world_size: int) -> Tensor:
    return batch_loss(LOGITS[rows], LABELS[rows], num_rows=4, world_size=world_size, label_smoothing=0.1)


def tags_loss(rows: slice, world_size: int) -> Tensor:
    options = {"positive_weight": 2.0, "focal_gamma": 1.0}
    return token_loss(LOGITS[rows], TAGS[rows], num_tokens=3, world_size=world_size, **options)


def overlaps_loss(rows: slice, world_size: int) -> Tensor:
    logits, counted = torch.arange(28.0).view(4, 7) / 10, SEGMENT == 2
    return auxiliary_loss(logits[rows], targets()[rows], counted[rows], num_tokens=counted.sum(), world_size=world_size)


def spans_loss(rows: slice, world_size: int) -> Tensor:
    logits, marks, count = THREE_QUARTERS[:3, :3][rows], MARKS[rows], torch.tensor(3)
    return auxiliary_loss(logits, marks, marks >= 0, num_tokens=count, world_size=world_size)


@pytest.mark.parametrize("loss", [label_loss, tags_loss, overlaps_loss, spans_loss])
def test_the_mean_over_processes_is_the_loss_of_one(loss: Callable[[slice, int], Tensor]) -> None:
    shares = [loss(slice(rank, None, 3), 3) for rank in range(3)]
    assert float(sum(shares)) / 3 == pytest.approx(float(loss(slice(None), 1)))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: batch_loss(x, torch.tensor([-1]), num_rows=4, world_size=2, label_smoothing=0.0),
        lambda x: token_loss(x, torch.tensor([-1]), num_tokens=7, world_size=2, focal_gamma=1.0),
        lambda x: auxiliary_loss(x, x * 0, torch.zeros(1, 2).bool(), num_tokens=torch.tensor(0), world_size=2),
    ],
    ids=["labels", "tags", "overlaps and spans"],
)
def test_a_share_without_anything_to_learn_has_no_loss_and_no_gradient(loss: Callable[[Tensor], Tensor]) -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    found = loss(logits)
    found.backward()
    assert found.item() == 0 and logits.grad is not None and not logits.grad.any()


def test_labels_weak_labels_and_smoothing_by_hand() -> None:
    def loss(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> float:
        return float(batch_loss(logits, target, num_rows=len(logits), world_size=1, label_smoothing=smoothing))

    assert loss(LOGITS, LABELS) == pytest.approx(sum(BY_ROW) / 4)
    smoothed = 0.9 * math.log(4 / 3) + 0.1 * math.log(4)
    assert loss(LOGITS[1:2], torch.tensor([1]), 0.2) == pytest.approx(smoothed)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert loss(LOGITS[1:2], torch.tensor([0.75])) == pytest.approx(entropy), "the model says 3/4 too"
    assert loss(torch.zeros(3, 2), torch.tensor([0.3, math.nan, 1.0])) == pytest.approx(2 * math.log(2) / 3)


def test_tags_with_and_without_types_by_hand() -> None:
    def loss(logits: Tensor, tags: Tensor, **options: float) -> float:
        return float(token_loss(logits, tags, num_tokens=int((tags >= 0).sum()), world_size=1, **options))

    assert loss(LOGITS, TAGS) == pytest.approx(sum(BY_ROW) / 3)
    assert loss(LOGITS, TAGS, positive_weight=3.0) == pytest.approx((BY_ROW[0] + 3 * sum(BY_ROW[1:])) / 3)
    focal = sum((1 - p) ** 2 * row for p, row in zip([0.5, 0.75, 0.25], BY_ROW, strict=True)) / 3
    assert loss(LOGITS, TAGS, focal_gamma=2.0) == pytest.approx(focal)
    rows = [math.log(2), math.log(8), math.log(8), math.log(2)]  # an untyped mark asks for any type
    assert loss(TYPED, torch.tensor([0, 1, 4, UNTYPED_TAG])) == pytest.approx(sum(rows) / 4)


def test_overlaps_and_marks_by_hand() -> None:
    torch.testing.assert_close(targets()[:, 4:6], OVERLAPS)
    counted = (SEGMENT == RESPONSE) & torch.tensor([[True], [True], [True], [False]])  # the fourth row is padding
    loss = auxiliary_loss(THREE_QUARTERS, targets(), counted, num_tokens=counted.sum(), world_size=1)
    by_hand = [-(t * math.log(3 / 4) + (1 - t) * math.log(1 / 4)) for t in OVERLAPS[:3].flatten().tolist()]
    assert loss.item() == pytest.approx(sum(by_hand) / 6)
    assert spans_loss(slice(None), 1).item() == pytest.approx(-(math.log(1 / 4) + 2 * math.log(3 / 4)) / 3)


@pytest.mark.parametrize("order", ORDERS)
def test_marks_stand_at_the_tokens_of_the_spans(tiny_bert: Path, order: str) -> None:
    tokenizer = load_tokenizer(str(tiny_bert))
    encoder = PairEncoder(tokenizer=tokenizer, max_length=64, order=order, marked=True)
    rows = [
        example(response="it is blue and it is big", spans=(Span(start=6, end=10, label="contradiction"),)),
        example(response="it is red", spans=()),
        example(response="it is old", spans=None),
    ]
    batch = encoder.collate(encoder.encode(rows, Counter()))
    before = len(tokenizer("it is", add_special_tokens=False)["input_ids"])
    inside = len(tokenizer("blue", add_special_tokens=False)["input_ids"])
    first, faithful, unknown = (batch["mark"][i][batch["segment"][i] == RESPONSE] for i in range(3))
    assert np.flatnonzero(first == 1).tolist() == list(range(before, before + inside))
    assert not first[before + inside :].any() and not faithful.any() and (unknown == -1).all()
    assert (batch["mark"][batch["segment"] != RESPONSE] == -1).all()


def test_auxiliary_heads_are_trained_and_kept_out_of_the_folder(trained: Path, tiny_bert: Path) -> None:
    from safetensors.torch import load_file

    state = torch.load(trained / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert {"support.head.weight", "span_head.head.weight"} <= state.keys()
    folder = load_file(trained / "hf" / "model.safetensors")
    assert not any(name.startswith(("support", "span_head")) for name in folder)
    before = load_file(tiny_bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert torch.equal(folder["bert.embeddings.word_embeddings.weight"], before), "frozen"


def test_a_token_is_read_where_it_is_supported_best() -> None:
    odds, token = torch.tensor([2.0, 1.0, 0.0, 5.0, 1.0, -1.0]), torch.tensor([0, 1, 2, 2, 1, 0])
    assert best_windows(odds, token, 3).tolist() == [5, 1, 2], "of equal ones the first"
    assert best_windows(odds[:3], torch.tensor([2, 0, 1]), 3).tolist() == [1, 2, 0], "one window each"
    best = best_windows(torch.tensor([math.nan, math.nan, 1.0]), torch.tensor([0, 0, 1]), 2)
    assert best.tolist() in ([0, 2], [1, 2]), "what is not a number reaches the loss, which stops the training"


def test_validation_metrics_by_hand() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0], [2.0, 0.0]])
    found = critic_metrics(np.arange(4), np.column_stack([logits, [0, 1, 0, 0]]))
    assert (found["accuracy"], found["macro_f1"]) == pytest.approx((0.75, (0.8 + 2 / 3) / 2))
    keys, others = np.array([[7] * 3 + [9] * 2, range(5)]).T, [[1, 0, 1, 0, -1], [4, 3, 2, 5, 9]]
    found = tagger_metrics(keys, np.array([[3.0, -1.0, 2.0, -2.0, 1.0], *others]).T)
    assert found["char_f1"] == found["response_f1"] == found["token_auroc"] == found["response_auroc"] == 1
    found = tagger_metrics(keys, np.array([[3.0, 2.5, 2.0, 4.0, 9.0], *others]).T)
    assert (found["char_f1"], found["response_f1"]) == pytest.approx((2 * 6 / (6 + 14), 2 / 3))
    untagged = tagger_metrics(keys, np.array([[0.0, -1.0, 1.0]] * 5))
    assert untagged == {"char_f1": 0.0, "response_f1": 0.0, "loss": 0.0}


@pytest.mark.parametrize("module", ["sequence.module", "auxiliary_losses", "tagger.module", "sequence.task"])
def test_the_examples_of_docstrings_run(module: str) -> None:
    found = doctest.testmod(import_module(f"critic.{module}"))
    assert found.attempted >= 3 and not found.failed
