"""What is logged of a GAN, from records by hand."""

import types

import pytest
import torch

from diffusion_lab.callbacks import AdversarialLog
from diffusion_lab.training import AdversarialRecord


def record(generator, discriminator, real, fake):
    rows = (torch.tensor(values) for values in (generator, discriminator, discriminator, real, fake))
    return AdversarialRecord(*rows)


FIRST = record([1.0], [2.0, 4.0], [1.0, -1.0], [-1.0, -2.0])
SECOND = record([3.0, 5.0], [0.0, 2.0], [1.0, 2.0], [3.0, -1.0])


@pytest.mark.parametrize("stopped", [False, True])
def test_means_are_over_the_images_since_the_last_log_also_after_a_stop(stopped, monkeypatch):
    logged = []
    monkeypatch.setattr(
        "diffusion_lab.callbacks.training_log.log_values", lambda trainer, values: logged.append(values)
    )
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.25, betas=(0.5, 0.9))
    trainer = types.SimpleNamespace(max_steps=4, optimizers=[optimizer], callbacks=[])
    module = types.SimpleNamespace(device=torch.device("cpu"))
    log = AdversarialLog(every=2)
    log.on_fit_start(trainer, module)
    log.on_step_end(trainer, module, 1, [FIRST])
    if stopped:
        state, log = log.state_dict(), AdversarialLog(every=2)
        log.load_state_dict(state)
        log.on_fit_start(trainer, module)
    log.on_step_end(trainer, module, 2, [SECOND])
    log.on_step_end(trainer, module, 3, [SECOND])
    log.on_step_end(trainer, module, 4, [SECOND])
    optim = {"optim/lr": 0.25, "optim/beta1": 0.5}
    names = ["train/loss_generator", "train/loss_discriminator", "train/judged_real", "train/judged_fake"]
    assert logged == [
        dict(zip(names, [3.0, 2.0, 0.75, 0.75], strict=True)) | optim,
        dict(zip(names, [4.0, 1.0, 1.0, 0.5], strict=True)) | optim,
    ]
