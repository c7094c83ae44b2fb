"""Diffusion forcing: what its step draws, whole runs, and the parts that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from diffusion_lab import load_run
from diffusion_lab.cli.main import main
from diffusion_lab.diffusion import MinSNR
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import DDIM
from diffusion_lab.streams import Position
from diffusion_lab.timesteps import Draw, LogitNormal
from diffusion_lab.training.forcing import ForcingStep, patches_of
from tests.auxiliary.small import T, at, images, module, stepped
from tests.harness import configuration, differences, trained

SHORT = ["method=forcing", "max_steps=5", "log_every=2", "snapshot_every=0", "checkpoint_every=3"]
SMALL = ["network.base_channels=8", "max_steps=1", "trainer=cpu"]


def forcing(**more: Any) -> Any:
    """A module of 4 x 4 images with patches of 2 x 2 pixels, whose draws are weighted."""
    of = module(UNet(1, 1, 4, 8, [1, 2], 1, [], 0.0), ForcingStep, **more)
    of.patch_size = 2
    sampler = LogitNormal(T, reweight=True)
    of.draw_timesteps = lambda x0, cond: sampler.draw(x0, of.context(x0, cond))
    return of


def test_each_patch_has_a_timestep_and_a_weight_of_its_own() -> None:
    of = forcing()
    pairs, weight = at(of, 0).pair(images(), {}), LogitNormal(T, reweight=True).weight(torch.arange(T), 0)
    assert pairs.t.shape == (6, 1, 4, 4) and len(pairs.t.unique()) > 5
    tiles = patches_of(pairs.t, 2)
    assert torch.equal(tiles, tiles[:, :, :1, :1].expand_as(tiles))
    assert any(len(row.unique()) > 2 for row in pairs.t)
    assert torch.equal(pairs.weight, weight[pairs.t].flatten())
    # A sampler that looks at its rows is shown the patches, in the order of the timesteps that it returns.
    of.draw_timesteps = lambda rows, cond: Draw((rows.amax((1, 2, 3)) * T).long(), torch.ones(len(rows)))
    ramp = (torch.arange(16.0).view(1, 1, 4, 4) / 16).expand(6, -1, -1, -1)
    expected = torch.tensor([[5, 5, 7, 7], [5, 5, 7, 7], [13, 13, 15, 15], [13, 13, 15, 15]]) * T // 16
    assert torch.equal(of.pair(ramp, {}).t, expected.expand(6, 1, 4, 4))


def test_the_loss_is_that_of_each_pixel_at_its_own_timestep() -> None:
    of = forcing(weighting=MinSNR())
    result = stepped(of)
    of._draws = None, 0  # the same draw again
    record, pairs = result["record"], at(of, 0).pair(images(), {})
    schedule, t = of.denoiser.schedule, pairs.t
    alpha, sigma = schedule.signal_scale[t].float(), schedule.noise_scale[t].float()
    out = of.network(alpha * pairs.x0 + sigma * pairs.eps, t)
    square = (out - (pairs.eps - pairs.x0)).square()
    snr = schedule.snr[t].float()
    weighted = square * snr.clamp(max=5) / (snr.sqrt() + 1).square()
    assert torch.allclose(record.loss, square.flatten(1).mean(1), rtol=1e-5)
    assert torch.allclose(record.objective, weighted.flatten(1).mean(1), rtol=1e-5)
    assert torch.allclose(result["loss"], (weighted.flatten() * pairs.weight).mean(), rtol=1e-5)
    assert torch.equal(record.t, t.flatten(1).double().mean(1).round().long())


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits_and_samples(tmp_path: Path) -> None:
    whole = trained(configuration(tmp_path / "whole", *SHORT), [])
    killed = trained(configuration(tmp_path / "killed", *SHORT), [4])
    assert differences(whole, killed) == []
    model = load_run(tmp_path / "killed")
    samples = model.samples(range(2), solver=DDIM(steps=4))
    assert samples.shape == (2, 1, 8, 8) and samples.float().std() > 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["network=uvit_tiny"], "network=uvit_tiny must take a map of times with model=forcing"),
        (["model.patch_size=3"], "model.patch_size=3 must divide image_size=8; use model.patch_size="),
        (["sampler=loss_second_moment"], "sampler=loss_second_moment must not depend on the rows of an update"),
        (["prediction=mixed"], "prediction=mixed must not depend on the rows of an update"),
    ],
)
def test_wrong_settings_are_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], in_folder: Path
) -> None:
    small = SMALL[1:] if words[0].startswith("network=") else SMALL
    code = main(["train", "method=forcing", *small, *words])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and said in line, line


def test_a_smaller_last_microbatch_has_timesteps_of_its_own() -> None:
    of, x0 = forcing(), images()

    def times(micro: int, rows: int, first: int) -> torch.Tensor:
        of._position, of._draws = Position(0, micro=micro, accumulate=2, first=first, here=rows), (None, 0)
        return of.pair(x0[:rows], {}).t

    first, cut, whole = times(0, 4, 4), times(1, 2, 4), times(1, 4, 4)
    assert torch.equal(cut, whole[:2]) and not torch.equal(cut, first[2:])
