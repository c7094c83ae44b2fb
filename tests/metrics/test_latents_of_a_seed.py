"""The latents of an evaluation belong to the seed of the run; those of pictures do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from diffusion_lab.data import GaussianMixture, ImageDataModule
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import BitsPerDim, Evaluated, Evaluation, Latents, SampleNoise, generate
from diffusion_lab.solvers import DDIM
from tests.metrics.conftest import Shrink
from tests.metrics.named import named

COUNT = 6


class Noted(DDIM):
    """DDIM with fresh noise, which keeps the latents that it is given: x_T and the noise of each step."""

    def __init__(self) -> None:
        super().__init__(steps=3, eta=1.0)
        self.drawn: list[Tensor] = []

    def __call__(self, denoiser: Any, x_start: Tensor, *, noise: Any, **more: Any) -> Tensor:
        def kept(k: int, like: Tensor) -> Tensor:
            self.drawn.append(noise(k, like))
            return self.drawn[-1]

        self.drawn.append(x_start)
        return super().__call__(denoiser, x_start, noise=kept, **more)


class Grow(Shrink):
    """Another method."""

    def forward(self, x_t: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        return -super().forward(x_t, t, label)


@pytest.fixture(scope="module")
def data() -> ImageDataModule:
    source = GaussianMixture([0.0], [0.25], image_size=4, num_images=64)
    source.value_range = (-1.0, 1.0)  # as if they lay in it
    return ImageDataModule(source, batch_size=8)


def model(network: type[Shrink] = Shrink) -> Denoiser:
    return Denoiser(network(), linear(50), Epsilon(), FixedLarge())


def evaluated(
    data: ImageDataModule, seed: int, number: int | None = None, network: type[Shrink] = Shrink, **how: Any
) -> tuple[Evaluated, list[Tensor]]:
    """Of the run with a seed: the evaluation without a picture, and its latents."""
    solver, of_set = Noted(), how.pop("of_set", 0)
    evaluation = Evaluation(COUNT, how.pop("batch_size", COUNT), named("sample_variance"), seed=number)
    more: dict[str, Any] = {"keep": 0} | how
    found = evaluation(model(network), solver, data, **more, latents=Latents.of_run(seed, of_set))
    return found, solver.drawn


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_methods_with_one_seed_share_all_latents_and_two_seeds_none(data: ImageDataModule) -> None:
    (one, first), (other, second), (_, third) = (
        evaluated(data, 3),
        evaluated(data, 3, network=Grow),
        evaluated(data, 4),
    )
    assert len(first) >= 3 and equal(first, second) and one.results[0].value != other.results[0].value
    assert not any(torch.equal(a, b) for a, b in zip(first, third, strict=True))
    assert torch.equal(first[0], SampleNoise(3, range(COUNT), data.shape).start())  # as `sample seed=3` has them


def test_a_number_gives_all_seeds_the_same_latents(data: ImageDataModule) -> None:
    (_, first), (_, second), (_, others) = evaluated(data, 3, 7), evaluated(data, 4, 7), evaluated(data, 4, 8)
    assert equal(first, second) and not torch.equal(first[0], others[0])
    assert torch.equal(first[0], SampleNoise(7, range(COUNT), data.shape).start())


def test_the_sets_of_a_run_are_those_of_no_other_seed() -> None:
    seeds = [Latents.of_run(seed, number).seed for seed in range(4) for number in range(4)]
    assert len(set(seeds)) == 16 and seeds[::4] == [0, 1, 2, 3]
    assert all(seed > 2**32 for i, seed in enumerate(seeds) if i % 4)


def test_the_batch_size_does_not_change_them(data: ImageDataModule) -> None:
    (whole, _), (parts, _) = evaluated(data, 5), evaluated(data, 5, batch_size=4)
    assert whole.results == parts.results


@pytest.mark.parametrize("metrics", [True, False])
def test_pictures_of_all_seeds_have_the_same_latents(data: ImageDataModule, metrics: bool) -> None:
    wanted = generate(model(), Noted(), range(4), 0, data.shape)
    for seed in (0, 3):
        assert torch.equal(evaluated(data, seed, keep=4, metrics=metrics)[0].images, wanted)
    numbered = generate(model(), Noted(), range(4), 7, data.shape)
    assert torch.equal(evaluated(data, 3, 7, keep=4, metrics=metrics)[0].images, numbered)
    more = evaluated(data, 0, keep=COUNT + 3, metrics=metrics)[0].images  # more than are measured
    assert torch.equal(more, generate(model(), Noted(), range(COUNT + 3), 0, data.shape))


@pytest.mark.parametrize(("number", "seed", "images"), [(None, 0, 6), (None, 3, 10), (7, 3, 6)])
def test_the_samples_of_an_evaluation_are_counted(
    data: ImageDataModule, number: int | None, seed: int, images: int
) -> None:
    _, alone = evaluated(data, 0)
    _, drawn = evaluated(data, seed, number, keep=4)
    assert sum(map(len, drawn)) * COUNT == sum(map(len, alone)) * images
    evaluation = Evaluation(COUNT, metrics=named("sample_variance"), seed=number)
    assert evaluation.calls(data, 3, 50, seed, 4) == 3 * images


def test_the_protocol_has_the_rule_and_not_the_seed(data: ImageDataModule) -> None:
    def protocol(*args: Any, **how: Any) -> dict[str, Any]:
        return json.loads(json.dumps(evaluated(data, *args, **how)[0].results[0].protocol))

    assert protocol(3) == protocol(4) and protocol(3)["seed"] == "the run's"
    assert protocol(0, 0)["seed"] == 0 and protocol(0) != protocol(0, 0)
    assert protocol(3, of_set=1) == protocol(4, of_set=1) != protocol(3)
    assert protocol(3, of_set=1)["seed"] == "the run's, set 1"


def test_the_noise_of_a_bound_belongs_to_the_seed_too(data: ImageDataModule) -> None:
    evaluation = Evaluation(4, metrics=[BitsPerDim()])
    three, again, four = (
        evaluation(model(), DDIM(steps=2), data, keep=0, latents=Latents.of_run(seed)).results[0] for seed in (3, 3, 4)
    )
    assert three == again and three.value != four.value and three.protocol == four.protocol
    assert three.protocol["seed"] == "the run's"
