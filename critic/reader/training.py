"""Trains the adapters of `thorough`: easy rows first, then the everyday answers.

Each step reads one sequence: a context with all its answers (`Packer`), or short premises with their
hypotheses. The loss is the cross-entropy of verdicts, that of tokens where wrong parts are known, and half of
softplus(right - wrong) over pairs of a wrong and a right answer to one question. Only the adapters of the upper layers
and the heads are trained. The state after each epoch is kept, so that an interrupted training goes on.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional
from tqdm.auto import tqdm

from critic.reader.detector import BASE, SCALE, Pack, Packer, load_base
from faithkit.files.atomic import atomic_file
from faithkit.records import HALLUCINATED, Example

FIRST_LAYER = 12  # of 30: those below stay as they are
RANK = 16
HEAD_RATE = 2e-3
PAIR_LOSS = 0.5


class Stage(NamedTuple):
    """A part of the training.

    Args:
        name: For the progress bar.
        lessons: The sequences.
        at_once: How many of them are a step.
        num_epochs: How often they are read.
        rate: The learning rate of the adapters.
        decays: The rate falls linearly to 0.
    """

    name: str
    lessons: list["Lesson"]
    at_once: int
    num_epochs: int
    rate: float
    decays: bool


@dataclass(frozen=True, slots=True)
class Lesson:
    """One sequence with its labels.

    Args:
        pack: The sequence.
        labels: 1 for hallucinated [answers].
        tokens: Places in the sequence of tokens with a known label.
        token_labels: 1 inside a wrong part.
        pairs: The numbers of a wrong and of a right answer to one question [pairs, 2].
    """

    pack: Pack
    labels: Tensor
    tokens: Tensor
    token_labels: Tensor
    pairs: Tensor


class HalfLinear(nn.Module):
    """A frozen linear layer that computes in bf16."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.weight = layer.weight.detach().bfloat16()

    def forward(self, states: Tensor) -> Tensor:
        return functional.linear(states.bfloat16(), self.weight).to(states.dtype)


class AdaptedLinear(HalfLinear):
    """The same with an adapter."""

    def __init__(self, layer: nn.Linear):
        super().__init__(layer)
        outputs, inputs = self.weight.shape
        self.a = nn.Parameter(torch.randn(RANK, inputs) / math.sqrt(inputs))
        self.b = nn.Parameter(torch.zeros(outputs, RANK))

    def forward(self, states: Tensor) -> Tensor:
        low = functional.linear(states.bfloat16(), self.a.bfloat16())
        return super().forward(states) + SCALE * functional.linear(low, self.b.bfloat16()).to(states.dtype)


