"""The guard stops in the bad step, names what was in it, and leaves good checkpoints."""

import re

import pytest
import torch

from diffusion_lab.callbacks import Guard
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.training import NotFinite
from diffusion_lab.training.checkpoint_io import load
from diffusion_lab.training.finite import not_finite
from tests.harness import configuration, differences, train_child, trained

slow = pytest.mark.slow
NAN = float("nan")


def poison_the_loss(bad, row=3):
    """At the bad-th training call; before the weighting."""

    def poison():
        from diffusion_lab.diffusion import Denoiser

        original, calls = Denoiser.loss, iter(range(1, 1000))

        def loss(self, x0, eps, t, **cond):
            result = original(self, x0, eps, t, **cond)
            if torch.is_grad_enabled() and next(calls) == bad:
                result.parts.loss[row] = result.parts.loss[row] * NAN
            return result

        Denoiser.loss = loss

    return poison


def everything_finite(folder):
    files = sorted((folder / "checkpoints").glob("*.ckpt"))
    assert files
    for path in files:
        content = load(path)
        parts = [content["state_dict"], content["optimizer_states"], content["callbacks"]]
        assert not_finite(parts, ["config"]) is None, path
    return load(folder / "checkpoints" / "last.ckpt")["global_step"]


@slow
@pytest.mark.parametrize(
    ("bad", "accumulate"),
    [(11, 1), (17, 2), *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in ((18, 1), (18, 2)))],
)
def test_a_loss_that_is_not_finite_stops_the_run(bad, accumulate, tmp_path):
    folder = tmp_path / "run"
    cfg = configuration(folder, "max_steps=20", f"accumulate={accumulate}", "~callbacks.validation")
    child = train_child(cfg, poison_the_loss(accumulate * bad))
    assert child.wait() == 1
    log = child.log.read_text()
    assert f"the loss is not finite at optimizer step {bad}, timesteps [" in log and "of images [" in log
    assert everything_finite(folder) == (bad - 1) // 3 * 3


@slow
def test_the_run_goes_on_when_the_cause_is_gone(tmp_path):
    straight = trained(configuration(tmp_path / "a" / "run", "max_steps=12"))
    cfg = configuration(tmp_path / "b" / "run", "max_steps=12")
    assert train_child(cfg, poison_the_loss(8)).wait() == 1
    assert differences(straight, trained(cfg)) == []


@slow
@pytest.mark.parametrize("every", [1, 1000])
def test_a_weight_that_overflows_is_named_in_its_step_and_never_saved(every, tmp_path):
    folder = tmp_path / "run"
    hot = ["optimizer.lr=1e38", "gradient_clip=null", f"checkpoint_every={every}", "snapshot_every=0"]
    child = train_child(configuration(folder, "max_steps=9", *hot))
    assert child.wait() == 1
    assert re.search(r"the weight denoiser\.\S+ is not finite at optimizer step 1, timesteps \[", child.log.read_text())
    assert list((folder / "checkpoints").glob("*")) == []


def poison_the_policy():
    from diffusion_lab.timesteps import LossSecondMoment

    original = LossSecondMoment.observe

    def observe(self, record, context):
        original(self, record, context)
        if context.step == 6:  # the update from step 6 to 7
            self.history[0, 0] = NAN

    LossSecondMoment.observe = observe


@slow
def test_a_sampler_that_is_not_finite_is_named_and_the_run_goes_on_without_the_fault(tmp_path):
    overrides = ["max_steps=12", "sampler=loss_second_moment", "sampler.history_per_timestep=2"]
    straight = trained(configuration(tmp_path / "a" / "run", *overrides))
    folder = tmp_path / "b" / "run"
    cfg = configuration(folder, *overrides)
    child = train_child(cfg, poison_the_policy)
    assert child.wait() == 1
    assert "the sampler's history is not finite at optimizer step 7" in child.log.read_text()
    assert everything_finite(folder) == 6
    assert differences(straight, trained(cfg)) == []


def run_of(tmp_path, *overrides):
    quiet_libraries()
    quiet = ["log_every=1000", "snapshot_every=0", "checkpoint_every=0", "max_steps=4"]
    cfg = configuration(tmp_path / "run", *quiet, *overrides)
    return build_run(cfg, facts(cfg))


def fit(run):
    run.trainer.fit(run.module, datamodule=run.data)


