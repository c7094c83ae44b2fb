"""Trainers of one's own: what one training leaves to the next, how it ends, and batches that are cut."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from diffusion_lab import EMA, DiffusionModule, LoopSampler
from diffusion_lab.averaging import PowerFunction
from diffusion_lab.callbacks import Checkpoint, Progress, Validation
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.timesteps import GradientVariance, Uniform
from tests.training.test_plain_lightning import data, module, sampling, trainer

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning, about its own features


class StopAfter(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step >= self.step


def with_frozen_part() -> DiffusionModule:
    made = module()
    made.network.frozen = nn.BatchNorm2d(1).eval()
    return made


def test_a_part_that_is_frozen_in_eval_mode_stays_so_after_evaluations() -> None:
    made = with_frozen_part()
    trainer(sampling(), EMA([0.9]), Validation(every=1), max_steps=2).fit(made, datamodule=data())
    assert made.network.training and not made.network.frozen.training


class Merged(nn.Conv2d):
    """Merges something into its weights for evaluations, as LoRA does."""

    merged = False

    def train(self, mode: bool = True) -> nn.Module:
        self.merged = not mode
        return super().train(mode)


def test_a_module_that_acts_on_its_mode_is_told_of_it() -> None:
    outer = nn.Sequential(Merged(1, 1, 1), nn.Sequential(Merged(1, 1, 1), nn.BatchNorm2d(1))).train()
    outer[1][1].eval()
    with eval_mode(outer):
        assert outer[0].merged and outer[1][0].merged and not outer.training
    assert not outer[0].merged and not outer[1][0].merged and outer[1].training and not outer[1][1].training


def test_a_probe_leaves_a_frozen_part_of_a_loops_network_as_it_is() -> None:
    network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1)).train()
    network[1].eval()

    def losses(x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        return network(x0 + eps).square().mean((1, 2, 3))

    timesteps = LoopSampler(GradientVariance(20, every=1), losses=losses, network=network, seed=0)
    x0 = torch.zeros(8, 1, 8, 8)
    timesteps.draw(x0)
    timesteps.observe(torch.ones(8))
    timesteps.draw(x0)
    assert network.training and network[0].training and not network[1].training


def test_a_batch_is_divided_as_the_trainer_accumulates() -> None:
    with pytest.raises(ValueError, match="^accumulate=1 must be the trainer's accumulate_grad_batches=2, into which"):
        trainer(sampling(), max_epochs=1, accumulate_grad_batches=2).fit(module(), datamodule=data())
    trainer(sampling(), max_epochs=1, accumulate_grad_batches=2).fit(module(), datamodule=data(accumulate=2))


def test_a_smaller_last_microbatch_has_rows_of_its_own() -> None:
    x0 = torch.zeros(8, 1, 8, 8)
    cut, whole = (LoopSampler(Uniform(1000), seed=0, accumulate=2) for _ in range(2))
    first, second = cut.draw(x0).t, cut.draw(x0[:4]).t
    assert torch.equal(first, whole.draw(x0).t) and torch.equal(second, whole.draw(x0).t[:4])
    assert not torch.equal(second, first[4:])


def test_an_average_is_of_one_training() -> None:
    ema = EMA([0.999], warmup=False)
    for seed in (0, 1):
        made = module()
        with torch.no_grad():
            for weight in made.parameters():
                weight += seed  # far from the other one's
        before = {name: weight.detach().clone() for name, weight in made.denoiser.named_parameters()}
        trainer(sampling(), ema, max_steps=1).fit(made, datamodule=data())
        average = ema.state_dict()["0.999"]
        assert max(float((average[name] - weight).abs().max()) for name, weight in before.items()) < 0.1


def test_no_average_of_another_module_is_measured_or_goes_on() -> None:
    ema, first, second = EMA([0.999], warmup=False), module(), module()
    with torch.no_grad():
        for weight in second.parameters():
            weight += 1
    trainer(sampling(), ema, max_steps=1).fit(first, datamodule=data())
    averages = {name: weight.clone() for name, weight in ema.state_dict()["0.999"].items()}
    seen = list[bool]()

    class Looks(Callback):
        def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
            weights = dict(pl_module.denoiser.named_parameters())
            seen.append(all(torch.equal(weights[name], value) for name, value in averages.items()))

    for one in (first, second):
        trainer(ema, Looks(), limit_val_batches=1).validate(one, datamodule=data(), verbose=False)
    assert seen == [True, False]
    copied = copy.deepcopy(ema)
    trainer(sampling(), copied, max_steps=1).fit(second, datamodule=data())
    moved = max(float((value - averages[name]).abs().min()) for name, value in copied.state_dict()["0.999"].items())
    assert moved > 0.5


@pytest.mark.parametrize("last", [3, 4])
def test_a_training_that_ends_early_has_a_checkpoint_of_its_end(last: int, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    early = trainer(sampling(), Checkpoint(folder, every=2), StopAfter(last), max_steps=100, default_root_dir=tmp_path)
    early.fit(module(), datamodule=data())
    assert torch.load(folder / "last.ckpt", weights_only=False)["global_step"] == last == early.global_step


def test_no_end_is_written_from_which_a_run_would_not_go_on(tmp_path: Path) -> None:
    cut = trainer(
        sampling(), Checkpoint(tmp_path / "c", every=4), StopAfter(6), max_epochs=3, default_root_dir=tmp_path
    )
    cut.fit(module(), datamodule=data())
    assert cut.global_step == 6 and torch.load(tmp_path / "c" / "last.ckpt", weights_only=False)["global_step"] == 4


def test_progress_of_a_training_without_a_number_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = trainer(
        sampling(), Progress(tmp_path, line_every=1000), StopAfter(9), max_epochs=-1, default_root_dir=tmp_path
    )
    shown.fit(module(), datamodule=data())
    said = capsys.readouterr().out
    assert "eta" not in said and "/-1" not in said and said.count("images/s") <= 1


def test_a_training_does_not_replace_the_snapshots_of_another(tmp_path: Path) -> None:
    def fit() -> None:
        ema = EMA(rule=PowerFunction(snapshot_every=1))
        trainer(sampling(), ema, max_steps=2, default_root_dir=tmp_path).fit(module(), datamodule=data())

    fit()
    there = {path: path.read_bytes() for path in (tmp_path / "averages").glob("*/*")}
    with pytest.raises(
        ValueError, match="must not have snapshots of another training, .* use another default_root_dir"
    ):
        fit()
    assert there == {path: path.read_bytes() for path in (tmp_path / "averages").glob("*/*")} and len(there) == 4
