"""excess_loss: against sums written out, with predictions whose excess is known."""

from __future__ import annotations

import math

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.data import Digits, GaussianMixture, ImageDataModule
from diffusion_lab.diffusion import X0, Denoiser, Epsilon, cosine, empirical_floor, laplace, linear
from diffusion_lab.metrics import Evaluation, ExcessLoss, SampleNoise
from diffusion_lab.metrics import excess_loss as module
from diffusion_lab.metrics import floor as floor_module
from diffusion_lab.metrics.metric import Model
from tests.metrics.named import named

SOURCE = GaussianMixture(means=[0.1], variances=[0.04], image_size=4, num_images=64, num_test_images=40)
DATA = ImageDataModule(SOURCE, batch_size=8)


class Shifted(nn.Module):
    """E[eps | x_t] in closed form, plus a number."""

    def __init__(self, schedule, shift: float) -> None:
        super().__init__()
        self.schedule, self.shift = schedule, shift

    def forward(self, x_t, t):
        return self.shift + SOURCE.optimal_eps(x_t, t, self.schedule).float()


class Zero(nn.Module):
    def forward(self, x_t, t, **cond):
        return torch.zeros_like(x_t)


def measured(denoiser, images=40, metric=None, data=DATA, seed=0):
    evaluation = Evaluation(images, batch_size=16, metrics=[metric or ExcessLoss()], seed=seed)
    return evaluation(denoiser, None, data, keep=0).results


def value(denoiser, *args, **kwargs) -> float:
    (result,) = measured(denoiser, *args, **kwargs)
    return result.value


def test_an_error_of_the_noise_costs_its_square_at_every_level():
    schedule = linear()
    up, down, best = (value(Denoiser(Shifted(schedule, d), schedule, Epsilon())) for d in (0.3, -0.3, 0.0))
    assert (up + down) / 2 - best == pytest.approx(12 * 0.3**2 / (2 * math.log(2)), rel=1e-4)  # mixed terms cancel
    assert abs(best) < 0.2 * (up - best)  # 0 but for the images and their noise


def test_the_number_is_the_sum_written_out():
    """x0 = 0 predicted as noise 0 scaled: the eps-loss is |eps|^2 / D."""
    schedule, metric = cosine(), ExcessLoss(levels=3, low=-3.0, high=3.0)
    (result,) = measured(Denoiser(Zero(), schedule, Epsilon()), 5, metric, seed=4)
    t = [(schedule.log_snr - level).abs().argmin().item() for level in (-2.0, 0.0, 2.0)]
    noise = [SampleNoise(4, [i], (1, 4, 4)) for i in range(0, 40, 8)]
    losses = [torch.stack([one(k, torch.empty(1, 1, 4, 4)) for one in noise]).square().mean() for k in range(3)]
    floor = SOURCE.loss_floor(schedule)[t]
    assert result.value == pytest.approx(2 / (2 * math.log(2)) * float((torch.stack(losses) - floor).sum()), rel=1e-5)
    assert (result.name, result.units, result.better, result.compared_by) == (
        "excess_loss5",
        "bits/dim",
        "lower",
        "ratio",
    )
    assert result.protocol["levels"] == {"count": 3, "log_snr": [-3.0, 3.0], "floor_images": 64}
    assert result.protocol["seed"] == 4 and "timesteps" not in result.protocol


def test_schedule_and_prediction_do_not_move_it():
    """The same estimate, 0: only the distance of a level to the nearest timestep differs."""
    found = [value(Denoiser(Zero(), schedule, X0())) for schedule in (linear(), cosine(), linear(4000))]
    assert max(found) / min(found) < 1.02
    schedule = linear()
    wrong = value(Denoiser(Zero(), schedule, Epsilon()))  # another estimate
    assert abs(wrong / found[0] - 1) > 0.5


