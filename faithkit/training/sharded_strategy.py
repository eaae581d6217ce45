"""Training of a sharded model (FSDP2): its checkpoints, and how one of any strategy becomes its shards."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from faithkit.training.checkpoint_io import read_checkpoint
from faithkit.training.part_storage import read_into, write_parts


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy for sharded models, with checkpoints that go on under every strategy, at any size.

    What a training goes on from (weights and moments) is a folder: every process writes its own shards, and none ever
    holds the whole. The weights alone, of best.ckpt, are one file as everywhere: tests and the export need the whole
    model in any case.

    Args:
        num_processes: Over all nodes.
        timeout: That they wait for each other.
    """

    def __init__(self, num_processes: int, *, timeout: timedelta):
        # By default the strategy uses a node's devices for tensor parallelism, and would shard nothing.
        super().__init__(data_parallel_size=num_processes, tensor_parallel_size=1, timeout=timeout)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Gives the state with the parameters' names in place of numbers, which a plain optimizer loads as well."""
        assert self.lightning_module is not None
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        names = {parameter: name for name, parameter in self.lightning_module.named_parameters()}
        own = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
        state = optimizer.state_dict()
        groups = [{**group, "params": [own[number] for number in group["params"]]} for group in state["param_groups"]]
        return {"state": {own[number]: value for number, value in state["state"].items()}, "param_groups": groups}

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Writes parts where there are moments, and one file of weights alone.

        Args:
            storage_options: The name that the checkpoint of before gets; None leaves it none.
        """
        if "optimizer_states" in checkpoint:
            write_parts(Path(filepath), checkpoint, previous=storage_options)
            return
        whole = {}
        for name, value in checkpoint["state_dict"].items():
            gathered = value.full_tensor() if isinstance(value, DTensor) else value
            if self.is_global_zero:
                whole[name] = gathered.cpu()
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint({**checkpoint, "state_dict": whole}, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Loads weights and moments, of parts or of one file, and gives the rest of the checkpoint."""
        assert self.lightning_module is not None
        path = Path(checkpoint_path)
        is_divided = path.is_dir()
        stored = dict(read_checkpoint(path, map_location="meta" if is_divided else "cpu", mmap=True))
        own = self.lightning_module.state_dict()
        given = stored.pop("state_dict").items()  # of parts these go into the model's own shards, without a copy
        weights = {name: own[name] if is_divided else _placed(value, own[name]) for name, value in given}
        pairs = zip(stored.pop("optimizer_states"), self.optimizers, strict=True)
        optimizers = [_moments_placed(state, optimizer) for state, optimizer in pairs]
        if is_divided:
            read_into(path, {"state_dict": weights, "optimizer_states": optimizers})
        self.lightning_module.load_state_dict(weights, strict=self.lightning_module.strict_loading)
        for state, optimizer in zip(optimizers, self.optimizers, strict=True):
            optimizer.load_state_dict(state)
        return stored


def _moments_placed(state: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """Places the moments beside their parameters, which are known by their order, as `load_state_dict` knows them."""
    keys = [key for group in state["param_groups"] for key in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    beside = dict(zip(keys, parameters, strict=True))
    moments = {
        key: {n: _placed(v, beside[key]) if isinstance(v, Tensor) else v for n, v in values.items()}
        for key, values in state["state"].items()
    }
    return {**state, "state": moments}


def _placed(value: Tensor, like: Tensor) -> Tensor:
    """Shards a whole tensor as another one is; of a shape alone it gives a tensor to fill.

    One that has another shape than its parameter, as the number of steps, is whole in every process.
    """
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return torch.empty_like(value, device="cpu") if value.is_meta else value
    if value.is_meta:
        return torch.empty_like(like, dtype=value.dtype, requires_grad=False)
    # Every process has the file, and takes its own part of it: nothing is sent.
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
