"""Solvers: sampling loops from noise to images along a denoiser's timesteps; around another solver; in one call."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_flag, check_made
from diffusion_lab.diffusion import Denoiser, NoiseSchedule
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.progress import progress as shown
from diffusion_lab.solvers.spacing import Spacing, Steps, Trailing, check_falling, parse_counts

Noise = Callable[[int, Tensor], Tensor]
Bar = Callable[[int], Iterator[int]]  # range(n) whose progress is shown


class Solver(ABC):
    """images = solver(denoiser, x_T, noise=noise, **cond).

    The result is a function of the arguments: all random numbers come from x_T and `noise`. The network runs in eval
    mode and without gradients; its mode is restored afterwards. A subclass defines `solve`.

    Attributes:
        needs_null_label: whether it needs a model that was trained with label dropout.
    """

    needs_null_label: bool = False
    steps: Any

    @abstractmethod
    def solve(self, denoiser: Any, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        """The sampling loop, over bar(number of iterations)."""

    def start_shape(self, model: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one x_T, for images of the given shape (C,H,W); by default the same."""
        return shape

    @abstractmethod
    def describe(self) -> str:
        """All settings in one word, for the protocol of an evaluation, e.g. "ddim-50-eta0"."""

    @abstractmethod
    def check(self, schedule: NoiseSchedule) -> None:
        """Raise the errors that sampling with this schedule would raise.

        Raises:
            ValueError: the steps do not fit the schedule.
        """

    def check_model(self, denoiser: Denoiser) -> None:  # noqa: B027 most solvers sample every model
        """Raise the errors that sampling this model would raise, beside those of `check`.

        Raises:
            ValueError: the solver needs something else of the model.
        """

    def clip_fault(self, key: str, data: str, bounds: tuple[float, float] | None) -> str | None:
        """The message for a solver that clips x0 to [-1, 1], its argument `clip`, where the data leave that range.

        Args:
            key: of the solver.
            data: name of the data set.
            bounds: smallest and largest value of its images; None if they are not bounded.
        """
        return clip_fault(key, data, bounds) if getattr(self, "clip", False) else None

    def counted(self, model: Denoiser) -> Solver:
        """This solver with `model`, which counts its calls, in place of every model of its own; see `network_calls`."""
        return self

    def with_steps(self, steps: Steps) -> Solver:
        """A copy with other `steps`.

        Raises:
            ValueError: they are invalid for this solver.
        """
        solver = copy.copy(self)
        solver.steps = check_steps(steps)
        return solver

    def __call__(
        self, denoiser: nn.Module, x_T: Tensor, *, noise: Noise, progress: bool = False, **cond: Tensor
    ) -> Tensor:
        """Sample images.

        Args:
            denoiser: the model, on the device of x_T; for `OneCall` a generator.
            x_T: (B,C,H,W) standard normal, or (B, *start_shape).
            noise: noise(k, like) -> standard normal of the shape, dtype and device of `like` for iteration k of the
                loop, 0 the noisiest. Not called by deterministic steps.
            progress: whether to show it.
            **cond: passed to every network call.

        Returns:
            (B,C,H,W) of x_T's dtype.
        """

        def bar(iterations: int) -> Iterator[int]:
            with shown(f"sampling {len(x_T)} images", iterations, "solver steps", show=progress) as task:
                for k in range(iterations):
                    yield k
                    task.advance()

        with eval_mode(denoiser), torch.inference_mode():
            model = denoiser.sampling() if isinstance(denoiser, Denoiser) else denoiser
            x = self.solve(model, x_T, noise, bar, cond)
        return x.clone()  # not an inference tensor, so that autograd may use it


def clip_fault(key: str, data: str, bounds: tuple[float, float] | None) -> str | None:
    """The message for what clips x0 to [-1, 1], where the data leave that range; see `Solver.clip_fault`."""
    if bounds is not None and -1 <= bounds[0] and bounds[1] <= 1:
        return None
    return f"{key}.clip=true must be false with {data}, whose values leave the [-1, 1] it cuts to; use {key}.clip=false"


def check_steps(steps: Steps | None) -> Steps | None:
    """`steps` if it is valid for `space_timesteps`, or None for all timesteps.

    Raises:
        ValueError: it is invalid.
    """
    if steps is not None:
        parse_counts(steps)
    return steps


