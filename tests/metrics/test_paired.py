"""A sample against its truth."""

import math

import pytest
import torch

from diffusion_lab.data import Digits, ImageDataModule, SuperResolution
from diffusion_lab.metrics import Evaluation
from diffusion_lab.metrics.sample_metrics import hue_error, psnr
from diffusion_lab.solvers import DDIM
from tests.metrics.named import named
from tests.metrics.test_evaluation import untrained, values


def pictures(*levels: int) -> torch.Tensor:
    return torch.stack([torch.full((3, 4, 4), level, dtype=torch.uint8) for level in levels])


def test_psnr_is_its_formula():
    found = psnr(pictures(10, 0, 100), pictures(20, 255, 100))
    assert found.tolist() == pytest.approx([20 * math.log10(25.5), 0.0, 10 * math.log10(255**2 * 12)])


def test_psnr_agrees_with_scikit_image():
    from skimage.metrics import peak_signal_noise_ratio

    torch.manual_seed(0)
    a, b = torch.randint(0, 256, (2, 5, 3, 8, 8)).to(torch.uint8)
    expected = [peak_signal_noise_ratio(x.numpy(), y.numpy(), data_range=255) for x, y in zip(a, b, strict=True)]
    assert psnr(a, b).tolist() == pytest.approx(expected)


def test_hue_error_sees_a_tint_and_not_noise_of_mean_zero():
    truth = pictures(100, 100)
    tinted = truth.clone()
    tinted[0, 0] += 30  # red
    tinted[1, :, ::2] += 5
    tinted[1, :, 1::2] -= 5
    assert hue_error(tinted, truth).tolist() == pytest.approx([30 / math.sqrt(3), 0])


class FromLowRes(torch.nn.Module):
    """Predicts the noise as if the image were the enlarged low resolution."""

    def __init__(self, schedule) -> None:
        super().__init__()
        self.schedule = schedule

    def forward(self, x_t, t, low_res):
        x0 = low_res.repeat_interleave(2, 2).repeat_interleave(2, 3)
        a = self.schedule.alphas_cumprod[t].float()[:, None, None, None]
        return (x_t - a.sqrt() * x0) / (1 - a).sqrt()


def test_an_evaluation_compares_each_sample_with_its_own_truth(digits):
    from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear

    data = ImageDataModule(Digits(), batch_size=16, task=SuperResolution(2), features=digits.features)
    denoiser = Denoiser(FromLowRes(linear(1000)), linear(1000), Epsilon(), FixedLarge())
    found = Evaluation(num_samples=150, batch_size=64, metrics=named())(denoiser, DDIM(steps=5), data, keep=12)
    given, truth = data.conditions.given_and_truth(range(150))
    expected = [float(function(given, truth).mean()) for function in (psnr, hue_error)]
    assert values(found)["psnr150"] == pytest.approx(expected[0], abs=0.02)
    assert values(found)["hue_error150"] == pytest.approx(expected[1], abs=0.05)
    assert "fd150_digits" in values(found) and found.columns == 9
    pairs = torch.stack([given, given, truth], 1)[:4].flatten(0, 1).int()
    assert (found.images.int() - pairs).abs().max() <= 1
    assert found.results[-1].protocol["reference"] == {
        "dataset": "digits",
        "split": "test",
        "fingerprint": data.source.test().fingerprint(),
        "n": 150,
    }


def test_without_an_extractor_the_pairs_are_still_compared():
    class Grey(torch.nn.Module):
        def forward(self, x_t, t, low_res):
            return x_t

    data = ImageDataModule(Digits(), batch_size=16, task=SuperResolution(2))
    model = untrained()
    model.network = Grey()
    names = list(values(Evaluation(num_samples=20, metrics=named("fid"))(model, DDIM(steps=2), data)))
    assert names == ["psnr20", "hue_error20"]
    assert Evaluation(num_samples=0, metrics=[])(model, DDIM(steps=2), data, keep=9).results == []


def test_there_is_a_picture_however_few_are_asked_for(digits):
    class Grey(torch.nn.Module):
        def forward(self, x_t, t, low_res):
            return x_t

    data = ImageDataModule(Digits(), batch_size=16, task=SuperResolution(2))
    model = untrained()
    model.network = Grey()
    for keep, shown in ((1, 3), (3, 3), (4, 6)):
        found = Evaluation(num_samples=0, metrics=[])(model, DDIM(steps=2), data, keep=keep)
        assert found.images.shape == (shown, 1, 8, 8)