class TrainedReader(nn.Module):
    """The base with new adapters and heads.

    Args:
        base: The language model.
        first_layer: The first layer with adapters.
    """

    def __init__(self, base: str = BASE, first_layer: int = FIRST_LAYER, *, seed: int, device: str):
        super().__init__()
        torch.manual_seed(seed)
        model, tokenizer = load_base(base)
        self.model: Any = model.requires_grad_(False)
        self.packer = Packer(tokenizer)
        self.adapted: dict[str, AdaptedLinear] = {}
        for number, layer in enumerate(self.model.layers):
            for name, module in [(n, m) for n, m in layer.named_modules() if isinstance(m, nn.Linear)]:
                made = AdaptedLinear(module) if number >= first_layer else HalfLinear(module)
                parent, _, last = name.rpartition(".")
                setattr(layer.get_submodule(parent), last, made)
                if isinstance(made, AdaptedLinear):
                    self.adapted[f"layers.{number}.{name}"] = made
        size = self.model.config.hidden_size
        self.verdict, self.token = nn.Linear(size, 1), nn.Linear(size, 1)
        for head, bias in ((self.verdict, 0.0), (self.token, -2.0)):  # few tokens are wrong
            nn.init.zeros_(head.weight)
            nn.init.constant_(head.bias, bias)
        self.to(device)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the trained tensors, by their names in the file of adapters."""
        found: dict[str, Tensor] = {}
        for name, layer in self.adapted.items():
            found |= {f"{name}.a": layer.a, f"{name}.b": layer.b}
        for name, head in (("verdict", self.verdict), ("token", self.token)):
            found |= {f"{name}.weight": head.weight, f"{name}.bias": head.bias}
        return found

    def write(self, path: Path) -> None:
        """Writes the adapters in bf16, and the heads."""
        save_file(
            {
                name: tensor.detach().to("cpu", torch.bfloat16 if name.endswith((".a", ".b")) else torch.float32)
                for name, tensor in self.tensors().items()
            },
            path,
        )

    @torch.no_grad()
    def auroc(self, lessons: Sequence[Lesson]) -> float:
        """Computes how well the verdicts rank wrong answers above right ones."""
        odds = torch.cat([self._read(one)[1] for one in lessons])
        return float(roc_auc_score(torch.cat([one.labels for one in lessons]), odds.cpu()))

    def _read(self, lesson: Lesson) -> tuple[Tensor, Tensor]:
        """Computes the last states of a sequence, and the log-odds of its answers."""
        states = self.model(**lesson.pack.inputs(self.verdict.weight.device)).last_hidden_state[0]
        return states, self.verdict(states[lesson.pack.verdicts])[:, 0]

    def loss(self, lesson: Lesson) -> Tensor:
        """Computes the loss of a sequence."""
        device = self.verdict.weight.device
        states, odds = self._read(lesson)
        loss = functional.binary_cross_entropy_with_logits(odds, lesson.labels.to(device))
        if len(lesson.tokens):
            of_tokens = self.token(states[lesson.tokens])[:, 0]
            loss = loss + functional.binary_cross_entropy_with_logits(of_tokens, lesson.token_labels.to(device))
        if len(lesson.pairs):
            loss = loss + PAIR_LOSS * functional.softplus(odds[lesson.pairs[:, 1]] - odds[lesson.pairs[:, 0]]).mean()
        return loss


def make_lessons(packer: Packer, examples: Sequence[Example], questions: Sequence[str]) -> list[Lesson]:
    """Makes the sequences of labelled examples: one, or several, for each context.

    Args:
        questions: The question of each example; pairs are made of answers to one question.
    """
    both = zip(examples, questions, strict=True)
    texts = ((example.knowledge, question, example.response) for example, question in both)
    lessons = []
    for pack in packer.pack(texts):
        rows = [piece.row for piece in pack.pieces]
        wrong = [examples[row].label == HALLUCINATED for row in rows]
        tokens, token_labels = list[int](), list[float]()
        for piece, place in zip(pack.pieces, pack.places, strict=True):
            example = examples[piece.row]
            if example.label != HALLUCINATED or example.spans:
                spans = [(span.start, span.end) for span in example.spans or ()]
                tokens += range(place, place + len(piece.ids))
                token_labels += [float(any(b < end and begin < e for b, e in spans)) for begin, end in piece.offsets]
        pairs = [
            (i, j)
            for i, one in enumerate(rows)
            for j, other in enumerate(rows)
            if wrong[i] and not wrong[j] and questions[one] and questions[one] == questions[other]
        ]
        lessons.append(
            Lesson(
                pack=pack,
                labels=torch.tensor(wrong, dtype=torch.float32),
                tokens=torch.tensor(tokens, dtype=torch.long),
                token_labels=torch.tensor(token_labels),
                pairs=torch.tensor(pairs, dtype=torch.long).reshape(-1, 2),
            )
        )
    return lessons


def train(
    stages: Sequence[Stage], reader: TrainedReader, state: Path, *, seed: int
) -> Iterator[tuple[str, int, float]]:
    """Trains on the stages in turn, and yields stage, epoch and mean loss of each epoch.

    Args:
        state: A file that keeps the training; if it is there, the training goes on from it.
    """
    heads = [*reader.verdict.parameters(), *reader.token.parameters()]
    adapters = [parameter for layer in reader.adapted.values() for parameter in (layer.a, layer.b)]
    groups: list[dict[str, Any]] = [{"params": adapters}, {"params": heads}]
    optimizer = torch.optim.AdamW(groups, lr=HEAD_RATE, weight_decay=0.01, betas=(0.9, 0.98))
    done = 0  # epochs, over all stages
    if state.is_file():
        stored = torch.load(state, weights_only=True)
        with torch.no_grad():
            for name, tensor in reader.tensors().items():
                tensor.copy_(stored["tensors"][name])
        optimizer.load_state_dict(stored["optimizer"])
        done = stored["done"]
    epochs = [(stage, epoch) for stage in stages for epoch in range(stage.num_epochs)]
    for number, (stage, epoch) in enumerate(epochs):
        if number < done:
            continue
        lessons = random.Random(f"{seed} {stage.name} {epoch}").sample(stage.lessons, len(stage.lessons))
        steps = [lessons[begin : begin + stage.at_once] for begin in range(0, len(lessons), stage.at_once)]
        total = 0.0
        for place, step in enumerate(tqdm(steps, desc=f"{stage.name}, epoch {epoch + 1}", leave=False)):
            done_steps, all_steps = epoch * len(steps) + place, stage.num_epochs * len(steps)
            share = min(1.0, (done_steps + 1) / 20) * ((1 - done_steps / all_steps) if stage.decays else 1.0)
            for group, rate in zip(optimizer.param_groups, (stage.rate, HEAD_RATE), strict=True):
                group["lr"] = rate * share
            for lesson in step:
                loss = reader.loss(lesson)
                (loss / len(step)).backward()
                total += loss.item()
            nn.utils.clip_grad_norm_([*adapters, *heads], 1.0)
            optimizer.step()
            optimizer.zero_grad()
        with atomic_file(state) as file:
            torch.save({"tensors": reader.tensors(), "optimizer": optimizer.state_dict(), "done": number + 1}, file)
        yield stage.name, epoch + 1, total / max(len(lessons), 1)
