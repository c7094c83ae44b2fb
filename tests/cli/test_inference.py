"""Device, layout and precision of a trained model."""

from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.inference import ready, threads_of
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import generate
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import DDIM


def untrained():
    torch.manual_seed(0)
    network = UNet(1, 1, 8, base_channels=8, channel_multipliers=(1, 2), num_res_blocks=1, attention_resolutions=(4,))
    nn.init.normal_(network.conv_out.weight, std=0.1)  # an answer that is not almost 0
    return Denoiser(network.eval(), linear(50), Epsilon(), FixedLarge())


def samples(denoiser, precision=None):
    def made(device="cpu"):
        return generate(denoiser, DDIM(steps=5), range(6), seed=0, shape=(1, 8, 8), device=device).int()

    if precision is None:
        return made()
    with ready(denoiser, "cpu", precision) as device:
        return made(device)


def test_the_fast_layout_gives_the_same_images():
    """Convolutions add up in another order: one grey level at most where a value lay between two."""
    plain, fast = samples(untrained()), samples(untrained(), "32-true")
    assert (plain - fast).abs().max() <= 1
    assert (plain != fast).double().mean() < 0.01


def test_bfloat16_computes_in_bfloat16_and_leaves_the_weights():
    denoiser, seen = untrained(), []
    denoiser.network.middle[0].res.conv1.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    coarse = samples(denoiser, "bf16-mixed")
    assert set(seen) == {torch.bfloat16}
    assert {p.dtype for p in denoiser.parameters()} == {torch.float32}
    off = (coarse - samples(untrained())).abs().double()
    assert 0 < off.mean() < 2  # grey levels
    seen.clear()
    samples(denoiser, "32-true")
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [
        ("cpu", 64, "^precision=64 must be one of"),  # what yaml makes of precision=64
        ("cpu", "fp64", "^precision=fp64 must be one of 32-true, bf16-mixed, 16-mixed; use 32-true$"),
        ("cpu", "64-true", r"^precision=64-true must be one of .*, 16-mixed \(did you mean '32-true'\?\)$"),
        ("cpu", "16-mixed", "^precision=16-mixed must be computed on a GPU"),
        ("cuda", "32-true", "^device=cuda must be a device of this machine"),
    ],
)
def test_what_is_not_here_is_refused(device, precision, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=message), ready(untrained(), device, precision):
        pass


@pytest.mark.parametrize(
    ("asked", "recorded", "wanted"),
    [(None, [1], 1), (3, [1], 3), (None, [4, 2, None], 2), (None, [None], None), (None, ["9", True, 0], None)],
)
def test_a_run_is_measured_with_the_threads_that_it_had(asked, recorded, wanted):
    """With one per core beside other programs, samples of a run with threads=1 took eight times as long."""
    trained = [SimpleNamespace(config={"threads": n}) for n in recorded]
    assert threads_of(OmegaConf.create({"threads": asked}), *trained) == wanted


def test_the_threads_are_those_of_before_afterwards():
    before = torch.get_num_threads()
    with ready(nn.Identity(), "cpu", threads=before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
