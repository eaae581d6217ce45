"""FSDP2: shards models, keeps the processes in step, and saves sharded checkpoints and loads those of any strategy."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from faithkit.fast import Packing, is_packed
from faithkit.training.checkpoints import read_checkpoint
from faithkit.training.sharded_checkpoints import read_into, write_sharded


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy for sharded models, with checkpoints that resume under any strategy and number of processes.

    A checkpoint with optimizer moments is a folder to which every process writes its shards. The weights alone
    (best.ckpt) are one file as in every other strategy, for which the first process gathers one tensor at a time.

    Args:
        num_processes: Over all nodes.
        timeout: For collective operations.
    """

    def __init__(self, num_processes: int, *, timeout: timedelta):
        # By default the strategy uses a node's devices for tensor parallelism, and shards nothing.
        super().__init__(data_parallel_size=num_processes, tensor_parallel_size=1, timeout=timeout)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Returns the state with parameter names instead of numbers, which a plain optimizer can load too."""
        assert self.lightning_module is not None
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        names = {parameter: name for name, parameter in self.lightning_module.named_parameters()}
        order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
        state = optimizer.state_dict()
        groups = [{**group, "params": [order[number] for number in group["params"]]} for group in state["param_groups"]]
        return {"state": {order[number]: value for number, value in state["state"].items()}, "param_groups": groups}

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Writes a sharded folder if there are optimizer moments, else one file.

        Args:
            storage_options: Where the previous checkpoint is kept; None keeps none.
        """
        if "optimizer_states" in checkpoint:
            write_sharded(Path(filepath), checkpoint, previous=storage_options)
            return
        whole = {}
        for name, value in checkpoint["state_dict"].items():
            gathered = value.full_tensor() if isinstance(value, DTensor) else value
            if self.is_global_zero:
                whole[name] = gathered.cpu()
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint({**checkpoint, "state_dict": whole}, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Loads weights and moments from a folder or a file, and returns the rest of the checkpoint."""
        assert self.lightning_module is not None
        path = Path(checkpoint_path)
        is_sharded = path.is_dir()
        stored = read_checkpoint(path, map_location="meta" if is_sharded else "cpu", mmap=True)
        state = self.lightning_module.state_dict()
        saved = stored.pop("state_dict").items()  # a folder's tensors are read directly into the model's shards
        weights = {name: state[name] if is_sharded else _placed(value, state[name]) for name, value in saved}
        optimizers = []
        for kept, optimizer in zip(stored.pop("optimizer_states"), self.optimizers, strict=True):
            # Moments are sharded like their parameters, which are matched by order, as in `load_state_dict`.
            keys = [key for group in kept["param_groups"] for key in group["params"]]
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            like = dict(zip(keys, parameters, strict=True))
            moments = {
                key: {n: _placed(v, like[key]) if isinstance(v, Tensor) else v for n, v in values.items()}
                for key, values in kept["state"].items()
            }
            optimizers.append({**kept, "state": moments})
        if is_sharded:
            read_into(path, {"state_dict": weights, "optimizer_states": optimizers})
        self.lightning_module.load_state_dict(weights, strict=self.lightning_module.strict_loading)
        for state, optimizer in zip(optimizers, self.optimizers, strict=True):
            optimizer.load_state_dict(state)
        return stored


def _placed(value: Tensor, like: Tensor) -> Tensor:
    """Shards a whole tensor like another one; a meta tensor becomes an empty tensor to fill.

    A tensor with another shape than its parameter, such as the step count, stays whole in every process.
    """
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return torch.empty_like(value, device="cpu") if value.is_meta else value
    if value.is_meta:
        return torch.empty_like(like, dtype=value.dtype, requires_grad=False)
    # Every process has read the file and takes its shard of it: nothing is sent.
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def shard(model: nn.Module, strategy: Any, *, precision: str = "32-true") -> None:
    """Shards a model, first every layer and then the rest, and fills it with the weights of the first process.

    The models of the other processes may be empty (on the meta device). No process but the first ever holds more than
    its shards and one whole layer.

    Args:
        strategy: The `ShardedStrategy`.
        precision: bf16-mixed gathers the layers' parameters in BF16, as autocast reads them; norms, embeddings and head
            are gathered in fp32, and shards and sums of gradients are fp32.
    """
    if isinstance(model, FSDPModule):
        return  # Lightning calls `configure_model` again before testing
    _tie_as_first(model, strategy.root_device)
    mesh, policy = strategy.device_mesh["data_parallel"], MixedPrecisionPolicy()
    if precision == "bf16-mixed":  # autocast, and not FSDP, chooses the types of the layers' inputs
        policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in list(_layers(model)):
        _receive(layer, strategy.root_device)
        if precision == "bf16-mixed":
            for norm in [one for one in layer.modules() if "Norm" in type(one).__name__ and one is not layer]:
                fully_shard(norm, mesh=mesh)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    _receive(model, strategy.root_device)
    fully_shard(model, mesh=mesh)


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """Finds the members of the outermost module lists: a T5 layer contains a list itself."""
    for child in module.children():
        yield from child if isinstance(child, nn.ModuleList) else _layers(child)


def _tie_as_first(model: nn.Module, device: torch.device) -> None:
    """Ties the parameters that the first process has tied, and no others: by its configuration T5 is always tied."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    ties = [list(names.values())]
    dist.broadcast_object_list(ties, src=0, device=device)
    used: set[int] = set()
    for group in ties[0]:
        parameter = model.get_parameter(group[0])
        if id(parameter) in used:
            parameter = nn.Parameter(torch.empty_like(parameter), parameter.requires_grad)
        used.add(id(parameter))
        for name in group:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, parameter)


def _receive(module: nn.Module, device: torch.device) -> None:
    """Moves the tensors that are not sharded yet to the device, with the values of the first process."""
    known: dict[int, tuple[Tensor, Tensor]] = {}  # by id, which is unique while the old tensor is kept; tied ones once
    for part in module.modules():
        for name, old in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            if isinstance(old, DTensor):
                continue
            if id(old) not in known:
                new = old
                if old.is_meta:
                    new = torch.empty_like(old, device=device, memory_format=torch.contiguous_format)
                    new = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
                else:
                    old.data = old.data.to(device).contiguous()
                dist.broadcast(new.data, src=0)
                known[id(old)] = old, new
            setattr(part, name, known[id(old)][1])


@contextmanager
def in_step(model: Any) -> Iterator[None]:
    """Lets every process run a sharded model as often as it needs to.

    Each forward pass gathers the parameters from all processes. One that has left the context runs a token through the
    model for each pass of the others, until all have left it.
    """
    device = next(model.parameters()).device

    def any_works(works: bool) -> bool:
        working = torch.tensor(float(works), device=device)
        dist.all_reduce(working)
        return bool(working)

    hook = model.register_forward_pre_hook(lambda *_: any_works(True) and None, prepend=True)  # before the gathering
    try:
        yield
    finally:
        hook.remove()
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    inputs: dict[str, Any] = {"input_ids": token}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = token
    if is_packed(model):
        inputs["packing"] = Packing.of([1], device)
    with torch.no_grad():
        while any_works(False):
            model(**inputs)
