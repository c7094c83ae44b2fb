"""What a solver clips must be bounded."""

from __future__ import annotations

from diffusion_lab.data import ImageSource
from diffusion_lab.solvers import Solver


def clip_fault(solver: Solver, source: ImageSource) -> str | None:
    """The sentence for a solver that cuts x0 off at [-1, 1] where the data leave that range."""
    base = getattr(solver, "base", None)  # a solver around another one
    bounds = source.value_range
    bounded = bounds is not None and -1 <= bounds[0] and bounds[1] <= 1
    if bounded or not getattr(solver if base is None else base, "clip", False):
        return None
    key = "solver.clip" if base is None else "solver.base.clip"
    return f"{key}=true must be false with {source.name}, whose values leave the [-1, 1] it cuts to; use {key}=false"