def describe_steps(steps: Steps | None) -> str:
    """ "full", "250", "ddim50" or "10,15,20"."""
    if steps is None:
        return "full"
    return ",".join(str(count) for count in steps) if isinstance(steps, list) else str(steps)


class Spaced(Solver, ABC):
    """Solvers of the timesteps that a spacing keeps.

    Args:
        steps: how many, or a form of `space_timesteps` that the spacing takes; None for all, or those it lists.
        spacing: which timesteps; None is `Trailing()`.
        clip: whether the estimate of x0 is clipped to [-1, 1]; None for a solver that has no such choice.
    """

    def __init__(self, steps: Steps | None, spacing: Spacing | None, clip: bool | None = None) -> None:
        self.steps = check_steps(steps)
        self.spacing = Trailing() if spacing is None else spacing
        if clip is not None:
            self.clip = check_flag("clip", clip, "use true for images in [-1, 1], false for latents")

    def check(self, schedule: NoiseSchedule) -> None:
        self.indices(schedule)

    def indices(self, schedule: NoiseSchedule) -> Tensor:
        """Timesteps (N,) int64 on the CPU, falling.

        Raises:
            ValueError: the steps do not fit the schedule.
        """
        return check_falling(self.spacing.indices(schedule, self.steps), schedule.num_timesteps, "spacing")


class Around(Solver, ABC):
    """The sampling loop of another solver on a model that is made of the one given; a subclass defines `model`.

    Args:
        base: the solver whose loop it is.
        steps: replaces the steps of the base; None keeps them.
    """

    def __init__(self, base: Solver, steps: Steps | None = None) -> None:
        check_made("base", base, Solver, "use one such as DDIM(steps=50)")
        self.base = base if steps is None else base.with_steps(steps)
        self.needs_null_label = self.needs_null_label or base.needs_null_label

    @abstractmethod
    def model(self, denoiser: Denoiser) -> Denoiser:
        """What `base` samples."""

    def with_steps(self, steps: Steps) -> Self:
        solver = copy.copy(self)
        solver.base = self.base.with_steps(steps)
        return solver

    def clip_fault(self, key: str, data: str, bounds: tuple[float, float] | None) -> str | None:
        return self.base.clip_fault(f"{key}.base", data, bounds)

    def counted(self, model: Denoiser) -> Self:
        solver = copy.copy(self)
        solver.base = self.base.counted(model)
        return solver

    def check(self, schedule: NoiseSchedule) -> None:
        self.base.check(schedule)

    def check_model(self, denoiser: Denoiser) -> None:
        self.base.check_model(denoiser)

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        return self.base.solve(self.model(denoiser), x_T, noise, bar, cond)


class OneCall(Solver):
    """images = generator(z), with z standard normal: for the generator of a GAN."""

    steps: Any = None

    def start_shape(self, model: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (model.latent_dim,)

    def solve(self, denoiser: nn.Module, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        return denoiser(x_T, **cond)

    def describe(self) -> str:
        return "one-call"

    def check(self, schedule: NoiseSchedule) -> None:
        """Raise ValueError: a diffusion model cannot be sampled in one call."""
        raise ValueError("_target_=OneCall must be a solver of timesteps for a diffusion model; use solver=ddim")


def network_calls(solver: Solver, denoiser: Denoiser) -> int:
    """Network calls of one row each for one sample: the solver runs once on one pixel, with a network of zeros.

    Those of a second model count like the first one's.

    Args:
        solver: how to sample.
        denoiser: the model; its network is not called.
    """
    counter, device = _Counter(denoiser.prediction.heads + denoiser.variance.channels), denoiser.timesteps.device
    counted = denoiser.with_network(counter)
    counted.null_label = 1
    start, label = torch.zeros(1, 1, 1, 1, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    solver.counted(counted)(counted, start, noise=lambda k, like: torch.zeros_like(like), label=label)
    return counter.calls


class _Counter(nn.Module):
    """A replacement for the network that counts the rows of its calls."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.calls = channels, 0

    def forward(self, x: Tensor, t: Tensor, **cond: Tensor) -> Tensor:
        self.calls += len(x)
        return x.new_zeros(len(x), self.channels, *x.shape[2:])
