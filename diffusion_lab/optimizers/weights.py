"""The weights that an optimizer is given, and which of them are matrices of hidden layers."""

from __future__ import annotations

from torch import nn


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
        blocks = [*entries, *(part for part in module.modules() if isinstance(part, kinds))]
        layers = [layer for block in blocks for layer in block.modules() if isinstance(layer, nn.Linear)]
        # Not layer.weight: to read a spectrally normalized one is a step of its power iteration.
        matrices = {id(dict(layer.named_parameters(recurse=False)).get("weight")) for layer in layers}
        self.hidden = [weight for weight in self if id(weight) in matrices]
