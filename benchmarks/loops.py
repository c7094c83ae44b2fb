"""Three ways to train the same denoiser: plain PyTorch, `diffusion-lab train`, and stock Lightning.

Each function returns a loop for `relay`.
"""

from __future__ import annotations

import copy
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from benchmarks.relay import Loop
from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.config import compose_train
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule

BETAS, DECAY, CLIP, LR = torch.linspace(1e-4, 0.02, 1000), 0.9999, 1.0, 2e-4
QUIET = [  # no validation, samples, checkpoints
    *("callbacks.validation=null", "callbacks.generation=null", "checkpoint_every=0"),
    "trainer.accelerator=cpu",
]


class Tables(nn.Module):
    """Tables of sqrt(A_t) and sqrt(1 - A_t)."""

    alpha: Tensor
    sigma: Tensor

    def __init__(self) -> None:
        super().__init__()
        kept = (1 - BETAS.double()).cumprod(0)
        self.register_buffer("alpha", kept.sqrt().float())
        self.register_buffer("sigma", (1 - kept).sqrt().float())

    def loss(self, network: nn.Module, x0: Tensor) -> Tensor:
        """Mean square error of the noise at uniform timesteps."""
        t = torch.randint(0, len(self.alpha), (len(x0),), device=x0.device)
        eps = torch.randn_like(x0)
        x_t = self.alpha[t].view(-1, 1, 1, 1) * x0 + self.sigma[t].view(-1, 1, 1, 1) * eps
        return F.mse_loss(network(x_t, t), eps)


def bare(network: Callable[[], nn.Module], images: Tensor, batch_size: int) -> Loop:
    """The lower bound: images in memory, fused Adam, clipping and the average of the weights as one call for all
    tensors."""

    def run(baton: Callable[[], None], steps: int) -> None:
        net, tables = network(), Tables()
        parameters = list(net.parameters())
        average, now = [p.detach().clone() for p in parameters], [p.detach() for p in parameters]
        optimizer = torch.optim.Adam(parameters, lr=LR, fused=True)
        for _ in range(steps):
            x0 = images[torch.randint(0, len(images), (batch_size,))]
            loss = tables.loss(net, x0)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            torch._foreach_lerp_(average, now, 1 - DECAY)
            baton()

    return run


class _Baton(StepCallback):
    """Calls the baton after every optimizer step, and ends the training after `steps`."""

    def __init__(self, baton: Callable[[], None], steps: int) -> None:
        self.baton, self.steps = baton, steps

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        self.baton()
        trainer.should_stop = step == self.steps


def ours(network: DictConfig | None, overrides: Sequence[str]) -> Loop:
    """`diffusion-lab train` with all callbacks and the progress bar; `network` replaces the configuration's."""

    def run(baton: Callable[[], None], steps: int) -> None:
        quiet_libraries()
        with tempfile.TemporaryDirectory() as folder:
            # One step more than is made, because the last step of a run writes a checkpoint.
            cfg = compose_train(["base=ddpm", *overrides, *QUIET, f"max_steps={steps + 1}"], Path(folder) / "run")
            if network is not None:
                cfg.network = network
            run = build_run(cfg, facts(cfg), [_Baton(baton, steps)])
            run.trainer.fit(run.module, datamodule=run.data)

    return run


class _Stock(LightningModule):
    """A LightningModule as in a tutorial."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.tables = network, Tables()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = self.tables.loss(self.network, batch[0])
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=LR)


class _StockEMA(Callback):
    """An average of the weights, updated tensor by tensor."""

    def __init__(self, baton: Callable[[], None]) -> None:
        self.baton = baton

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.average = copy.deepcopy(pl_module)

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        for a, p in zip(self.average.parameters(), pl_module.parameters(), strict=True):
            a.mul_(DECAY).add_(p, alpha=1 - DECAY)
        self.baton()


def stock(network: Callable[[], nn.Module], images: Tensor, batch_size: int) -> Loop:
    """Lightning as in a tutorial: automatic optimisation, `self.log(prog_bar=True)`, its bar, a CSV logger, the stock
    DataLoader, and an average of the weights in a callback."""

    def run(baton: Callable[[], None], steps: int) -> None:
        quiet_libraries()
        data = TensorDataset(images)
        one_epoch = RandomSampler(data, replacement=True, num_samples=steps * batch_size)
        loader = DataLoader(data, batch_size, sampler=one_epoch)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                accelerator="cpu",
                max_steps=steps,
                max_epochs=-1,
                gradient_clip_val=CLIP,
                callbacks=[_StockEMA(baton), TQDMProgressBar()],
                logger=CSVLogger(folder),
                enable_checkpointing=False,
                enable_model_summary=False,
                default_root_dir=folder,
            )
            trainer.fit(_Stock(network()), loader)

    return run


class _Screen(io.TextIOWrapper):
    """A file that claims to be a terminal, so that bars are drawn."""

    def isatty(self) -> bool:
        return True


@contextmanager
def terminal() -> Iterator[None]:
    """Replace standard output and error by a terminal without a reader, for all loops."""
    with open("/dev/null", "wb") as sink, _Screen(sink) as screen, redirect_stderr(screen), redirect_stdout(screen):
        yield


def node(target: str) -> DictConfig:
    """A configuration node of a network without arguments."""
    return OmegaConf.create({"_target_": target, "_partial_": True})
