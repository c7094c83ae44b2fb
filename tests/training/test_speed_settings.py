"""`precision`, `channels_last` and `compile` change how fast a step is, and without dropout the rounding alone.

Adam divides by the root of a gradient's mean square, so with its usual eps a gradient that is all rounding becomes a
whole step. Here eps = 0.01 keeps weights a smooth function of gradients, and two layouts can be compared.
"""

from functools import partialmethod

import pytest
import torch
from torch import nn

from diffusion_lab.callbacks import EMA, TimestepLog, TimestepSampling
from diffusion_lab.callbacks.base import StepCallback, find
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.diffusion.likelihood import vlb_terms
from diffusion_lab.testing import same
from diffusion_lab.training.run_module import match_layout
from tests.ddp.test_methods import CASES, METHODS, STEPS, configured
from tests.harness import final_state, train_child, trained

QUIET = ["optimizer.eps=0.01", "~callbacks.validation", "~callbacks.checkpoint", "~callbacks.progress", "logger=none"]
ROUNDING = 1e-6  # of a loss or of a weight after 4 steps; seen: 1.2e-7 between layouts, 3e-5 to 8e-5 with bfloat16


class Records(StepCallback):
    """Keeps the records of all steps."""

    def __init__(self):
        self.kept = []

    def on_step_end(self, trainer, module, step, records):
        self.kept += records


class Trained:
    """4 steps of a method, as `diffusion-lab train` takes them, with other values of some keys."""

    def __init__(self, folder, method, *overrides, **changed):
        cfg = configured(folder / "run", f"method={method}", "max_steps=4", *QUIET, *overrides)
        for key, value in changed.items():  # 0.3 s less than another composition
            cfg[key] = value
        seen = Records()
        quiet_libraries()
        self.run = build_run(cfg, {"config": {}, "config_hash": ""}, [seen])
        self.run.trainer.fit(self.run.module, datamodule=self.run.data)
        self.records, self.denoiser, self.trainer = seen.kept, self.run.module.denoiser, self.run.trainer
        self.losses = torch.stack([record.loss for record in seen.kept])
        self.weights = {name: p.detach() for name, p in self.denoiser.named_parameters()}

    def far(self, other):
        """Largest difference of a loss, relative to 1 + the loss, and of a weight."""
        losses = ((self.losses - other.losses).abs() / (1 + other.losses)).max()
        weights = max((p - other.weights[name]).abs().max() for name, p in self.weights.items())
        return float(losses), float(weights)


def convolutions(network):
    return [m.weight for m in network.modules() if isinstance(m, nn.Conv2d) and min(m.weight.shape[1:3]) > 1]


@pytest.mark.slow
@pytest.mark.parametrize("method", CASES)
def test_a_method_keeps_its_numbers_in_both_settings(method, tmp_path):
    """Rows or channels that the layout confuses would change the numbers by more than bfloat16 does."""
    usual = Trained(tmp_path / "usual", method, channels_last=False)
    both = Trained(tmp_path / "both", method, precision="bf16-mixed", channels_last=True, log_every=100)
    check_layouts(both, usual)
    check_precision(both, usual)


ALONE = ("combined", "ddpm", "learned_beta")  # several heads, one, a sampler with gradients of its own


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [*ALONE, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in METHODS if name not in ALONE)]
)
def test_the_layout_changes_the_rounding_alone(method, tmp_path):
    usual = Trained(tmp_path / "usual", method, channels_last=False)
    last = Trained(tmp_path / "last", method, channels_last=True)
    check_layouts(last, usual)
    assert max(last.far(usual)) < ROUNDING


def check_layouts(last, usual):
    assert all(w.is_contiguous(memory_format=torch.channels_last) for w in convolutions(last.denoiser.network))
    assert not any(w.is_contiguous(memory_format=torch.channels_last) for w in convolutions(usual.denoiser.network))


