"""Averages against the recursion by hand."""

import types

import pytest
import torch
from torch import nn

from diffusion_lab.callbacks import EMA


class Holder(nn.Module):
    """Looks like the LightningModule to the callback."""

    def __init__(self):
        super().__init__()
        self.model = nn.Linear(3, 2)
        self.model.register_buffer("table", torch.ones(5))


def run(ema, holder, steps, first=1):
    trainer = types.SimpleNamespace(callbacks=[ema])
    ema.on_fit_start(trainer, holder)
    history = []
    for step in range(first, first + steps):
        with torch.no_grad():
            for p in holder.parameters():
                p.add_(torch.full_like(p, float(step)))
        ema.on_step_end(trainer, holder, step, [])
        history.append(holder.model.weight.detach().clone())
    return history


@pytest.mark.parametrize("warmup", [False, True])
def test_averages_follow_their_recursion(warmup):
    torch.manual_seed(0)
    holder = Holder()
    expected = {d: holder.model.weight.detach().double() for d in (0.5, 0.99)}
    ema = EMA([0.5, 0.99], warmup)
    for step, weight in enumerate(run(ema, holder, 20), start=1):
        for decay in expected:
            d = min(decay, (1 + step) / (10 + step)) if warmup else decay
            expected[decay] = d * expected[decay] + (1 - d) * weight.double()
    for decay in expected:
        with ema.use(holder, decay):
            assert torch.allclose(holder.model.weight.double(), expected[decay], rtol=1e-5)


def test_weights_in_bfloat16_are_averaged_in_float32():
    """As with Trainer(precision="bf16-true")."""
    torch.manual_seed(0)
    holder = Holder().to(torch.bfloat16)
    ema = EMA([0.5], warmup=False)
    expected = holder.model.weight.detach().float()
    for weight in run(ema, holder, 5):
        expected = expected.lerp(weight.float(), 0.5)
    (average,) = ema.state_dict().values()
    assert torch.equal(average["weight"], expected) and average["weight"].dtype == torch.float32


def test_raw_weights_come_back_also_after_a_failure():
    holder = Holder()
    ema = EMA([0.9])
    raw = run(ema, holder, 3)[-1]
    with pytest.raises(RuntimeError, match="inside"), ema.use(holder):
        assert not torch.equal(holder.model.weight, raw)
        raise RuntimeError("inside")
    assert torch.equal(holder.model.weight, raw)


def test_buffers_are_not_averaged():
    holder = Holder()
    ema = EMA([0.9])
    run(ema, holder, 1)
    assert set(ema.state_dict()["0.9"]) == {"weight", "bias"}


def test_state_round_trip_continues_equally():
    torch.manual_seed(0)
    straight, stopped = Holder(), Holder()
    stopped.load_state_dict(straight.state_dict())
    one, two = EMA([0.9, 0.99]), EMA([0.9, 0.99])
    run(one, straight, 6)
    run(two, stopped, 3)
    three = EMA([0.9, 0.99])
    three.load_state_dict({k: {n: t.clone() for n, t in v.items()} for k, v in two.state_dict().items()})
    run(three, stopped, 3, first=4)
    for decay, average in one.state_dict().items():
        assert all(torch.equal(value, three.state_dict()[decay][name]) for name, value in average.items())


def test_a_decay_that_the_checkpoint_lacks_is_refused():
    with pytest.raises(ValueError, match=r"decays=\[0.5\] must be among the checkpoint's \['0.9'\]"):
        EMA([0.9, 0.5]).load_state_dict({"0.9": {}})


@pytest.mark.parametrize("decays", [[], [1.0], [-0.1], [float("nan")], [0.9, 0.9]])
def test_bad_decays(decays):
    with pytest.raises(ValueError, match="decays="):
        EMA(decays)
