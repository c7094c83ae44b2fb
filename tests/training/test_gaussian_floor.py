"""A trained model against the loss of the best possible one, which is known for Gaussian data.

For x0 ~ N(m, v I) the least eps-loss per dimension is  alpha^2 v / (alpha^2 v + sigma^2).
"""

import pytest
import torch

from diffusion_lab.streams import Streams
from tests.harness import configuration, train_child
from tests.training.trained import averaged_denoiser

VARIANCE, MEAN, STEPS, BUCKETS = 0.25, 0.5, 500, 10
OVERRIDES = [
    "dataset=gaussian",
    f"dataset.source.means=[{MEAN}]",
    f"dataset.source.variances=[{VARIANCE}]",
    "schedule.num_timesteps=1000",
    "network.base_channels=16",
    "batch_size=32",
    "optimizer.lr=0.002",
    "annealing=cosine",
    f"max_steps={STEPS}",
    "log_every=250",
    "snapshot_every=0",
    "checkpoint_every=0",
    "callbacks.ema.decays=[0.99]",
    "weighting=unit",
]


@pytest.mark.slow
def test_trained_loss_meets_the_closed_form_floor(tmp_path):
    folder = tmp_path / "run"
    train_child(configuration(folder, *OVERRIDES)).succeed(300)
    denoiser = averaged_denoiser(configuration(folder, *OVERRIDES))
    streams = Streams(1)
    loss, error, floor = [], [], []
    for bucket in range(BUCKETS):
        n = 2000
        shape = (n, 1, 8, 8)
        x0 = MEAN + VARIANCE**0.5 * streams.normal(shape, "eval", bucket, 0)
        eps = streams.normal(shape, "eval", bucket, 1)
        t = (100 * bucket + 100 * streams.uniform(n, "eval", bucket, 2)).long()
        alpha2 = denoiser.schedule.alphas_cumprod[t]
        with torch.no_grad():
            native = denoiser.loss(x0, eps, t).native.double()
        best = alpha2 * VARIANCE / (alpha2 * VARIANCE + 1 - alpha2)
        loss.append(native.mean())
        error.append((native - best).std() / n**0.5)
        floor.append(best.mean())
    loss, error, floor = torch.stack(loss), torch.stack(error), torch.stack(floor)
    ratio = float(loss.mean() / floor.mean())
    assert ratio < 1.05, f"ratio {ratio:.4f}; by bucket {(loss / floor).tolist()}"
    # Nothing can be better than the floor; 4 standard errors allow for the finite sample.
    assert bool((loss > floor - 4 * error).all()), f"{((loss - floor) / error).tolist()} standard errors"
