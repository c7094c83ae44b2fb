"""What the data tell the network, what the network listens to, and what the solver asks of both must agree."""

from __future__ import annotations

import inspect

from torch import nn

from diffusion_lab.data import Conditions
from diffusion_lab.solvers import Solver


def condition_faults(network: nn.Module, conditions: Conditions) -> list[str]:
    """One sentence for each keyword that only one side knows."""
    name = type(network).__name__
    listens = dict(list(inspect.signature(network.forward).parameters.items())[2:])  # behind x and t
    if any(p.kind is p.VAR_KEYWORD for p in listens.values()):
        return []
    faults = []
    if "label" in conditions.names - listens.keys():
        faults.append(
            f"dataset.conditional=true must have a network that takes labels, and {name} takes none; set "
            "dataset.conditional=false or another network"
        )
    for key in sorted(conditions.names - listens.keys() - {"label"}):
        faults.append(
            f"task={type(conditions.task).__name__} must have a network that takes {key}, and {name} does not; use "
            "network=adm_sr_tiny, or task=image_generation"
        )
    needed = {key for key, p in listens.items() if p.default is p.empty}
    for key in sorted(needed - conditions.names):
        cure = "set dataset.conditional=true" if key == "label" else "use task=super_resolution"
        faults.append(f"network={name} must be given {key}, which this run has not; {cure} or another network")
    return faults


def guidance_fault(solver: Solver, conditions: Conditions) -> str | None:
    """The sentence for guidance of a model whose labels are never withheld."""
    if not solver.needs_null_label or conditions.label_dropout > 0:
        return None
    return (
        f"solver={type(solver).__name__} must have a model whose labels were withheld at times in training; train with "
        "dataset.conditional=true dataset.label_dropout=0.1, or use another solver"
    )
