"""Muon for the matrices of hidden layers, and AdamW for all other weights, as one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer


class Weights(list[nn.Parameter]):
    """All parameters of a module in its own order, as `module.parameters()`.

    A hidden matrix is the (out, in) weight of an `nn.Linear` inside a block. A block is an entry of one of the module's
    `nn.ModuleList`s, or of the same class as an entry, as the middle block of a U-ViT. What lies outside the blocks
    embeds the input, the timestep or the label, or is the output layer.

    Args:
        module: whose parameters they are.

    Attributes:
        hidden: the hidden matrices, in the same order.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module.parameters())
        entries = [entry for part in module.modules() if isinstance(part, nn.ModuleList) for entry in part]
        # PyTorch's own classes, e.g. `nn.Linear` or `nn.Sequential`, stand outside blocks too.
        kinds = tuple({type(entry) for entry in entries if not type(entry).__module__.startswith("torch.")})
        blocks = entries + [part for part in module.modules() if isinstance(part, kinds)]
        layers = [layer for block in blocks for layer in block.modules() if isinstance(layer, nn.Linear)]
        # Not layer.weight: to read a spectrally normalized one is a step of its power iteration.
        matrices = {id(dict(layer.named_parameters(recurse=False)).get("weight")) for layer in layers}
        self.hidden = [weight for weight in self if id(weight) in matrices]


class Muon(Optimizer):
    """`torch.optim.Muon` for hidden matrices W (A,B), `torch.optim.AdamW` for the rest, at one learning rate.

        M <- mu M + (1 - mu) G,     N = (1 - mu) G + mu M
        W <- (1 - lr lambda) W - lr 0.2 sqrt(max(A, B)) O(N)

    O(N) approximates the orthogonal factor U V^T of N = U S V^T by five Newton-Schulz steps in bfloat16, which leave
    its singular values within about 0.7 and 1.2 (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
    networks"). The factor 0.2 sqrt(max(A, B)) gives the update the root mean square of AdamW's, so both take the same
    learning rate and decay (Liu et al., "Muon is Scalable for LLM Training", arXiv 2502.16982, equation 4).

    Which weights are hidden matrices, `Weights` defines: those of linear layers inside the network's blocks. Biases,
    norms, embeddings, input and output layers are AdamW's, as Jordan et al. have it. Of `dit_tiny` Muon has 90 % of the
    weights, of `unet_tiny` 8 %. An annealing of beta1 moves mu too, which has the same place in M as beta1 in Adam's.

    Differs from Jordan et al., who flatten convolutions to matrices, because `torch.optim.Muon` accepts 2-D weights
    alone: a convolution is AdamW's.

    Args:
        params: `Weights`; of other parameters it is not known which are hidden, and AdamW has them all.
        lr: learning rate of both, >= 0; one fits both, as Muon's updates have the root mean square of AdamW's.
        momentum: mu in [0, 1).
        betas: AdamW's.
        eps: AdamW's.
        weight_decay: lambda of both, >= 0.
        fused: AdamW in one kernel, on a CPU 2.5 times as fast as PyTorch's default loop.

    Raises:
        ValueError: this PyTorch has no `torch.optim.Muon`.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 2e-4,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        fused: bool = False,
    ) -> None:
        muon = getattr(torch.optim, "Muon", None)
        if muon is None:
            raise ValueError(
                f"PyTorch must be 2.9 or later to have Muon, and is {torch.__version__}; use optimizer=adamw"
            )
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum={momentum} must lie in [0, 1); use 0.95 for the published setting")
        weights = list(params)
        hidden = params.hidden if isinstance(params, Weights) else []
        matrices = {id(weight) for weight in hidden}
        rest = [weight for weight in weights if id(weight) not in matrices]
        both: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        self._adam = AdamW([{"params": rest}], betas=(betas[0], betas[1]), eps=eps, fused=fused, **both)
        self._muon = muon([{"params": hidden}], momentum=momentum, adjust_lr_fn="match_rms_adamw", **both)
        groups = [*self._adam.param_groups, *self._muon.param_groups]
        super().__init__([{**group} for group in groups], self._adam.defaults)
        for group, keys in zip(self.param_groups, map(set, groups), strict=True):
            for key in group.keys() - keys:  # AdamW's defaults, which `Optimizer` has put into Muon's group
                del group[key]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all weights."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Here, because loading a state replaces both: the groups and the state are this optimizer's.
        for part, group in zip((self._adam, self._muon), self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state
            part.step()
        return loss
