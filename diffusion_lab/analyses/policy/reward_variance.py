"""The variance of learned Beta's reward that is due to the noise in its estimate.

The reward of image i for an update from theta_k to theta_{k+1}, in bits per dimension, is

    R_i = sum_{tau in S} c_tau (E_tau(theta_k, x0_i) - E_tau(theta_{k+1}, x0_i))

with the native losses E and the weights c_tau of the variational bound. The reward of an update should not depend on
the noise, so the variance of R_i over noises is that of the estimator. The released code uses fresh noise before and
after the update and dropout; `sampler=learned_beta` uses common noise and no dropout.

Reference: Kim et al., "Adaptive Non-uniform Timestep Sampling for Accelerating Diffusion Model Training", CVPR 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.images import weights_of_bound
from diffusion_lab.arguments import check_integer
from diffusion_lab.data.pixels import to_float
from diffusion_lab.plotting import line_style, log_axis, panels
from diffusion_lab.training import DenoiserProbe, TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.streams import Streams

ESTIMATORS = {  # name: (common noise before and after, dropout on)
    "fresh noise, dropout (released)": (False, True),
    "fresh noise": (False, False),
    "common noise, dropout": (True, True),
    "common noise (learned_beta)": (True, False),
}


class RewardVariance(Analysis):
    """Standard deviation over noises of four estimators of the reward, at each set S of timesteps.

    `data.npz` has rewards (|sets|,4,noises,images). The images are of the training split. The network is given no
    conditions, so the runs must be unconditional.

    Args:
        selected: the sets S, each a list of timesteps in 0..T-1.
        images: number of training images.
        noises: number of noises, at least 2.

    Raises:
        ValueError: a number out of range; from `check`, models that are not the two before and after one update, or
            whose prediction has several heads.
    """

    def __init__(self, selected: Sequence[Sequence[int]], images: int = 32, noises: int = 64) -> None:
        if not selected or not all(selected):
            raise ValueError(f"selected={selected} must be lists of timesteps; use [[0,1,2],[50]]")
        self.selected = [[check_integer("selected", t, 0, "use [[0,1,2],[50]]") for t in some] for some in selected]
        self.images = check_integer("images", images, 1, "use 32")
        self.noises = check_integer("noises", noises, 2, "use 64; a variance needs two")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        cure = "use checkpoint=step-00000400,last weights=raw for steps 400 and 401"
        if len(trained) != 2 or len({model.folder for model in trained}) > 1 or trained[0].step >= trained[1].step:
            seen = ",".join(f"{model.name}:{model.step}" for model in trained)
            raise ValueError(f"checkpoint={seen} must be one run before and after an update; {cure}")
        if any(model.decay is not None for model in trained):
            raise ValueError(f"weights=ema must be raw, because an update changes the weights and no average; {cure}")
        last, steps = max(map(max, self.selected)), trained[0].denoiser.num_timesteps
        if last >= steps:
            raise ValueError(
                f"analysis.selected={self.selected} must be timesteps below {steps} here; leave {last} out"
            )
        if trained[0].data.conditions.names:
            name = trained[0].name
            raise ValueError(f"run={name} must be an unconditional model; use one with dataset.conditional=false")
        weights_of_bound(trained[0])

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        x0 = to_float(trained[0].data.reference("train", self.images)).to(work.device)

        def one(*selected: int) -> Mapping[str, np.ndarray]:
            torch.manual_seed(work.streams.seed)  # for dropout
            how = ESTIMATORS.values()
            return {"rewards": np.stack([self._rewards(trained, x0, selected, work.streams, *each) for each in how])}

        pieces = work.map("rewards", one, [tuple(some) for some in self.selected])
        rewards = np.stack([piece["rewards"] for piece in pieces])
        variance = rewards.var(2, ddof=1).mean(2)
        facts = {
            "steps": [model.step for model in trained],
            "selected": self.selected,
            "estimators": list(ESTIMATORS),
            "images": rewards.shape[3],
            "noises": self.noises,
            "units": "bits/dim",
            "mean": rewards.mean((2, 3)).tolist(),
            "standard_deviation": np.sqrt(variance).tolist(),
            "first_over_each": [[_ratio(row[0], value) for value in row] for row in variance],
        }
        return Result({"rewards": rewards}, facts)

    def _rewards(
        self,
        trained: Sequence[TrainedDiffusion],
        x0: Tensor,
        selected: Sequence[int],
        streams: Streams,
        common: bool,
        dropout: bool,
    ) -> np.ndarray:
        """(noises, images): the rewards by one estimator."""
        pairs = x0.repeat_interleave(len(selected), 0)
        t = torch.tensor(selected, device=x0.device).repeat(len(x0))
        index = torch.arange(len(pairs), device=x0.device)
        c = weights_of_bound(trained[0]).to(x0.device)[t]

        def loss(model: TrainedDiffusion, seed: int) -> Tensor:
            model.denoiser.train(dropout)
            probe = DenoiserProbe(model.denoiser, streams)
            native = probe.pairs(pairs, t, index, len(pairs), seed, keep_mode=dropout)
            model.denoiser.eval()
            return (c * native.double()).view(len(x0), len(selected)).sum(1)

        before, after = trained
        rewards = [loss(before, 2 * k) - loss(after, 2 * k + (not common)) for k in range(self.noises)]
        return torch.stack(rewards).cpu().numpy()

    def figure(self, result: Result) -> Figure:
        facts: dict[str, Any] = result.facts
        figure, (axis,) = panels(1, height=3.4)
        places = np.arange(len(facts["selected"]))
        for e, name in enumerate(facts["estimators"]):
            height = [row[e] for row in facts["standard_deviation"]]
            axis.bar(places + 0.2 * (e - 1.5), height, width=0.18, color=line_style(e).color, label=name)
        log_axis(axis)
        axis.set_xticks(places, ["S = {" + ", ".join(map(str, some)) + "}" for some in facts["selected"]])
        axis.set_ylabel(f"standard deviation, {facts['units']}")
        steps = " to ".join(map(str, facts["steps"]))
        axis.set_title(
            f"reward of the update from step {steps}: over {facts['noises']} noises, root mean square over "
            f"{facts['images']} images"
        )
        axis.legend(loc="upper right")
        return figure

    def sentence(self, result: Result) -> str:
        facts: dict[str, Any] = result.facts
        ratios = [row[-1] for row in facts["first_over_each"]]
        pairs = zip(facts["standard_deviation"], facts["mean"], strict=True)
        signal = [_ratio(deviation[0], abs(mean[-1])) for deviation, mean in pairs]
        return (
            f"With common noise and no dropout the variance of the reward is {_range(ratios)} times smaller than with "
            f"the released estimator, whose standard deviation is {_range(signal)} times the mean reward."
        )


def _ratio(a: float, b: float) -> float | None:
    """a / b; None if b is 0."""
    return float(a / b) if b else None


def _range(values: Sequence[float | None]) -> str:
    finite = [value for value in values if value is not None]
    if not finite:
        return "infinitely many"
    low, high = (f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for value in (min(finite), max(finite)))
    return low if low == high else f"{low} to {high}"
