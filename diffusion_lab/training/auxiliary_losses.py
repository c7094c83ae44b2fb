"""The auxiliary losses of a run, and what the layers that they name return in a training step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from diffusion_lab.arguments import check_made
from diffusion_lab.auxiliary import Auxiliary
from diffusion_lab.diffusion import Step, TrainingNoise
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.failure import Failure, WrongResult
from diffusion_lab.networks.checks import layer_fault
from diffusion_lab.streams import Streams
from diffusion_lab.training.run_module import RunModule
from diffusion_lab.training.sharded import local


def accumulation_faults(
    accumulate: int, parts: Mapping[str, Auxiliary | TrainingNoise | type[RunModule] | None]
) -> Iterator[str]:
    """The message for each part, by its path, that compares the rows of an update: with microbatches they are not there
    at once."""
    for path, part in parts.items():
        of_batch = part.uses_images if isinstance(part, TrainingNoise) else part is not None and part.of_batch
        if accumulate > 1 and of_batch:
            kind, other = (part, "diffusion") if isinstance(part, type) else (type(part), "null")
            yield (
                f"accumulate={accumulate} must be 1 with {path}={kind.__name__}, which compares the rows of the whole "
                f"batch; use accumulate=1 and more devices, a smaller batch_size, or {path}={other}"
            )


def single_row_faults(batch_size: int, losses: Mapping[str, Auxiliary]) -> Iterator[str]:
    """The message for each loss, by its path, that would compare the only row of the batch with itself."""
    for path, loss in losses.items():
        if loss.of_batch and batch_size < 2:
            kind = type(loss).__name__
            yield (
                f"batch_size={batch_size} must be at least 2 with {path}={kind}, which compares the rows of the batch; "
                f"use e.g. 64, or {path}=null"
            )


class AuxiliaryLosses(nn.ModuleDict):
    """name -> `Auxiliary`. What the layers return is kept only inside `watching`: the hooks do nothing in evaluations,
    nor where activations are computed again in the backward pass.

    Args:
        losses: in the order in which they are added.
        network: whose layers they name; not yet compiled.

    Raises:
        ValueError: a layer does not exist, or a value is no auxiliary loss.
    """

    def __init__(self, losses: Mapping[str, Auxiliary], network: nn.Module) -> None:
        super().__init__()
        self._open, self._kept = False, {}
        for name, loss in losses.items():
            self[name] = check_made(f"auxiliary.{name}", loss, Auxiliary, "use one such as Dispersive(layers=[...])")
            for layer in loss.layers:
                if fault := layer_fault(network, layer, f"auxiliary.{name}.layers"):
                    raise ValueError(fault)
        self._layers = list(dict.fromkeys(layer for loss in self.losses.values() for layer in loss.layers))
        for layer in self._layers:
            network.get_submodule(layer).register_forward_hook(self._keeps(layer))

    @property
    def losses(self) -> dict[str, Auxiliary]:
        return dict(self.items())  # pyright: ignore[reportReturnType]

    @property
    def features(self) -> Mapping[str, Tensor]:
        """Layer -> its result in the network's last call inside `watching`."""
        missing = [layer for layer in self._layers if layer not in self._kept]
        if missing:
            raise Failure(
                f"layers={missing[0]} must be called in a training step, and the network did not call it; name another "
                "layer of the auxiliary loss"
            )
        return self._kept

    @property
    def unbuilt(self) -> dict[str, Auxiliary]:
        """Those that must be given what their layers return, in `build`, before training."""
        return {name: loss for name, loss in self.losses.items() if type(loss).build is not Auxiliary.build}

    def build(self, network: nn.Module, x0: Tensor, cond: Mapping[str, Tensor], streams: Streams) -> None:
        """Let the `unbuilt` losses make the weights whose shapes follow from the layers', by one image with conditions.

        The network is called on the meta device, which costs nothing, and a loss's weights are a function of the seed
        and its name.
        """
        weights = {name: value.to("meta") for name, value in (*network.named_parameters(), *network.named_buffers())}
        t = torch.zeros(len(x0), dtype=torch.int64, device="meta")
        with self.watching(), eval_mode(network), torch.no_grad():
            meta = {name: value.to("meta") for name, value in cond.items()}
            functional_call(network, weights, (x0.to("meta"), t), meta)
        with torch.random.fork_rng(devices=[]):
            for name, loss in self.unbuilt.items():
                torch.manual_seed(streams.key(f"init-{name}"))
                loss.build(self.features, x0)

    def watching(self) -> AbstractContextManager[None]:
        """Keep the results of the network's calls inside."""
        return self._watching() if self._layers else nullcontext()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self._open, self._kept = True, {}
        try:
            yield
        finally:
            self._open = False

    def rows(self, step: Step) -> dict[str, Tensor]:
        """name -> (b,) of the losses that have a weight in this step."""
        k = step.position.step
        found = {name: loss(step) for name, loss in self.losses.items() if loss.weight_at(k)}
        self._kept = {}
        return found

    def total(self, rows: Mapping[str, Tensor], step: int) -> Tensor | float:
        """() the sum of the means of `rows`, weighted as at this step.

        Weights of losses that have ended get the gradient 0: several processes wait for one of each.
        """
        total: Tensor | float = 0.0
        for name, loss in self.losses.items():
            if name in rows:
                total = total + loss.weight_at(step) * rows[name].mean()
            else:
                total = total + sum(0.0 * local(p).sum() for p in loss.parameters() if p.requires_grad)
        return total

    def _keeps(self, name: str) -> Any:
        def keep(layer: nn.Module, inputs: Any, result: Any) -> None:
            if self._open:
                if not isinstance(result, Tensor):
                    raise WrongResult.of(layer, "forward", "a tensor, because an auxiliary loss asks for it", result)
                self._kept[name] = result

        return keep
