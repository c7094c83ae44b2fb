"""A step whose parts are overridden one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor

from diffusion_lab.auxiliary import Contrastive
from diffusion_lab.diffusion.coupling import MinibatchOT, Offset
from diffusion_lab.failure import WrongResult
from diffusion_lab.training import DiffusionModule
from diffusion_lab.training.auxiliary_losses import accumulation_faults, single_row_faults
from diffusion_lab.training.module import Losses, Pairs
from tests.auxiliary.small import at, images, module, stepped
from tests.auxiliary.test_auxiliary import Late


@dataclass(frozen=True)
class Two(Pairs):
    """Pairs at two timesteps."""

    s: Tensor


class Consistent(DiffusionModule):
    """The distance of the estimates of x0 at t and at max(t - 3, 0), as in consistency training."""

    def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Two:
        pairs = super().pair(x0, cond)
        return Two(**vars(pairs), s=(pairs.t - 3).clamp(min=0))

    def losses(self, pairs: Two) -> Losses:
        at_t, at_s = (
            self.denoiser.estimate(self.denoiser.schedule.perturb(pairs.x0, pairs.eps, t), t).x0
            for t in (pairs.t, pairs.s)
        )
        loss = (at_t - at_s.detach()).square().flatten(1).mean(1)
        return Losses(loss, 2 * loss)


class Largest(DiffusionModule):
    def total(self, pairs: Pairs, losses: Losses) -> Tensor:
        return losses.objective.max()


def test_an_own_pair_and_own_losses_are_what_is_trained_and_recorded() -> None:
    of, plain = module(kind=Consistent), module()
    result, usual = stepped(of), stepped(plain)["record"]
    record = result["record"]
    assert torch.equal(record.t, usual.t) and torch.equal(record.x0, usual.x0) and record.weight.eq(1).all()
    pairs = at(module(kind=Consistent), 0).pair(images(), {})
    assert torch.equal(pairs.s, (record.t - 3).clamp(min=0)) and torch.equal(pairs.eps, plain.noise(images()))
    expected = of.losses(pairs).loss
    assert torch.equal(record.loss, expected) and torch.equal(record.objective, 2 * expected)
    assert torch.equal(result["loss"], (2 * expected).mean()) and not torch.equal(record.loss, usual.loss)
    result["loss"].backward()
    assert of.network.second.weight.grad.norm() > 0


def test_an_own_total() -> None:
    result = stepped(module(kind=Largest, auxiliary={"late": Late(weight=0.5)}))
    added = 0.5 * result["record"].auxiliary["late"].mean()
    assert torch.allclose(result["loss"], result["record"].objective.max() + added)


def test_auxiliary_losses_need_what_own_losses_must_then_give() -> None:
    with pytest.raises(WrongResult, match="Consistent.losses must return Losses with x_t and out"):
        stepped(module(kind=Consistent, auxiliary={"late": Late()}))


def test_what_is_given_to_a_step_may_be_replaced() -> None:
    """The noise that is drawn, here shifted."""

    class Perturbed(DiffusionModule):
        def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Pairs:
            pairs = super().pair(x0, cond)
            return replace(pairs, eps=pairs.eps + 0.1)

    of, plain = module(kind=Perturbed), module()
    assert torch.equal(of.pair(images(), {}).eps, plain.noise(images()) + 0.1)


def test_a_loss_that_compares_rows_has_two() -> None:
    (fault,) = single_row_faults(1, {"auxiliary.away": Contrastive()})
    assert fault.startswith("batch_size=1 must be at least 2 with auxiliary.away=Contrastive, which compares the rows")
    assert [*single_row_faults(2, {"auxiliary.away": Contrastive()})] == []


class Ranked(DiffusionModule):
    """Weights by the ranks of the losses in the batch."""

    of_batch = True


@pytest.mark.filterwarnings("ignore")  # of Lightning, about its own features
def test_a_step_that_compares_rows_is_not_accumulated() -> None:
    said = "accumulate=2 must be 1 with model=Ranked, which compares the rows of the whole batch; use accumulate=1 and"
    (fault,) = accumulation_faults(2, {"model": Ranked, "coupling": Offset(0.1), "auxiliary.none": None})
    assert fault.startswith(said) and fault.endswith("or model=diffusion")
    (fault,) = accumulation_faults(2, {"model": Largest, "coupling": MinibatchOT()})
    assert "coupling=MinibatchOT, which compares" in fault and fault.endswith("or coupling=null")
    assert [*accumulation_faults(1, {"model": Ranked, "coupling": MinibatchOT()})] == []
    loader = torch.utils.data.DataLoader(list(images()), batch_size=3)  # pyright: ignore[reportArgumentType]
    trainer = Trainer(accelerator="cpu", accumulate_grad_batches=2, max_steps=1, logger=False, barebones=True)
    with pytest.raises(ValueError, match=said):
        trainer.fit(module(kind=Ranked), loader)
    paired = module()
    paired.coupling = MinibatchOT()
    trainer = Trainer(accelerator="cpu", accumulate_grad_batches=2, max_steps=1, logger=False, barebones=True)
    with pytest.raises(ValueError, match="coupling=MinibatchOT, which compares"):
        trainer.fit(paired, loader)
