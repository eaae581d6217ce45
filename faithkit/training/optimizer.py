"""AdamW and its learning rate schedule, for every model."""

import math
import re
from collections.abc import Iterable

import torch
from torch import nn


def parameter_groups(
    module: nn.Module, lr: float, weight_decay: float, *, layer_decay: float = 1.0, head_lr: float | None = None
) -> list[dict]:
    """Groups parameters by learning rate and by whether weight decay applies: not to biases and norms.

    Args:
        layer_decay: Each layer further from the output learns this much slower; 1 is the same rate everywhere.
        head_lr: The rate of the classification head, which starts untrained; None takes `lr`.
    """
    depth = 1 + max((_layer_of(name) or 0 for name, _ in module.named_parameters()), default=0)
    groups: dict[tuple[float, float], dict] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = lr * layer_decay ** (depth - _height(name, depth))
        if head_lr is not None and is_head(name):
            rate = head_lr
        decay = 0.0 if parameter.ndim < 2 else weight_decay
        group = groups.setdefault((rate, decay), {"params": [], "lr": rate, "weight_decay": decay})
        group["params"].append(parameter)
    return list(groups.values())


def _layer_of(name: str) -> int | None:
    found = re.search(r"\.(?:layer|layers|block|h)\.(\d+)\.", name)
    return int(found[1]) + 1 if found else None


def is_head(name: str) -> bool:
    """Whether a parameter belongs to the head on an encoder, the pooler included."""
    return bool(re.search(r"(^|\.)(classifier|score|pooler|head)\.", name))


def _height(name: str, depth: int) -> int:
    if is_head(name):
        return depth
    return _layer_of(name) or 0


def build_optimizer(groups: Iterable[dict], lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> torch.optim.AdamW:
    """Builds AdamW in its fused form: one pass over the parameters."""
    return torch.optim.AdamW(list(groups), lr=lr, betas=betas, fused=True)


def build_schedule(
    optimizer: torch.optim.Optimizer, kind: str, num_steps: int, warmup: float, floor: float = 0.0
) -> torch.optim.lr_scheduler.LambdaLR:
    """Warms up over a share of the steps, then decays (`linear`, `cosine`) to `floor` of the peak, or stays `constant`.

    transformers' schedules give other rates: their warm-up begins at 0, so that the first step would train nothing.
    """
    decays = {
        "linear": lambda progress: 1.0 - progress,
        "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
        "constant": lambda progress: 1.0,
    }
    num_warmup = math.ceil(warmup * num_steps)

    def factor(step: int) -> float:
        if step < num_warmup:
            return (step + 1) / num_warmup
        decay = decays[kind](min(1.0, (step - num_warmup) / max(1, num_steps - num_warmup)))
        return floor + (1.0 - floor) * decay

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
