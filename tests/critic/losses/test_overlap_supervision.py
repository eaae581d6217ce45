"""The support loss, worked out by hand; and in training: not exported, resumed exactly, the same on two processes."""

import json
import math
from pathlib import Path

import pytest
import torch

from critic.export import export
from critic.losses.overlap_supervision import overlap_loss, overlap_targets, response_tokens, unit_vectors
from critic.losses.sequence_loss import batch_loss
from critic.sequence.module import CriticModule
from critic.sequence.options import CriticOptions
from faithkit.training.training_options import OptimizerOptions
from tests.running import SMALL, run, train_here

# Words of the hand-made batch; `near` lies at 60 degrees to `word`, `against` opposite to it.
WORDS = {
    "pad": (0.0, 0.0),
    "word": (2.0, 0.0),
    "other": (0.0, 3.0),
    "near": (1.0, math.sqrt(3)),
    "against": (-1.0, 0.0),
}
PAD, WORD, OTHER, NEAR, AGAINST = range(len(WORDS))
# Special token, two of knowledge, special, two of response, special (no word of its own: it takes `word`'s vector).
SEGMENT = torch.tensor([[0, 1, 1, 0, 2, 2, 0]] * 4)
IDS = torch.tensor(
    [
        [WORD, WORD, OTHER, WORD, WORD, NEAR, WORD],  # a copy; the nearer of two counts
        [WORD, WORD, WORD, WORD, NEAR, OTHER, WORD],
        [WORD, OTHER, OTHER, WORD, AGAINST, WORD, WORD],  # special tokens are no support
        [WORD, AGAINST, AGAINST, WORD, WORD, AGAINST, WORD],  # nothing is less than 0
    ]
)
BY_HAND = torch.tensor([[1.0, math.sqrt(3) / 2], [0.5, 0.0], [0.0, 0.0], [0.0, 1.0]])


def vectors() -> torch.Tensor:
    return unit_vectors(torch.tensor(list(WORDS.values())))[IDS]


def test_targets_of_four_rows_by_hand() -> None:
    targets = overlap_targets(vectors(), SEGMENT)
    torch.testing.assert_close(targets[:, 4:6], BY_HAND)
    assert targets.min() >= 0 and targets.max() <= 1


def test_the_loss_is_the_mean_over_response_tokens() -> None:
    counted = response_tokens(SEGMENT, torch.tensor([0, 1, 2, -1]))
    assert int(counted.sum()) == 6, "the fourth row is padding"
    logits = torch.full(SEGMENT.shape, math.log(3))  # says 3/4 of every token
    targets = overlap_targets(vectors(), SEGMENT)
    loss = overlap_loss(logits, targets, counted, num_tokens=counted.sum(), world_size=1)
    by_hand = [-(t * math.log(3 / 4) + (1 - t) * math.log(1 / 4)) for t in BY_HAND[:3].flatten().tolist()]
    assert loss.item() == pytest.approx(sum(by_hand) / 6)


def test_the_mean_over_processes_is_the_loss_of_one() -> None:
    targets, counted = overlap_targets(vectors(), SEGMENT), SEGMENT == 2
    counted[0, 4] = False  # shares of unlike size
    logits = torch.arange(28.0).view(4, 7) / 10
    whole = overlap_loss(logits, targets, counted, num_tokens=counted.sum(), world_size=1)
    shares = [
        overlap_loss(logits[r::2], targets[r::2], counted[r::2], num_tokens=counted.sum(), world_size=2) for r in (0, 1)
    ]
    assert float(sum(shares)) / 2 == pytest.approx(float(whole))


def test_a_batch_without_response_tokens_has_no_loss_and_no_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    counted = torch.zeros(1, 3, dtype=torch.bool)
    loss = overlap_loss(logits, torch.zeros(1, 3), counted, num_tokens=counted.sum(), world_size=2)
    loss.backward()
    assert loss.item() == 0 and logits.grad is not None and not logits.grad.any()


def test_a_weak_label_pulls_towards_its_probability() -> None:
    logits = torch.tensor([[0.0, math.log(3)]], requires_grad=True)  # P(hallucinated) = 3/4
    loss = batch_loss(logits, torch.tensor([0.75]), num_rows=1, world_size=1, label_smoothing=0.0)
    loss.backward()
    assert loss.item() == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert logits.grad is not None and logits.grad.abs().max() < 1e-6, "least where the model says just that"
    mixed = batch_loss(
        torch.zeros(3, 2), torch.tensor([0.3, math.nan, 1.0]), num_rows=3, world_size=1, label_smoothing=0
    )
    assert mixed.item() == pytest.approx(2 * math.log(2) / 3)


@pytest.fixture(scope="module")
def options(tiny_bert: Path) -> list[str]:
    return [
        f"model.weights={tiny_bert}",
        "model.support_weight=1",
        "model.freeze_embeddings=true",
        "optimizer.floor=0.1",
        "callbacks.save_every_seconds=0",
        *SMALL,
    ]


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("support") / "run"
    train_here(f"run_dir={folder}", *options)
    return folder


def state(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]


def test_the_head_is_trained_and_kept_out_of_the_export(whole: Path, tmp_path: Path, tiny_bert: Path) -> None:
    from safetensors.torch import load_file

    assert any(name.startswith("support.") for name in state(whole, "best"))
    assert "train/support_loss" in (whole / "csv" / "metrics.csv").read_text().splitlines()[0]
    assert export(str(whole), str(tmp_path / "out")).difference <= 1e-5
    exported = load_file(tmp_path / "out" / "model.safetensors")
    assert not any("support" in name for name in exported)
    before = load_file(tiny_bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert torch.equal(exported["bert.embeddings.word_embeddings.weight"], before), "frozen"


def test_without_it_there_is_no_head_and_all_is_trained(tiny_bert: Path) -> None:
    optimizer = OptimizerOptions(lr=1e-3, weight_decay=0.0, warmup=0.0, schedule="linear")
    module = CriticModule(CriticOptions(weights=str(tiny_bert)), optimizer, num_steps=1)
    assert not any(name.startswith("support") for name in module.state_dict())
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_a_resumed_run_ends_with_the_same_weights(
    whole: Path, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = CriticModule.training_step

    def broken(self: CriticModule, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        if batch_idx == 3:
            raise RuntimeError("the power fails")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(CriticModule, "training_step", broken)
    with pytest.raises(RuntimeError, match="the power fails"):
        train_here(f"run_dir={tmp_path / 'run'}", *options)
    monkeypatch.setattr(CriticModule, "training_step", step)
    train_here(f"resume={tmp_path / 'run'}")
    ours, theirs = state(tmp_path / "run"), state(whole)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
def test_two_processes_take_the_steps_of_one(trainer: str, options: list[str], tmp_path: Path) -> None:
    plain = [option for option in options if not option.startswith("trainer")] + ["model.dropout=0"]
    train_here(f"run_dir={tmp_path / 'one'}", *plain, "trainer=cpu")
    two = [f"trainer={trainer}", "trainer.accelerator=cpu", "trainer.devices=2"]
    done = run("train.py", f"run_dir={tmp_path / 'two'}", *plain, *two)
    assert done.returncode == 0, done.stderr
    one, both = (
        [json.loads(line) for line in (tmp_path / name / "predictions" / "embedded.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    for first, second in zip(one, both, strict=True):
        assert second["score"] == pytest.approx(first["score"], abs=1e-4)