def test_batches_change_nothing_and_seeds_do():
    denoiser = Denoiser(Zero(), linear(), Epsilon())
    denoiser.train()
    one, other = (
        Evaluation(9, batch_size=size, metrics=[ExcessLoss()], seed=0)(denoiser, None, DATA, keep=0).results[0].value
        for size in (9, 2)
    )
    assert one == pytest.approx(other, rel=1e-12) and value(denoiser, 9, seed=1) != one and denoiser.training


def test_the_floor_of_training_images_is_that_of_some_of_them_and_computed_once(monkeypatch):
    data, schedule = ImageDataModule(Digits(), batch_size=8), cosine()
    denoiser, metric = Denoiser(Zero(), schedule, Epsilon()), ExcessLoss(levels=2, low=-1.0, high=1.0, floor_images=3)
    found = value(denoiser, 4, metric, data)
    t = metric.timesteps(schedule)
    images, _ = data.conditions.of_images(split := data.source.train(), torch.arange(len(data.source.train())))
    chosen = [k * len(split) // 3 for k in range(3)]
    floor = [
        empirical_floor(images[i], SampleNoise(0, [i], data.shape).start(), schedule.snr[t], [images]) for i in chosen
    ]
    loss = module.eps_losses(Model(denoiser, None, data, batch_size=2), t, 4)
    expected = (loss - torch.stack(floor).mean(0) * schedule.snr[t]).sum() / (2 * math.log(2))
    assert found == pytest.approx(float(expected), rel=1e-9)
    monkeypatch.setattr(module, "image_floors", lambda *_: pytest.fail("computed again"))
    assert value(denoiser, 4, metric, data) == found
    with pytest.raises(pytest.fail.Exception):
        value(denoiser, 4, metric, data, seed=1)


@pytest.mark.parametrize(
    "held, images, passes",
    [(2**24, 4, 1), (2 * 26 * 64, 4, 2), (5 * 64, 2, 5 * 2)],  # 24 levels of 64 numbers; of 5 levels 24 are 5 parts
)
def test_the_training_set_is_read_once_for_as_many_floor_images_as_memory_holds(held, images, passes, monkeypatch):
    """It was read once for each of them, which for images that are decoded takes longer than the sums."""
    monkeypatch.setattr(floor_module, "HELD", held)
    data, metric = ImageDataModule(Digits(), batch_size=8), ExcessLoss(floor_images=images)
    read, of_images = [], data.conditions.of_images
    monkeypatch.setattr(
        data.conditions, "of_images", lambda split, ids: read.append(1 in ids.tolist()) or of_images(split, ids)
    )
    model = Model(Denoiser(Zero(), cosine(), Epsilon()), None, data, batch_size=2)
    metric._floor(model, metric.timesteps(model.denoiser.schedule))
    assert sum(read) == passes


def test_a_schedule_that_does_not_reach_the_levels_is_refused():
    words = "names=.excess_loss. must have a schedule with log SNRs from -5.75 to 5.75, and this one has -10.1 to 3.11;"
    ExcessLoss().check_model(Denoiser(Zero(), cosine(100), Epsilon()))  # to 5.99
    with pytest.raises(ValueError, match=words):
        measured(Denoiser(Zero(), laplace(), Epsilon()))


def test_the_default_levels_are_on_every_schedule_but_laplace():
    metric, short = ExcessLoss(), []
    for path in (conf_dir() / "schedule").glob("*.yaml"):
        reach = instantiate(OmegaConf.load(path)).log_snr
        short += [path.stem] if not reach[-1] <= metric.low < metric.high <= reach[0] else []
    assert short == ["laplace"]


@pytest.mark.parametrize("wrong", [{"levels": 0}, {"low": 6.0}, {"floor_images": 0}, {"high": 60.0}])
def test_what_is_out_of_range(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong)) if 'low' not in wrong else 'high'}="):
        ExcessLoss(**wrong)


def test_the_yaml_has_the_defaults():
    (metric,) = named("excess_loss")
    assert vars(metric) == vars(ExcessLoss())
