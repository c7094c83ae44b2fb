"""The variance of samples against NumPy and where it is known."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.metrics import Evaluation, sample_metrics
from diffusion_lab.metrics.sample_metrics import sample_variance
from diffusion_lab.solvers import DDIM
from tests.metrics.named import named


def test_it_is_numpys_whatever_the_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (50, 3, 4, 4)).to(torch.uint8)
    expected = (images.numpy() / 127.5 - 1).var(axis=0, ddof=1).mean()
    assert sample_variance(images) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(sample_metrics, "_ROWS", 7)
    assert sample_variance(images) == pytest.approx(expected, rel=1e-12)
    assert sample_variance(images) != pytest.approx((images.numpy() / 127.5 - 1).var(axis=0).mean(), rel=1e-3)


def test_equal_samples_have_none_and_black_and_white_the_most() -> None:
    grey = torch.full((10, 1, 2, 2), 77, dtype=torch.uint8)
    assert sample_variance(grey) == 0
    halves = torch.cat([torch.zeros_like(grey), torch.full_like(grey, 255)])
    assert sample_variance(halves) == pytest.approx(20 / 19)


def test_an_evaluation_measures_its_samples_without_an_extractor(perfect) -> None:
    from diffusion_lab.data import Digits, ImageDataModule

    plain = ImageDataModule(Digits(), batch_size=16)
    found = Evaluation(60, batch_size=25, metrics=named("sample_variance"))(perfect, DDIM(steps=5), plain, keep=60)
    (result,) = found.results
    assert result.name == "sample_variance60" and (result.better, result.units) == ("neither", "")
    assert result.value == pytest.approx((found.images.numpy() / 127.5 - 1).var(axis=0, ddof=1).mean(), rel=1e-12)
    assert result.protocol == {"samples": 60, "solver": "ddim-5-eta0", "ema_decay": None, "seed": "the run's"}