def test_a_draws_weight_is_named_with_its_row(tmp_path):
    run = run_of(tmp_path)
    sampler = next(c.sampler for c in run.trainer.callbacks if hasattr(c, "sampler"))
    original = sampler.draw

    def draw(x0, context):
        t, weight = original(x0, context)
        if context.step == 1:
            weight[5] = float("inf")
        return type(original(x0, context))(t, weight)

    sampler.draw = draw
    with pytest.raises(NotFinite, match=r"^the draw's weight is not finite at optimizer step 2, timesteps \[\d+\] of"):
        fit(run)


# Without clipping there is no norm: read later, it is a weight that is named.
@pytest.mark.parametrize(("clip", "every"), [("1.0", None), ("null", None), ("1.0", 3)])
def test_a_gradient_is_named_in_its_step(clip, every, tmp_path):
    run = run_of(tmp_path, f"gradient_clip={clip}")
    weight = next(run.module.denoiser.parameters())
    calls = iter(range(1, 100))
    weight.register_hook(lambda gradient: gradient * NAN if next(calls) == 2 else gradient)
    guard = next(c for c in run.trainer.callbacks if isinstance(c, Guard))
    if every:
        as_on_a_gpu(guard, every)
    with pytest.raises(NotFinite, match=r"^the gradient is not finite at optimizer step 2, timesteps \["):
        fit(run)


def as_on_a_gpu(guard, every):
    """It reads every few steps alone, and goes through those between."""
    original = guard.on_train_start

    def start(trainer, module):
        original(trainer, module)
        guard._on_cpu, guard.every = False, every

    guard.on_train_start = start


@pytest.mark.parametrize("every", [1, 4])
def test_the_sums_find_a_weight_wherever_it_is(every, tmp_path):
    """Small and large tensors, contiguous and channels_last."""
    from diffusion_lab.callbacks import guard as module

    for number, layout in enumerate(["true", "false"]):
        run = run_of(tmp_path / f"{number}", f"channels_last={layout}")
        guard = next(c for c in run.trainer.callbacks if isinstance(c, Guard))
        small = module.SMALL
        try:
            module.SMALL = 300  # so that there are both kinds
            guard.on_train_start(run.trainer, run.module)
        finally:
            module.SMALL = small
        assert guard._small and guard._large
        for name, parameter in run.module.named_parameters():
            assert torch.isfinite(guard._weights())
            with torch.no_grad():
                last = tuple(size - 1 for size in parameter.shape)
                kept = parameter[last].clone()
                parameter[last] = float("inf")
                assert not torch.isfinite(guard._weights()), name
                parameter[last] = kept


def test_a_sum_that_overflows_is_no_fault(tmp_path):
    run = run_of(tmp_path)
    with torch.no_grad():
        for parameter in list(run.module.parameters())[-2:]:
            parameter.fill_(3e38)  # finite; the losses that follow are not
    guard = next(c for c in run.trainer.callbacks if isinstance(c, Guard))
    guard.on_train_start(run.trainer, run.module)
    assert not torch.isfinite(guard._weights())
    assert not_finite(dict(run.module.named_parameters())) is None


@pytest.mark.parametrize(
    ("tree", "allowed", "name"),
    [
        ({"a": {"b": [1.0, NAN]}}, [], "a.b[1]"),
        ({"a": torch.ones(3), "b": torch.tensor([1.0, float("-inf")])}, [], "b"),
        ({"a": torch.tensor([2, 3]), "c": 7, "d": "nan", "e": None, "f": ()}, [], None),
        ({"best": float("inf"), "c": {"best": torch.tensor(NAN)}}, ["best"], None),
        ({"best": float("inf"), "c": NAN}, ["best"], "c"),
        ({}, [], None),
    ],
)
def test_where_a_number_is_not_finite(tree, allowed, name):
    assert not_finite(tree, allowed) == name


def test_what_is_declared_may_be_infinite(tmp_path):
    from diffusion_lab.callbacks.base import RunCallback

    class Best(RunCallback):
        def state_dict(self):
            return {"best": float("inf")}

    run = run_of(tmp_path)
    run.trainer.callbacks.append(Best())
    with pytest.raises(NotFinite, match=r"Best\.best is not finite after optimizer step 4, so its checkpoint was not"):
        fit(run)
    assert list((tmp_path / "run" / "checkpoints").glob("*")) == []
    Best.may_be_infinite = ("best",)
    run = run_of(tmp_path)
    run.trainer.callbacks.append(Best())
    fit(run)
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
