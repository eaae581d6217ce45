"""FSDP2: the model in shards, layer by layer."""

from typing import Any

from torch import nn


def shard(model: nn.Module, device_mesh: Any) -> None:
    """Shards every encoder layer, then what is around them, over the data-parallel processes; once."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if isinstance(model, FSDPModule):
        return  # Lightning asks again before testing
    mesh = device_mesh["data_parallel"]
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
