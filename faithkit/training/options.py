"""Hyperparameters as one dataclass a block of the configuration, checked when it is built."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from faithkit.errors import UserError

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOptions:
    """The block `optimizer`.

    Args:
        lr: Peak learning rate.
        warmup: Share of the steps over which the rate rises to its peak.
        schedule: linear, cosine or constant (`faithkit.training.optimizer`, which checks it and the rate).
        floor: Share of the peak rate that the schedule ends at.
        layer_decay: Below 1, lower layers learn slower: a layer's rate is this share of the next one's.
        head_lr: A rate of its own for a new head; None takes `lr`.
    """

    lr: float
    weight_decay: float
    warmup: float
    schedule: str
    floor: float = 0.0
    layer_decay: float = 1.0
    head_lr: float | None = None

    def __post_init__(self) -> None:
        check(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "use 0 (off) or more")
        check(0 <= self.warmup <= 1, "optimizer.warmup", self.warmup, "use a share of the steps, from 0 to 1")
        check(0 < self.layer_decay <= 1, "optimizer.layer_decay", self.layer_decay, "use a share above 0, at most 1")
        if self.head_lr is not None:
            check(self.head_lr > 0, "optimizer.head_lr", self.head_lr, "use a positive rate, or null for optimizer.lr")


def check(condition: bool, key: str, value: object, hint: str) -> None:
    """Raises a UserError that names the key of the configuration, unless the condition holds."""
    if not condition:
        raise UserError(f"{key} is {value}", hint=hint)


def read_options(kind: type[Options], model: Mapping[str, Any] | None, given: Mapping[str, Any]) -> Options:
    """The options of a task, from the `model` block and from the task's own block, which wins.

    Configurations of older runs name every option in the task's own block, and have no other.

    Args:
        kind: A dataclass; of the `model` block the keys that it knows are taken.
    """
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    needed = {f.name for f in fields(kind) if f.default is MISSING}  # type: ignore[arg-type]
    if unknown := given.keys() - known:
        hint = f"use {', '.join(sorted(known))}"
        raise UserError(f"model.task has no option {', '.join(sorted(unknown))}", hint=hint)
    values = {name: value for name, value in (model or {}).items() if name in known} | dict(given)
    if missing := needed - values.keys():
        raise UserError(f"model.{min(missing)} is not set", hint=f"set model.{min(missing)}=...")
    return kind(**values)
