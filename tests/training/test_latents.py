"""A model of latents: it learns a few of them by heart, and is measured on the images that they decode to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from diffusion_lab.data import Autoencoder, Encoding, ImageDataModule, ImageFolder, Latents
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import Evaluation, FeatureExtractor, FrechetDistance, evaluate_images, generate
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import DDIM
from tests.data.latent.autoencoders import save_autoencoder, save_images


@pytest.fixture(scope="module")
def latents(tmp_path_factory: pytest.TempPathFactory) -> Latents:
    folder = tmp_path_factory.mktemp("latents")
    images = ImageFolder(save_images(folder / "images", 40), 16, cache_dir=folder / "cache")
    Encoding(images, Autoencoder(str(save_autoencoder(folder / "kl"))), folder / "out").run()
    return Latents(folder / "out", images=images)


@pytest.mark.learning
def test_a_tiny_network_learns_eight_latents_by_heart(latents: Latents) -> None:
    steps, rate = 390, 4e-3
    torch.manual_seed(0)
    x0 = latents.train().take(range(8)).repeat(2, 1, 1, 1)
    network = UNet(4, 4, 8, base_channels=16, channel_multipliers=[1, 2], num_res_blocks=1, attention_resolutions=[])
    denoiser = Denoiser(network, linear(1000), Epsilon(), FixedLarge())
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)

    def loss(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        strata = torch.randperm(16, generator=generator) + torch.rand(16, generator=generator)
        return denoiser.loss(x0, torch.randn(x0.shape, generator=generator), (strata * 1000 / 16).long()).native.mean()

    def validation() -> float:
        with torch.no_grad():
            return float(torch.stack([loss(seed) for seed in range(1000, 1032)]).mean())

    before = validation()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
    assert before == pytest.approx(1, abs=0.05)  # the network starts at zero, and eps has variance 1
    assert validation() < 0.15


class ByHeart(nn.Module):
    """The exact epsilon of the empirical distribution of some latents: E[x0 | x_t] is a softmax over them."""

    def __init__(self, x0: torch.Tensor, alpha_bar: torch.Tensor) -> None:
        super().__init__()
        self.x0, self.alpha_bar = x0.flatten(1), alpha_bar.float()

    def forward(self, x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        a, flat = self.alpha_bar[t][:, None], x_t.flatten(1)
        nearness = (flat @ self.x0.T * a.sqrt() - 0.5 * a * self.x0.square().sum(1)) / (1 - a)
        return ((flat - a.sqrt() * (nearness.softmax(1) @ self.x0)) / (1 - a).sqrt()).view(x_t.shape)


class Colours(FeatureExtractor):
    """The mean of each channel, with no weights but a file to name."""

    name, feature_dim, channels, preprocessing = "colours", 3, 3, "x/255"

    def weights_file(self) -> Path:
        return Path(__file__)

    def load(self) -> nn.Module:
        class Means(nn.Module):
            def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                means = images.float().mean((2, 3)) / 255
                return means, means

        return Means()


def test_samples_are_decoded_and_compared_with_the_images(
    latents: Latents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path))
    schedule = linear(1000)
    images = latents.train()
    x0 = images.take(range(len(images)))
    denoiser = Denoiser(ByHeart(x0, schedule.alphas_cumprod), schedule, Epsilon(), FixedLarge())
    data, solver = ImageDataModule(latents, 8, features=Colours()), DDIM(steps=50, clip=False)
    data.check()
    found = Evaluation(num_samples=32, batch_size=16, metrics=[FrechetDistance()])(denoiser, solver, data, keep=20)
    assert found.images.shape == (20, 3, 16, 16) and found.images.dtype == torch.uint8
    samples = generate(denoiser, solver, range(32), 0, data.shape, 16, to_pixels=latents.to_pixels)
    assert torch.equal(found.images, samples[:20])
    pixels = latents.pixels().train()
    expected = evaluate_images(samples, pixels.take(range(len(pixels))), data.features, [FrechetDistance()])
    values = {result.name: result.value for result in found.results}
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert values["copying32"] > 0.5  # each sample is a training image
    assert found.results[0].protocol["reference"]["dataset"] == "images"
    known = latents.to_pixels(x0).int()  # each sample is one of the pictures that the training latents decode to
    distance = (samples.int()[:, None] - known[None]).abs().amax((2, 3, 4)).amin(1)
    assert (distance <= 12).float().mean() > 0.8, distance


def test_clipping_would_have_changed_them(latents: Latents) -> None:
    schedule = linear(1000)
    images = latents.train()
    x0 = images.take(range(len(images)))
    assert x0.abs().max() > 1.5
    denoiser = Denoiser(ByHeart(x0, schedule.alphas_cumprod), schedule, Epsilon(), FixedLarge())
    free, clipped = (
        generate(denoiser, DDIM(steps=20, clip=clip), range(8), 0, (4, 8, 8), to_pixels=latents.to_pixels).int()
        for clip in (False, True)
    )
    assert (free - clipped).abs().float().mean() > 1
