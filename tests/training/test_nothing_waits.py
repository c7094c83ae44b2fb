"""Between two logs a step reads no number back from the device, and does no work that grows with T.

On a CPU nothing shows that the host would wait for a GPU, so the reads themselves are counted: operators that return a
Python number or a shape that depends on numbers, and the methods that go around the operators. What counts begins when
the batch is on the device and ends after the last callback; images are picked and flipped on the host, on purpose.
tests/cuda asks the same of every part, on a GPU that PyTorch pretends to have.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diffusion_lab.callbacks import Guard
from diffusion_lab.callbacks.base import StepCallback, callbacks_of, find
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from tests.harness import configuration

FIRST, FEW, MANY = 2, 6, 36  # steps that are watched; many are more than the statistics keep before they add them up
QUIET = [
    "network.base_channels=4",
    "network.channel_multipliers=[1]",
    "log_every=1000",
    "callbacks.validation=null",
    "checkpoint_every=0",
    "callbacks.progress.every=1000",  # seconds; it reads a loss then
    "callbacks.guard.every=1000",
]
READS = {"aten._local_scalar_dense", "aten.equal", "aten.nonzero", "aten.masked_select", "aten.bincount"} | {
    f"aten.{name}" for name in ("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive")
}
METHODS = ("tolist", "numpy", "cpu")


class Watch(TorchDispatchMode):
    """Counts reads, and keeps which operators gave results of which sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.sizes: Counter[tuple[str, tuple[int, ...]]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.replace("::", ".")
        self.reads[name] += name in READS or _by_mask(name, args) or _by_counts(func, kwargs or {})
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.sizes[name, tuple(leaf.shape)] += 1
        return out


def _by_mask(name: str, args: Any) -> bool:
    """x[mask] has a size that only the device knows."""
    return name == "aten.index" and any(i is not None and i.dtype == torch.bool for i in args[1])


def _by_counts(func: Any, kwargs: Any) -> bool:
    """Rows repeated as often as numbers on the device say, unless the sum of these is given."""
    return func is torch.ops.aten.repeat_interleave.Tensor and kwargs.get("output_size") is None


class Begin(Callback):
    """Before everything else of a step."""

    def __init__(self, watch: Watch, last: int) -> None:
        self.watch, self.last, self.inside = watch, last, contextlib.ExitStack()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if FIRST <= trainer.global_step < self.last:
            self.inside.enter_context(self.watch)
            for name in METHODS:
                self._count(name)

    def _count(self, name: str) -> None:
        method = getattr(Tensor, name)

        def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            self.watch.reads[name] += 1
            return method(tensor, *args, **kwargs)

        setattr(Tensor, name, counted)
        self.inside.callback(setattr, Tensor, name, method)


class End(StepCallback):
    """After everything else of a step."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        guard = find(trainer, Guard)
        assert guard is not None
        guard._on_cpu = False  # there it looks at every step, which costs nothing

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == pl_module.position.step:  # more microbatches follow, and are fetched now
            self.begin.inside.close()

    def on_step_end(self, *_: Any) -> None:
        self.begin.inside.close()


def watched(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, *overrides: str, last: int = FEW, more: Callback | None = None
) -> Watch:
    """A short training with the default callbacks; `self.log` fails."""
    quiet_libraries()
    for name in ("log", "log_dict"):
        monkeypatch.setattr(LightningModule, name, lambda *_, **__: pytest.fail("self.log was called"))
    cfg = configuration(tmp_path / "run", *QUIET, f"max_steps={last + 1}", *overrides)
    watch = Watch()
    begin = Begin(watch, last)
    run = build_run(cfg, facts(cfg), [*([more] if more else []), End(begin)])
    callbacks_of(run.trainer).insert(0, begin)
    with begin.inside:
        run.trainer.fit(run.module, datamodule=run.data)
    assert sum(watch.sizes.values()) > 100
    return watch


def reads(watch: Watch) -> dict[str, int]:
    return {name: count for name, count in watch.reads.items() if count}


@pytest.mark.parametrize(
    "overrides",
    [
        ["method=ddpm"],
        ["method=ddpm", "accumulate=2"],
        ["method=logit_normal"],
        ["method=speed"],
        ["method=loss_second_moment"],
        ["method=clts_mdlrc"],
        ["method=slots", "sampler.update_every=500"],  # it looks when it moves the edges
        ["method=min_snr", "prediction=v"],
        ["method=iddpm", "dataset.conditional=true"],
        ["network.dropout=0.1", "callbacks.ema.decays=[0.9,0.99]"],
    ],
    ids="+".join,
)
def test_no_number_is_read_back(overrides, tmp_path, monkeypatch):
    assert reads(watched(tmp_path, monkeypatch, *overrides)) == {}


class Reader(StepCallback):
    def __init__(self, read: Any) -> None:
        self.read = read

    def on_step_end(self, trainer: Any, module: Any, step: int, records: list) -> None:
        self.read(records[0].loss)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool(x[0] > 0),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
        lambda x: x.long().abs().bincount(minlength=5),
        lambda x: x.repeat_interleave(torch.ones_like(x).long()),
    ],
    ids=["item", "tolist", "bool", "mask", "cpu", "bincount", "repeat"],
)
def test_a_read_would_be_seen(read, tmp_path, monkeypatch):
    found = reads(watched(tmp_path, monkeypatch, more=Reader(read)))
    assert set(found.values()) == {FEW - FIRST}


def sizes(watch: Watch) -> Counter:
    """Without `index_add_`, whose result is the table but whose work is that of the rows it adds."""
    return Counter({key: count for key, count in watch.sizes.items() if key[0] != "aten.index_add_"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["method=logit_normal", "weighting=min_snr"],
        *(
            pytest.param([f"method={name}"], marks=pytest.mark.exhaustive)
            for name in ("ddpm", "logit_normal", "min_snr")
        ),
    ],
)
def test_no_work_grows_with_the_number_of_timesteps(words, tmp_path, monkeypatch):
    short, long = (
        watched(tmp_path / steps, monkeypatch, *words, f"schedule.num_timesteps={steps}", last=MANY)
        for steps in ("1000", "4000")
    )
    assert sizes(short) == sizes(long)
    assert short.sizes["aten.index_add_", (1000,)] == 3 == long.sizes["aten.index_add_", (4000,)]


class Tables(StepCallback):
    def on_step_end(self, trainer: Any, module: Any, step: int, records: list) -> None:
        module.denoiser.schedule.snr.log()


def test_work_on_all_timesteps_would_be_seen(tmp_path, monkeypatch):
    short, long = (
        sizes(watched(tmp_path / steps, monkeypatch, f"schedule.num_timesteps={steps}", more=Tables()))
        for steps in ("1000", "4000")
    )
    assert short - long == {("aten.log", (1000,)): FEW - FIRST}
