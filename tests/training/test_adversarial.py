"""One update of a GAN against the same computed by hand; exact resume; the module as a kind of model."""

import copy

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn

from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.load import load_run
from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.diffusion import linear
from diffusion_lab.metrics.sampling import SampleNoise
from diffusion_lab.networks import AdversarialNetworks, Generator, Hinge
from diffusion_lab.solvers import DDIM, OneCall
from diffusion_lab.streams import Streams
from diffusion_lab.training import AdversarialModule, TrainedGAN
from diffusion_lab.training.adversarial import FOR_DISCRIMINATOR, FOR_GENERATOR
from tests.harness import differences, trained

LR = 0.1


class Scale(Generator):
    """z (B,2) -> (B,1,8,8), all pixels w z_0."""

    latent_dim = 2

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.5))

    def forward(self, z):
        return (self.w * z[:, 0])[:, None, None, None].expand(-1, 1, 8, 8)


class Mean(nn.Module):
    """v times the mean of the pixels."""

    def __init__(self):
        super().__init__()
        self.v = nn.Parameter(torch.tensor(0.25))

    def forward(self, x):
        return self.v * x.mean((1, 2, 3))


class Record:
    """What a callback is given after each step."""

    def __init__(self):
        self.seen = []

    def __call__(self, step, records):
        self.seen.append((step, records))


def fitted(tmp_path, steps=2, discriminator_steps=2, ratio=3.0):
    quiet_libraries()
    data = ImageDataModule(Digits(), batch_size=8)
    networks = AdversarialNetworks(Scale(), Mean(), Hinge())
    module = AdversarialModule(
        networks, lambda p: torch.optim.SGD(p, lr=LR), Streams(5), discriminator_steps, discriminator_lr=ratio
    )
    note, start = Record(), module.on_train_start
    module.on_train_start = lambda: (start(), module.after_step.append(note))
    trainer = Trainer(
        accelerator="cpu",
        max_steps=steps,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, datamodule=data)
    return trainer, module, data, note


@pytest.mark.parametrize("n", [1, 2])
def test_updates_are_those_by_hand(n, tmp_path):
    """Hinge losses are linear inside |D| < 1: D's gradient is mean fake - mean real, G's is -v mean z_0."""
    trainer, module, data, note = fitted(tmp_path, steps=2, discriminator_steps=n)
    w, v, streams = 0.5, 0.25, Streams(5)
    order = copy.copy(data.order)
    for step in range(2):
        x = data.source.train().take(order.local_indices(step)).float() / 127.5 - 1
        means = x.mean((1, 2, 3)).chunk(n)
        z = streams.normal((8, 2), "latents", step, FOR_DISCRIMINATOR)[:, 0].chunk(n)
        for real, latent in zip(means, z, strict=True):
            v -= 3.0 * LR * float((w * latent).mean() - real.mean())
        latent = streams.normal((8 // n, 2), "latents", step, FOR_GENERATOR)[:, 0]
        w += LR * v * float(latent.mean())
    assert module.networks.discriminator.v.item() == pytest.approx(v, abs=1e-6)
    assert module.networks.generator.w.item() == pytest.approx(w, abs=1e-6)
    assert trainer.global_step == 2 and [step for step, _ in note.seen] == [1, 2]  # however many steps D makes
    (record,) = note.seen[-1][1]
    assert len(record.discriminator) == len(record.objective) == 8 and len(record.loss) == 8 // n


def test_one_call_draws_latents_of_its_own_shape():
    noise = SampleNoise(0, [4, 7], OneCall().start_shape(Scale(), (1, 8, 8)))
    z = noise.start()
    assert z.shape == (2, 2) and torch.equal(z[1], SampleNoise(0, [7], (2,)).start()[0])
    images = OneCall()(Scale(), z, noise=noise)
    assert torch.equal(images[:, 0, 0, 0], 0.5 * z[:, 0])
    assert DDIM().start_shape(Scale(), (1, 8, 8)) == (1, 8, 8)
    with pytest.raises(ValueError, match="must be a solver of timesteps for a diffusion model"):
        OneCall().check(linear(1000))


def gan(**changes):
    data = ImageDataModule(Digits(), batch_size=8)
    networks = AdversarialNetworks(Scale(), Mean(), Hinge()).eval()
    return TrainedGAN(
        **({"folder": None, "config": {}, "config_hash": "0", "networks": networks} | changes),
        data=data,
        step=3,
        decay=None,
    )


def test_the_objective_is_the_generators_loss_at_fixed_latents():
    model, z = gan(), torch.randn(6, 2)
    objective = model.fixed_set_loss((0, 10), 6, lambda shape, i: z[i], batch_size=4)
    assert objective.names == ("generator loss",) and [len(part()) for part in objective.parts] == [4, 2]
    assert objective.loss().item() == pytest.approx(-0.25 * 0.5 * float(z[:, 0].mean()), abs=1e-6)
    (gradient,) = torch.autograd.grad(objective.loss().sum(), model.module.w)
    assert float(gradient) == pytest.approx(-0.25 * float(z[:, 0].mean()), abs=1e-6)
    model.networks.discriminator.v.data.fill_(9.0)  # it is the discriminator at the time of the call
    assert objective.loss().item() == pytest.approx(-0.25 * 0.5 * float(z[:, 0].mean()), abs=1e-6)
    model.module.double()
    assert objective.loss().dtype == torch.float64


def test_samples_are_bytes_of_the_generator_and_ignore_the_solver():
    model = gan()
    ids = [3, 0]
    z = SampleNoise(1, ids, (2,)).start()
    expected = ((0.5 * z[:, 0]).clamp(-1, 1) * 127.5 + 127.5).round()
    images = model.samples(ids, 1, DDIM(), batch_size=1)
    assert images.shape == (2, 1, 8, 8) and images.dtype == torch.uint8
    assert (images[:, 0, 0, 0].float() - expected).abs().max() <= 1


TINY = [
    "task=gan",
    "network.base_channels=8",
    "batch_size=16",
    "trainer.accelerator=cpu",
    "metrics=none",
    "log_every=4",
    "snapshot_every=5",
    "checkpoint_every=3",
    "max_steps=10",
]


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], pytest.param(["method=biggan"], marks=pytest.mark.exhaustive)])
def test_a_killed_and_resumed_run_is_equal_to_the_bit(more, tmp_path):
    straight, stopped = (compose_train([*TINY, *more], tmp_path / name) for name in ("a", "b"))
    one, two = trained(straight), trained(stopped, kills=[4])
    assert differences(one, two) == [] and one["step"] == 10
    assert b"train/loss_discriminator" in one["metrics"]
    other = trained(compose_train([*TINY, *more, "seed=1"], tmp_path / "c"))  # negative control
    assert {"weights", "optimizer", "metrics"} <= set(differences(one, other))
    model = load_run(tmp_path / "a")
    assert isinstance(model, TrainedGAN) and model.step == 10 and not model.module.training
    own = {f"networks.{name}": value for name, value in model.networks.state_dict().items()}
    assert own.keys() == one["weights"].keys() and all(torch.equal(own[k], v) for k, v in one["weights"].items())
