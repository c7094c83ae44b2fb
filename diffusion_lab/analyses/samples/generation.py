"""Images that models generate in an analysis, and the check of their solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Work
from diffusion_lab.solvers import Solver
from diffusion_lab.training import Trained, TrainedModel


def check_solver(solver: Solver, trained: Sequence[TrainedModel]) -> None:
    """Raise unless every diffusion model can be sampled with the solver `analysis.solver`.

    Raises:
        ValueError: its steps do not fit a schedule, it needs label dropout, or it clips latents.
    """
    for model in trained:
        if not isinstance(model, Trained):
            continue
        try:
            solver.check(model.denoiser.schedule)
        except ValueError as error:
            raise ValueError(f"analysis.solver.{error}") from error
        if solver.needs_null_label and model.denoiser.null_label is None:
            raise ValueError(
                f"run={model.name} must be trained with label dropout for analysis.solver={type(solver).__name__}; use "
                "another solver"
            )
        source = model.data.source
        if getattr(solver, "clip", False) and source.pixels() is not source:
            raise ValueError(
                f"analysis.solver.clip=true must be false with {source.name}, whose latents leave the [-1, 1] it cuts "
                "to; use analysis.solver.clip=false"
            )


def samples_of(trained: Sequence[TrainedModel], count: int, batch_size: int, solver: Solver, work: Work) -> Tensor:
    """(M,count,C,H,W) uint8 of M models, from the same latents; `batch_size` images are a piece of work."""
    chunks = torch.arange(count).split(batch_size)

    def one(m: int, ids: Tensor) -> Mapping[str, np.ndarray]:
        return {"samples": trained[m].samples(ids.tolist(), work.streams.seed, solver, batch_size).numpy()}

    pieces = work.map("samples", one, [(m, ids) for m in range(len(trained)) for ids in chunks])
    return torch.from_numpy(np.concatenate([p["samples"] for p in pieces])).unflatten(0, (len(trained), count))
