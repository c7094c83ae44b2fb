"""What training logs of its steps: timesteps, losses, the weights of the objective; errors of heads; losses of a GAN.

A list is logged with the coordinates of its entries, values over equal ranges of timesteps or of the noise angle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.callbacks.base import StepCallback, check_interval, due, find, last_step
from diffusion_lab.callbacks.method import AnnealingCallback, TimestepSampling, sampler_of
from diffusion_lab.distributed import gather_rows, sum_
from diffusion_lab.loggers import log_values, mirror_values
from diffusion_lab.metrics.timestep_mean import TimestepMean, Totals
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import AdversarialModule, AdversarialRecord, DiffusionModule

Coordinates = dict[str, list[float]]


def timestep_axes(log_snr: Tensor, bins: int) -> Coordinates:
    """Coordinates of `bins` equal ranges of timesteps, where t is in range floor(t bins/T).

    Args:
        log_snr: (T,) ln SNR of the schedule.
        bins: number of ranges, at most T.

    Returns:
        "timestep", the middle (i + 1/2) T/bins of range i, and "log_snr", the mean of ln SNR over its timesteps.
    """
    log_snr, steps = log_snr.detach().cpu().double(), len(log_snr)
    of = torch.arange(steps) * bins // steps
    mean = torch.zeros(bins, dtype=torch.float64).index_add_(0, of, log_snr) / of.bincount()
    return {"timestep": [(i + 0.5) * steps / bins for i in range(bins)], "log_snr": mean.tolist()}


def angle_axes(bins: int) -> Coordinates:
    """Coordinates of `bins` equal ranges of the noise angle phi = atan(sigma/alpha), from 0 to 90 degrees.

    Returns:
        "noise_angle", the middle of each range in degrees, and "log_snr" there: -2 ln tan(phi).
    """
    degrees = [(i + 0.5) * 90 / bins for i in range(bins)]
    return {"noise_angle": degrees, "log_snr": [-2 * math.log(math.tan(math.radians(phi))) for phi in degrees]}


class TimestepLog(StepCallback):
    """Logs, every `every` steps, over `bins` equal ranges of timesteps (timestep t is in bin floor(t bins/T)):

        train/loss            mean native loss of the rows since the last log, at the timesteps that were drawn
        train/loss_q0..q3     the same by quarter of the timesteps (improved-diffusion's names)
        train/loss_t          the same by bin
        train/aux_<name>      mean of an auxiliary loss over the rows since the last log, before its weight
        sampler/p             probabilities(step), summed by bin
        sampler/drawn         share of all rows since the start that fell into the bin
        sampler/objective     p_t E[weight] w_eps(t), normalised to sum 1 and summed by bin: the effective weight that
                              sampling and weighting together put on the eps-loss
        sampler/<name>        what the sampler itself reports, `TimestepSampler.log_values`
        optim/lr, optim/beta1, and optim/beta2 where the annealing moves it

    and, to all loggers but metrics.jsonl, the mean norm of the gradient before clipping since the last log:

        optim/gradient_norm

    Each step adds b numbers to float64 tables of size T on the device, without work that depends on T and without
    waiting for the host. Processes exchange their tables only to log or save them.

    Args:
        bins: number of ranges, >= 1; at most T are used.
        every: optimizer steps between two logs; 0 turns it off.
    """

    drives = DiffusionModule

    def __init__(self, bins: int = 20, every: int = 100) -> None:
        check_integer("bins", bins, 1, "use 20")
        self.bins, self.every = bins, check_interval("every", every)
        self.latest: float | None = None  # train/loss of the last log, None before the first
        self._saved: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = cast(DiffusionModule, pl_module)
        steps, device = module.denoiser.num_timesteps, module.device
        self._auxiliary = torch.zeros(len(module.auxiliary), 2, dtype=torch.float64, device=device)
        self._recent = TimestepMean(steps).to(device)  # since the last log
        self._drawn = torch.zeros(steps, dtype=torch.float64, device=device)  # rows from the start to the last log
        bins = min(self.bins, steps)
        self._bin = torch.arange(steps, device=device) * bins // steps
        self._quarter = torch.arange(steps, device=device) * 4 // steps
        axes = timestep_axes(module.denoiser.schedule.log_snr, bins)
        self._axes = {key: axes for key in ("train/loss_t", "sampler/p", "sampler/drawn", "sampler/objective")}
        if self._saved is not None:
            *recent, drawn = self._own_share(self._saved["tables"], trainer).to(device)
            self._recent.load_state_dict(dict(zip(Totals._fields, recent, strict=True)))
            self._drawn.copy_(drawn)
            if len(self._auxiliary):
                self._auxiliary.copy_(self._own_share(self._saved["auxiliary"], trainer))
            self._saved = None

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        for record in records:
            self._recent.update(record.t, record.loss)
            for place, name in enumerate(module.auxiliary if record.auxiliary else ()):
                if name in record.auxiliary:
                    self._auxiliary[place, 0] += record.auxiliary[name].double().sum()
                    self._auxiliary[place, 1] += len(record.t)
        if due(step, self.every, last_step(trainer)):
            self._log(trainer, module, step)

    def _log(self, trainer: Trainer, module: DiffusionModule, step: int) -> None:
        rows, loss, _, drawn = sum_(self._tables())
        drawn = drawn + rows
        self.latest = float(loss.sum() / rows.sum())
        values: dict[str, float | list[float]] = {"train/loss": self.latest}
        for name, index in (("train/loss_q", self._quarter), ("train/loss_t", self._bin)):
            mean = (_binned(loss, index) / _binned(rows, index)).tolist()
            if name.endswith("q"):
                values |= {f"{name}{i}": value for i, value in enumerate(mean) if value == value}
            else:
                values[name] = mean
        if len(self._auxiliary):
            for name, (total, count) in zip(module.auxiliary, sum_(self._auxiliary).tolist(), strict=True):
                if count:
                    values[f"train/aux_{name}"] = total / count
            self._auxiliary.zero_()
        p, weights = effective_weights(trainer, module, step)
        values["sampler/p"] = _binned(p, self._bin).tolist()
        values["sampler/drawn"] = _binned(drawn / drawn.sum(), self._bin).tolist()
        values["sampler/objective"] = _binned(weights, self._bin).tolist()
        sampling = find(trainer, TimestepSampling)
        own = sampling.sampler.log_values() if sampling is not None else {}
        values |= {f"sampler/{name}": value.tolist() for name, value in own.items()}
        log_values(trainer, values | optimizer_values(trainer), self._axes)
        norm = module.mean_gradient_norm()
        if norm is not None:
            mirror_values(trainer, {"optim/gradient_norm": float(norm)})
        self._drawn += self._recent.count
        self._recent.reset()

    def state_dict(self) -> dict[str, Any]:
        """(W,4,T), and of auxiliary losses (W,n,2): the tables of each process, so that a resumed run adds the same
        numbers in the same order."""
        added = {"auxiliary": gather_rows(self._auxiliary[None]).cpu()} if len(self._auxiliary) else {}
        return {"tables": gather_rows(self._tables()[None]).cpu()} | added

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    def _tables(self) -> Tensor:
        """(4,T): count, sum and sum of squares since the last log, and rows before it."""
        return torch.stack([*self._recent.totals(), self._drawn])

    @staticmethod
    def _own_share(tables: Tensor, trainer: Trainer) -> Tensor:
        """This process's tables; if the number of processes has changed, the first takes all."""
        if len(tables) == trainer.world_size:
            return tables[trainer.global_rank]
        return tables.sum(0) if trainer.global_rank == 0 else torch.zeros_like(tables[0])


def optimizer_values(trainer: Trainer) -> dict[str, float]:
    """Learning rate of the first optimizer, its beta1 if there is one, and beta2 where an annealing moves it."""
    group = trainer.optimizers[0].param_groups[0]
    values = {"optim/lr": float(group["lr"])}
    if "betas" in group:
        values["optim/beta1"] = float(group["betas"][0])
        callback = find(trainer, AnnealingCallback)
        if callback is not None and callback.annealing(0).beta2 is not None:
            values["optim/beta2"] = float(group["betas"][1])
    return values


@torch.no_grad()
def effective_weights(trainer: Trainer, module: DiffusionModule, step: int) -> tuple[Tensor, Tensor]:
    """p (T,) and the normalised product (T,) of p_t, the sampler's weight and the weight on the eps-loss, float64."""
    snr = module.denoiser.schedule.snr
    sampler = sampler_of(trainer, snr)
    t = torch.arange(len(snr), device=snr.device)
    p = sampler.probabilities(step)
    scale = module.denoiser.native_scale()
    # For the same output, the native loss is `scale` times the x0-loss, and the eps-loss SNR times the x0-loss.
    eps_weight = module.weighting.native_weight(snr, scale, step).double() * scale / snr
    product = p * sampler.weight(t, step).double() * eps_weight
    return p, product / product.sum()


def _binned(values: Tensor, index: Tensor) -> Tensor:
    """Sum over each bin: (T,), (T,) int64 -> (bins,)."""
    return values.new_zeros(int(index[-1]) + 1).index_add_(0, index, values)


class HeadTracking(StepCallback):
    """Calls `Prediction.observe` with the rows of all processes after each update, if there are several heads.

    Logs `Prediction.log_values` as lists every `every` steps: for three heads `prediction/head_x0|v|eps`, the share of
    each in the recent selections, and `prediction/weight_x0|v|eps`, its weight in generation, by bin of noise. The host
    does not wait for the device between two logs.

    Args:
        every: optimizer steps between two logs; 0 turns logging off, but not the tracking.
    """

    drives = DiffusionModule

    def __init__(self, every: int = 100) -> None:
        self.every = check_interval("every", every)

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        if records[0].errors is None or records[0].errors.shape[1] == 0:
            return
        record = StepRecord.join(records)
        assert record.errors is not None
        prediction = module.denoiser.prediction
        log_snr = module.denoiser.schedule.log_snr[record.gather(record.t)]
        prediction.observe(log_snr, record.gather(record.errors))
        if due(step, self.every, last_step(trainer)):
            values = {name: value.tolist() for name, value in prediction.log_values().items()}
            log_values(trainer, values, {name: angle_axes(len(value)) for name, value in values.items()})


class AdversarialLog(StepCallback):
    """Logs, every `every` steps, means over the images since the last log:

        train/loss_generator       L_G
        train/loss_discriminator   L_D
        train/judged_real          share of the real images with D(x) > 0
        train/judged_fake          share of the generated images with D(G(z)) < 0
        optim/lr, optim/beta1      of the generator

    Both shares are 1 for a discriminator that makes no error, and their mean is 1/2 for one that guesses.

    Args:
        every: optimizer steps between two logs; 0 turns it off.
    """

    drives = AdversarialModule

    def __init__(self, every: int = 100) -> None:
        self.every = check_interval("every", every)
        self._saved: Tensor | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        empty = torch.zeros(4, 2, dtype=torch.float64)  # sum and count of the first four names above
        self._sums = (empty if self._saved is None else self._saved).to(pl_module.device)
        self._saved = None

    def on_step_end(
        self, trainer: Trainer, module: AdversarialModule, step: int, records: Sequence[AdversarialRecord]
    ) -> None:
        for record in records:
            values = record.loss, record.discriminator, record.real > 0, record.fake < 0
            both = [torch.stack([v.double(), torch.ones_like(v, dtype=torch.float64)]).sum(1) for v in values]
            self._sums += torch.stack(both)
        if due(step, self.every, last_step(trainer)):
            means = (self._sums[:, 0] / self._sums[:, 1]).tolist()
            names = "loss_generator", "loss_discriminator", "judged_real", "judged_fake"
            logged = {f"train/{name}": value for name, value in zip(names, means, strict=True)}
            log_values(trainer, logged | optimizer_values(trainer))
            self._sums.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Also the sums, so that a resumed run logs the same means."""
        return {"sums": self._sums.cpu()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict["sums"]
