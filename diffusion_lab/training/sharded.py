"""Sharding of weights, gradients, averages and Adam's moments over the processes, for networks too large for one GPU.

    each process keeps 1/W of every tensor; a block's weights are gathered before its forward and its backward pass
    and dropped after it, and its gradients are summed into the parts

(Zhao et al., "PyTorch FSDP", arXiv 2304.11277; `torch.distributed.fsdp.fully_shard`.) The results are those of
`trainer=ddp` up to rounding, and the checkpoints are the same files: tensors are gathered when a checkpoint is written
and cut when it is read, so a run can continue with any number of processes, sharded or not.

Differs from Lightning's `FSDPStrategy` and `ModelParallelStrategy`: gradients are clipped by their norm, which the
first refuses, files are written by the run's own `CheckpointIO`, which the second bypasses, and it runs on a CPU, where
it is tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map


class ShardedStrategy(DDPStrategy):
    """Lightning strategy: as DDP, but each process keeps a part of every weight.

    The network's blocks (the modules in its `nn.ModuleList`s) are gathered one at a time, the rest together.

    Args:
        start_method: "popen", or "fork" in a program that must not run its own command line again.
    """

    def __init__(self, start_method: Literal["popen", "fork"] = "popen") -> None:
        super().__init__(start_method=start_method)

    def setup(self, trainer: Trainer) -> None:
        assert self.accelerator is not None and self.model is not None
        if self._start_method == "fork":
            # After a fork the first call creates the thread pool; gloo's threads must not do so at the same time.
            torch.set_num_threads(torch.get_num_threads())
        self.accelerator.setup(trainer)
        self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        self.model.to(memory_format=torch.contiguous_format)  # the only layout that can be sharded
        shard(self.model)
        # A hook, because Lightning also calls the module's own state_dict when forked processes return their results.
        self.model.register_state_dict_post_hook(_gather)
        self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        return whole(super().optimizer_state(optimizer))

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            state = {i: {key: cut(v, parameters[i]) for key, v in of.items()} for i, of in saved["state"].items()}
            optimizer.load_state_dict({**saved, "state": state})

    def teardown(self) -> None:
        """Leave the weights sharded: gathering them would wait for a process that may have ended."""
        assert self.cluster_environment is not None and self.accelerator is not None
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        self.checkpoint_io.teardown()


def shard(module: nn.Module) -> None:
    """Shard the parameters of the denoiser's network, of a learned weighting and of auxiliary losses over all
    processes, in place.

    Raises:
        ValueError: a parameter lies elsewhere, so its gradients would not be summed over the processes.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = next(module.parameters()).device.type
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    network, added = cast(Any, module).denoiser.network, cast(Any, module).auxiliary.values()
    lists = [part for part in network.modules() if isinstance(part, nn.ModuleList)]
    blocks = [block for of in reversed(lists) for block in of if type(block).forward is not nn.Module.forward]
    for part in (*blocks, network, cast(Any, module).weighting, *added):  # inner modules first
        if any(True for _ in part.parameters()):
            fully_shard(part, mesh=mesh)
    left = [name for name, p in module.named_parameters() if not isinstance(p, DTensor)]
    if left:
        raise ValueError(f"trainer.strategy=ShardedStrategy must find no weights outside the network, and {left[0]} is")


def _gather(module: nn.Module, state: dict[str, Any], *_: Any) -> None:
    state.update(whole(dict(state)))


def whole(state: Any) -> Any:
    """The same containers with all sharded tensors gathered. Must be called on all processes.

    Tensors are gathered one after the other and moved to the host, because the whole network need not fit on a GPU.
    """
    return tree_map(lambda value: value.full_tensor().cpu() if isinstance(value, DTensor) else value, state)


def local(value: Tensor) -> Tensor:
    """This process's part of a sharded tensor; any other tensor unchanged."""
    return value.to_local() if isinstance(value, DTensor) else value


def locals_of(values: Iterable[Tensor]) -> list[Tensor]:
    """`local` of each, without a call for each of a network's many weights."""
    return [value.to_local() if isinstance(value, DTensor) else value for value in values]


def cut(value: Any, like: Tensor) -> Any:
    """This process's part of a tensor, sharded like the parameter `like`; any value of another shape unchanged."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


@contextmanager
def gathered(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Keep all weights on every process inside, so that processes may call the network a different number of times."""
    from torch.distributed.fsdp import FSDPModule

    parts = [part for part in modules if isinstance(part, FSDPModule)]
    inner = [part for part in parts if any(part is not outer and part in outer.modules() for outer in parts)]
    for part in parts:
        part.unshard()
    for part in inner:  # an outermost module keeps its weights after the forward pass by default
        part.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for part in inner:
            part.set_reshard_after_forward(True, recurse=False)
        for part in parts:
            part.reshard()
