"""What is added to the loss, its weight over the steps, what the layers give, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from diffusion_lab.auxiliary import Auxiliary, Frozen
from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.diffusion import Step
from diffusion_lab.failure import Failure, WrongResult
from diffusion_lab.streams import Position
from tests.auxiliary.small import Net, T, at, images, module, stepped


class Late(Auxiliary):
    """(t + 1)/T."""

    def rows(self, step: Any) -> Tensor:
        self.seen = step
        return (step.t + 1) / T


class Projected(Auxiliary):
    """The mean square of what a layer returns, times a weight of its own."""

    layers = ("first",)

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def rows(self, step: Any) -> Tensor:
        self.seen = step
        return self.scale * step.features["first"].square().flatten(1).mean(1)


def test_the_mean_of_the_rows_is_added_with_its_weight_and_recorded() -> None:
    plain, late = stepped(module()), Late(weight=0.5)
    result = stepped(module(auxiliary={"late": late}))
    rows = result["record"].auxiliary["late"]
    assert torch.equal(rows, (result["record"].t + 1) / T) and rows.std() > 0
    assert torch.allclose(result["loss"] - plain["loss"], 0.5 * rows.mean(), atol=1e-6)
    assert torch.equal(result["record"].objective, plain["record"].objective) and not plain["record"].auxiliary


def test_a_step_has_what_the_loss_was_computed_from() -> None:
    late = Late()
    of = module(auxiliary={"late": late})
    record, step = stepped(of)["record"], late.seen
    assert torch.equal(step.x0, images()) and torch.equal(step.eps, of.noise(images()))
    s = of.denoiser.schedule.position[step.t].float()[:, None, None, None]
    assert torch.allclose(step.x_t, (1 - s) * step.x0 + s * step.eps, atol=1e-6)
    assert torch.equal(step.out, of.network(step.x_t, step.t)) and step.out.requires_grad
    assert torch.equal(step.denoiser.target(step.x0, step.eps, step.t), step.eps - step.x0)
    assert torch.allclose((step.out - step.eps + step.x0).square().flatten(1).mean(1), record.loss)


def test_the_numbers_of_a_row_depend_neither_on_processes_nor_on_microbatches() -> None:
    of = module()

    def drawn(rows: int, position: Position, number: int = 0) -> Tensor:
        x0 = images()[:rows]
        t = torch.zeros(rows, dtype=torch.long)
        return Step(of.denoiser, x0, x0, t, {}, x0, x0, position, of.streams).uniform(number)

    whole = drawn(6, Position(4))
    for parts in ([Position(4, r, 2) for r in range(2)], [Position(4, 0, 1, m, 3) for m in range(3)]):
        assert torch.equal(torch.cat([drawn(6 // len(parts), part) for part in parts]), whole)
    assert not torch.equal(whole, drawn(6, Position(5))) and not torch.equal(whole, drawn(6, Position(4), 1))


def test_the_weight_rises_and_ends() -> None:
    one = Late(weight=2.0, ramp=4, stop=6)
    assert [one.weight_at(k) for k in range(8)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 0.0, 0.0]
    plain = stepped(at(module(), 6))["loss"]
    ended = stepped(at(module(auxiliary={"late": one}), 6))
    assert torch.equal(ended["loss"], plain) and not ended["record"].auxiliary and not hasattr(one, "seen")


def test_the_weights_of_an_ended_loss_get_the_gradient_0() -> None:
    of = at(module(auxiliary={"own": Projected(stop=1)}), 1)
    stepped(of)["loss"].backward()
    assert of.auxiliary["own"].scale.grad == 0 and of.network.second.weight.grad.norm() > 0


def gradients(compiled: bool = False, **more: Any) -> dict[str, Tensor]:
    of = module(auxiliary={"own": Projected()}, **more)
    if compiled:
        of.network.compile(backend="aot_eager")  # as a run does, whose own backend needs a C++ compiler
        of.denoiser.eval().estimate(images(), torch.zeros(6, dtype=torch.long))
        of.train()
    stepped(of)["loss"].backward()
    return {name: p.grad for name, p in of.named_parameters()}


def test_layers_are_the_same_where_activations_are_computed_again() -> None:
    kept, again = gradients(), gradients(network=Net(recompute=True))
    assert kept.keys() == again.keys() and "auxiliary.own.scale" in kept
    assert all(torch.equal(kept[name], again[name]) for name in kept)
    plain = module()
    stepped(plain)["loss"].backward()
    assert not torch.equal(plain.network.first[0].weight.grad, kept["denoiser.network.first.0.weight"])


def test_layers_are_the_same_in_a_compiled_network() -> None:
    kept, compiled = gradients(), gradients(compiled=True)
    assert kept.keys() == compiled.keys()
    assert all(torch.allclose(kept[name], compiled[name], atol=1e-6) for name in kept)


def test_layers_are_kept_in_training_steps_alone() -> None:
    of = module(auxiliary={"own": Projected()})
    of.denoiser.estimate(images(), torch.zeros(6, dtype=torch.long))
    assert of.auxiliary._kept == {}
    stepped(of)
    assert of.auxiliary._kept == {}  # nor longer than the step


@pytest.mark.parametrize("name", ["third", "", "first.9"])
def test_a_layer_that_does_not_exist_is_refused(name: str) -> None:
    loss = Projected()
    loss.layers = (name,)
    with pytest.raises(ValueError, match=f"^auxiliary.own.layers={name} must be a module inside Net.*first.0"):
        module(auxiliary={"own": loss})


def test_a_layer_that_is_not_called_ends_the_run_with_a_sentence() -> None:
    loss = Late()
    loss.layers = ("unused",)
    with pytest.raises(Failure, match="layers=unused must be called in a training step"):
        stepped(module(auxiliary={"late": loss}))


def test_rows_of_another_shape_end_the_run_with_a_sentence() -> None:
    class Mean(Auxiliary):
        def rows(self, step: Any) -> Tensor:
            return step.out.mean()

    with pytest.raises(WrongResult, match=r"Mean.rows must return a tensor of shape \(6,\), and returned Tensor of"):
        stepped(module(auxiliary={"mean": Mean()}))


@pytest.mark.parametrize(
    ("given", "said"),
    [({"weight": float("nan")}, "weight=nan"), ({"ramp": -1}, "ramp=-1"), ({"stop": 0}, "stop=0")],
)
def test_arguments_out_of_range(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Late(**given)


def test_a_loss_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Auxiliary must define rows\(step\)"):
        Auxiliary()


def test_a_frozen_network_follows_and_is_neither_trained_nor_saved() -> None:
    class Teacher(Auxiliary):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.teacher = Frozen(network)

        def rows(self, step: Any) -> Tensor:
            return (self.teacher(step.x_t) - step.out).square().flatten(1).mean(1)

    network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Dropout(0.5))
    of = module(auxiliary={"teacher": Teacher(network)})
    assert not network.training and of.train() is of and not network.training
    assert not [name for name in (*of.state_dict(), *dict(of.named_parameters())) if "teacher" in name]
    stepped(of)["loss"].backward()
    assert network[0].weight.grad is None and of.network.first[0].weight.grad.norm() > 0
    of.double()
    assert network[0].weight.dtype == torch.float64


@pytest.mark.filterwarnings("ignore")  # of Lightning, about its own features
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_trainer_of_ones_own_logs_the_mean_and_refuses_microbatches(accumulate: int) -> None:
    quiet_libraries()
    late = Late()
    late.of_batch = accumulate == 2
    of, loader = module(auxiliary={"late": late}), DataLoader(TensorDataset(images(12).clamp(-1, 1)), batch_size=6)
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = Trainer(accelerator="cpu", max_epochs=1, accumulate_grad_batches=accumulate, **quiet)
    if late.of_batch:
        with pytest.raises(ValueError, match="^accumulate=2 must be 1 with auxiliary.late=Late"):
            trainer.fit(of, loader)
        return
    seen: list[Tensor] = []
    late.register_forward_hook(lambda loss, given, rows: seen.append(rows.mean()))
    trainer.fit(of, loader)
    assert len(seen) == 2
    assert float(trainer.callback_metrics["train/aux_late"]) == pytest.approx(float(sum(seen)) / 2, rel=1e-6)
