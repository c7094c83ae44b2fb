"""The features of a trained run's network, against the network called by hand, and runs that cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from diffusion_lab.auxiliary import REPA, RunNetwork
from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.streams import Streams
from tests.analyses.models import trained
from tests.auxiliary.small import Net, module

X0 = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1


def run(**data: Any) -> TrainedRun:
    made = TrainedRun("teacher", "0" * 12)
    model = trained(Net(), Digits())
    model.data = ImageDataModule(Digits(), batch_size=8, **data)
    made.open(model)
    return made


def test_the_features_are_those_of_the_clean_image_at_the_timestep() -> None:
    teacher = run()
    model: Any = teacher.opened().denoiser
    kept: list[Tensor] = []
    model.network.first.register_forward_hook(lambda layer, inputs, result: kept.append(result))
    for t in (0, 30):
        found = RunNetwork(teacher, "first", t).by_place(X0)
        model.network(X0 * model.schedule.alpha(torch.tensor([t]), 4, torch.float32), torch.full((3,), t))
        assert torch.equal(found, kept[-1]) and not found.requires_grad
    assert not torch.equal(kept[0], kept[-1])


def test_the_teacher_is_not_trained() -> None:
    teacher = run()
    of = module(auxiliary={"repa": REPA(RunNetwork(teacher, "first"), ["first"], hidden=8)})
    of.auxiliary.build(of.network, X0[:1], {}, Streams(0))
    names = [name for name, _ in of.auxiliary.named_parameters()]
    assert len(names) == 6 and all(name.startswith("repa.projector.") for name in names)
    of.training_step({"image": X0}, 0)["loss"].backward()
    assert all(parameter.grad is None for parameter in teacher.opened().denoiser.parameters())


@pytest.mark.parametrize(
    ("given", "data", "words"),
    [
        ({"layer": "fourth"}, {}, "layer=fourth must be a module inside Net"),
        ({"t": 50}, {}, "t=50 must be a timestep of teacher, below 50; use 0"),
        ({}, {"conditional": True}, "run.run=teacher must answer without conditions, and takes label; use a run"),
    ],
)
def test_a_run_that_cannot_be_asked(given: dict[str, Any], data: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        RunNetwork(run(**data), given.get("layer", "first"), given.get("t", 0)).check()
    fits = RunNetwork(run(), "first")
    fits.check()
    assert fits.takes((1, 8, 8)) and not fits.takes((1, 14, 14))


def test_a_layer_that_is_never_called_is_found_before_training() -> None:
    teacher = run()
    model: Any = teacher.opened().denoiser
    model.network.unused = torch.nn.Identity()
    with pytest.raises(ValueError, match="^layer=unused must be a module that the network of teacher calls"):
        RunNetwork(teacher, "unused").check()
