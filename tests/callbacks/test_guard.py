"""The guard stops at the bad step, names what was in it, and leaves a good checkpoint."""

import random

import pytest
import torch

from diffusion_lab.training.checkpoint_io import load
from tests.harness import configuration, train_child

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bad", sorted(random.Random(0).sample(range(5, 20), 3)))
def test_a_loss_that_is_not_finite_stops_the_run(bad, tmp_path):
    folder = tmp_path / "run"

    def poison():
        from diffusion_lab.diffusion import Denoiser

        original, calls = Denoiser.loss, iter(range(1, 1000))

        def loss(self, x0, eps, t, **cond):
            result = original(self, x0, eps, t, **cond)
            if torch.is_grad_enabled() and next(calls) == bad:
                result.parts.loss[3] = result.parts.loss[3] * float("nan")
            return result

        Denoiser.loss = loss

    child = train_child(configuration(folder, "max_steps=20"), poison)
    assert child.wait() == 1
    log = child.log.read_text()
    assert f"not finite at optimizer step {bad}, timesteps [" in log and "of images [" in log
    content = load(folder / "checkpoints" / "last.ckpt")
    assert content["global_step"] == (bad - 1) // 3 * 3
    assert all(torch.isfinite(value).all() for value in content["state_dict"].values())


def test_the_named_images_and_timesteps_are_the_bad_ones():
    import types

    from diffusion_lab.callbacks import Guard, NotFinite
    from diffusion_lab.timesteps import StepRecord

    guard = Guard(every=1)
    module = types.SimpleNamespace(device=torch.device("cpu"), after_step=[])
    order = types.SimpleNamespace(local_indices=lambda step: torch.arange(100 * step, 100 * step + 4))
    trainer = types.SimpleNamespace(global_step=0, datamodule=types.SimpleNamespace(order=order))
    guard.on_train_start(trainer, module)
    good, bad = torch.ones(4), torch.tensor([1.0, float("inf"), 1.0, float("nan")])
    t = torch.tensor([7, 8, 9, 10])
    guard.on_step_end(trainer, module, 1, [StepRecord(torch.zeros(4), {}, t, good, good)])
    with pytest.raises(NotFinite, match=r"step 2, timesteps \[8, 10\] of images \[101, 103\]"):
        guard.on_step_end(trainer, module, 2, [StepRecord(torch.zeros(4), {}, t, bad, bad)])
