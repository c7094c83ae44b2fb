"""How much of learned Beta's reward is noise of its own measurement.

The reward of image i is R_i = sum_{tau in S} c_tau (E_tau(theta_k, x0_i) - E_tau(theta_{k+1}, x0_i)): the same update,
looked at with many noises, should give one number. Its variance over noises is what the estimator adds.

    diffusion-lab train dataset=digits network=unet_tiny network.dropout=0.1 batch_size=128 optimizer.lr=2e-4 \\
        max_steps=400 checkpoint_every=400 keep_every=400 hydra.run.dir=runs/reward_variance
    diffusion-lab train resume=runs/reward_variance max_steps=401
    python experiments/adaptive_beta/reward_variance.py runs/reward_variance

compares the weights of steps 400 and 401: one real update, with the optimizer's own moments.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.load import Trained, load_run
from diffusion_lab.data.pixels import to_float
from diffusion_lab.diffusion import bound_weights
from diffusion_lab.streams import Streams
from diffusion_lab.training import DenoiserProbe

ESTIMATORS = {  # name: (common noise before and after, dropout on)
    "released: fresh noise, dropout": (False, True),
    "fresh noise, no dropout": (False, False),
    "common noise, dropout": (True, True),
    "learned_beta: common noise, no dropout": (True, False),
}


def rewards(before: Trained, after: Trained, images: int, noises: int, selected: list[int]) -> dict[str, Tensor]:
    """Name of the estimator -> (noises, images) rewards in bits per dimension."""
    x0 = to_float(before.data.reference("train", images))
    pairs, t = x0.repeat_interleave(len(selected), 0), torch.tensor(selected).repeat(images)
    denoiser = before.denoiser
    c = bound_weights(denoiser.schedule, denoiser.prediction, denoiser.variance)[t]

    def look(trained: Trained, seed: int, dropout: bool) -> Tensor:
        trained.denoiser.train(dropout)
        probe = DenoiserProbe(trained.denoiser, Streams(0))
        loss = probe.pairs(pairs, t, torch.arange(len(pairs)), len(pairs), seed, keep_mode=dropout)
        return (c * loss.double()).view(images, len(selected)).sum(1)

    torch.manual_seed(0)  # of dropout
    return {
        name: torch.stack(
            [look(before, 2 * seed, dropout) - look(after, 2 * seed + (not common), dropout) for seed in range(noises)]
        )
        for name, (common, dropout) in ESTIMATORS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", help="run folder with the two checkpoints")
    parser.add_argument("--before", default="step-00000400", help="checkpoint before the update (step-00000400)")
    parser.add_argument("--after", default="last", help="checkpoint after it (last)")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--noises", type=int, default=64)
    options = parser.parse_args()
    register_resolvers()
    before, after = (load_run(options.run, checkpoint, "raw") for checkpoint in (options.before, options.after))
    print(
        f"steps {before.step} and {after.step}, {options.images} images, {options.noises} noises; bits per dimension\n"
    )
    print("| S | estimator | mean reward | sd over noises | variance, released / this |")
    print("| --- | --- | ---: | ---: | ---: |")
    for selected in ([0, 1, 2], [50], [300], [700]):
        found = rewards(before, after, options.images, options.noises, selected)
        variance = {name: float(value.var(0).mean()) for name, value in found.items()}
        released = variance[next(iter(ESTIMATORS))]
        for name, value in found.items():
            print(
                f"| {selected} | {name} | {float(value.mean()):+.2e} | {variance[name] ** 0.5:.2e} "
                f"| {released / variance[name]:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
