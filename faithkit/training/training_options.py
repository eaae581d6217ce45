"""Hyperparameters of training as dataclasses, checked when they are built; the aim of a decision threshold.

An aim is f1, macro_f1, argmax, or precision>=0.9 with any number.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator

from faithkit.errors import UserError
from faithkit.settings.check import options
from faithkit.settings.types import (
    Hint,
    NonNegative,
    OneOf,
    OrNull,
    Positive,
    PositiveShare,
    Share,
    parse_target_precision,
)


def _known_aim(value: str) -> str:
    parse_target_precision(value)
    return value


# What a decision threshold is chosen for on validation.
Aim = Annotated[str, AfterValidator(_known_aim), Hint("use f1, macro_f1, argmax or precision>=0.9")]
TIMEOUT_SECONDS = 1800.0  # for which processes wait for each other

Options = TypeVar("Options")


@options("optimizer")
class OptimizerOptions:
    """The block `optimizer`.

    Args:
        lr: Peak learning rate.
        warmup: Share of the steps over which the rate rises to its peak.
        schedule: linear, cosine or constant (`faithkit.training.module`).
        floor: Share of the peak rate that the schedule ends at.
        layer_decay: Below 1, lower layers learn slower: a layer's rate is this share of the next one's.
        head_lr: The rate of a new head; None takes `lr`.
    """

    lr: Positive
    weight_decay: NonNegative
    warmup: Share
    schedule: Annotated[str, OneOf(("linear", "cosine", "constant"))]
    floor: Share = 0.0
    layer_decay: PositiveShare = 1.0
    head_lr: Annotated[Positive | None, OrNull("for optimizer.lr")] = None


def read_options(kind: type[Options], model: Mapping[str, Any]) -> Options:
    """Reads the options of a task from the block `model`.

    Args:
        kind: A dataclass; it takes the keys that it has fields for.
    """
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    values = {name: value for name, value in model.items() if name in known}
    required = {field.name for field in fields(kind) if field.default is MISSING}  # type: ignore[arg-type]
    if missing := required - values.keys():
        raise UserError(f"model.{min(missing)} is not set", hint=f"set model.{min(missing)}=...")
    return kind(**values)