def check_precision(half, usual):
    """What is recorded and averaged stays in float32 or better, and the network does compute in bfloat16."""
    assert 10 * ROUNDING < max(half.far(usual)) < 1e-3
    for record in half.records:
        tensors = [record.loss, record.objective, *([] if record.errors is None else [record.errors])]
        assert {value.dtype for value in tensors} == {torch.float32}
    assert {p.dtype for p in half.weights.values()} == {torch.float32}
    states = [v for state in half.trainer.optimizers[0].state.values() for v in state.values()]
    assert {value.dtype for value in states} == {torch.float32}
    averages = find(half.trainer, EMA).state_dict().values()
    assert {value.dtype for average in averages for value in average.values()} == {torch.float32}
    assert find(half.trainer, TimestepLog).state_dict()["tables"].dtype == torch.float64
    sampler = find(half.trainer, TimestepSampling).sampler
    kept = [v for v in sampler.state_dict().values() if isinstance(v, torch.Tensor) and v.is_floating_point()]
    assert {value.dtype for value in kept} <= {torch.float32, torch.float64}
    x0, t = half.records[0].x0, half.records[0].t
    cond = half.records[0].cond
    inner = []
    half.denoiser.network.middle[0].res.conv1.register_forward_hook(lambda _, __, out: inner.append(out.dtype))
    with half.trainer.strategy.precision_plugin.forward_context():
        bound = vlb_terms(half.denoiser, x0, torch.zeros_like(x0), t, **cond)
        answer = half.denoiser.network(x0, t, **cond)
    assert bound.dtype == torch.float32
    assert set(inner) == {torch.bfloat16} and answer.dtype == torch.float32


def test_a_default_run_is_channels_last_in_float32_alone(tmp_path):
    default = Trained(tmp_path / "a", "ddpm")
    chosen = Trained(tmp_path / "b", "ddpm", "channels_last=true")
    half = Trained(tmp_path / "c", "ddpm", "precision=bf16-mixed")
    assert same(default.weights, chosen.weights)
    assert not any(w.is_contiguous(memory_format=torch.channels_last) for w in convolutions(half.denoiser.network))


@pytest.mark.slow
def test_a_compiled_network_trains_alike_under_the_same_names(tmp_path, monkeypatch):
    # The graphs are taken and run as torch.compile takes them; its kernels, minutes of a C++ compiler, are its own.
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend="aot_eager"))
    small = ["network.channel_multipliers=[1]", "network.base_channels=4"]
    compiled = Trained(tmp_path / "a", "ddpm", "compile=true", *small)
    usual = Trained(tmp_path / "b", "ddpm", *small)
    assert compiled.denoiser.network._compiled_call_impl is not None
    assert compiled.run.module.state_dict().keys() == usual.run.module.state_dict().keys()
    assert max(compiled.far(usual)) < ROUNDING
    assert max(usual.far(Trained(tmp_path / "c", "ddpm", "seed=1", *small))) > 1000 * ROUNDING


def stepped(layout, fit=match_layout):
    """A weight in channels last after two fused steps, between which its moments were saved in `layout`."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(8, 4, 3, 3).contiguous(memory_format=torch.channels_last))
    first, second = (torch.optim.Adam([weight], lr=0.1, fused=True) for _ in range(2))
    weight.grad = torch.randn_like(weight)
    first.step()
    saved = first.state_dict()
    for key in ("exp_avg", "exp_avg_sq"):
        saved["state"][0][key] = saved["state"][0][key].contiguous(memory_format=layout)
    second.load_state_dict(saved)
    fit(second)
    weight.grad = torch.randn_like(weight)
    second.step()
    return weight.detach()


def test_a_run_may_go_on_in_another_layout():
    same_layout = stepped(torch.channels_last)
    assert torch.equal(stepped(torch.contiguous_format), same_layout)
    assert not torch.equal(stepped(torch.contiguous_format, fit=lambda optimizer: None), same_layout)


@pytest.mark.slow
def test_a_run_of_the_usual_layout_goes_on_as_channels_last(tmp_path):
    usual = ["method=ddpm", "optimizer.eps=0.01", "channels_last=false"]
    straight = trained(configured(tmp_path / "a" / "run", *usual))
    other = configured(tmp_path / "b" / "run", *usual, "max_steps=4")
    train_child(other).succeed()
    other.channels_last, other.max_steps = True, STEPS
    train_child(other).succeed()
    weights = final_state(tmp_path / "b" / "run")["weights"]
    assert all(torch.allclose(weights[name], value, atol=ROUNDING) for name, value in straight["weights"].items())
