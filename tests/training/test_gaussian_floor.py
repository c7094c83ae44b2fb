"""A trained model against the loss of the best possible one, which is known for Gaussian data.

For x0 ~ N(m, v I) the least eps-loss per dimension is  alpha^2 v / (alpha^2 v + sigma^2)  on a variance-preserving
path; divided by the SNR it is the least x0-loss, a function of the SNR alone, v / (1 + v SNR), and times `native_scale`
the least loss in the space of any prediction.
"""

import pytest
import torch

from diffusion_lab.streams import Streams
from tests.harness import configuration, train_child
from tests.training.trained import averaged_denoiser, untrained_denoiser

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


def against_the_floor(denoiser):
    """Loss over floor of all timesteps, and the distance of each bucket's loss to its floor in standard errors."""
    streams, schedule = Streams(1), denoiser.schedule
    least = VARIANCE / (1 + VARIANCE * schedule.snr) * denoiser.native_scale()
    loss, floor, errors = [], [], []
    for bucket in range(BUCKETS):
        n = 2000
        shape = (n, 1, 8, 8)
        x0 = MEAN + VARIANCE**0.5 * streams.normal(shape, "eval", bucket, 0)
        eps = streams.normal(shape, "eval", bucket, 1)
        t = (100 * bucket + 100 * streams.uniform(n, "eval", bucket, 2)).long()
        with torch.no_grad():
            native = denoiser.loss(x0, eps, t).native.double()
        best = least[t]
        loss.append(native.mean())
        floor.append(best.mean())
        errors.append((native - best).mean() / ((native - best).std() / n**0.5))
    return float(torch.stack(loss).mean() / torch.stack(floor).mean()), torch.stack(errors)


@pytest.mark.learning
@pytest.mark.parametrize("method", ["ddpm", "flow", "edm", "infonoise"])
def test_trained_loss_meets_the_closed_form_floor(method, tmp_path):
    overrides = [f"method={method}", *OVERRIDES]
    folder = tmp_path / "run"
    train_child(configuration(folder, *overrides)).succeed(300)
    ratio, errors = against_the_floor(averaged_denoiser(configuration(folder, *overrides)))
    assert ratio < 1.05
    # Nothing can be better than the floor; 4 standard errors allow for the finite sample.
    assert bool((errors > -4).all()), errors.tolist()
    untrained, _ = against_the_floor(untrained_denoiser(configuration(folder, *overrides)))
    assert untrained > 1.5
