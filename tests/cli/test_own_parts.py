"""Parts of the user's own, each one .py and one .yaml outside the package, trained, sampled and evaluated together.

Every number of the run is known. All pixels are 1, the network answers one number b that begins at 0, and the
prediction is 2 x0, so that the loss is (b - 2)^2. Adam's first step has the length of the learning rate, 1 times the
annealing's 1/2. The weighting SNR^2 on the x0-loss is SNR on the eps-loss, in which the log gives the objective. The
solver's samples show the schedule, the variance and the solver itself in turn.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from diffusion_lab.cli.main import main
from diffusion_lab.training.checkpoint_io import load
from tests.harness import Child

Lines = list[dict]
A = 0.9 ** np.arange(1, 8)  # alphas_cumprod of a schedule of seven equal betas
SNR = A / (1 - A)


class Part(NamedTuple):
    """One row of the table: the two files of a part, and what shows that it did its work."""

    python: str
    yaml: str
    shown: Callable[[Path, Lines], bool]


PARTS = {
    "dataset": Part(
        """
import torch
from diffusion_lab.data import ArrayImages, ImageSource

class White(ImageSource):
    name, channels, image_size = "white", 1, 4

    def train_size(self):
        return 32

    def load(self, split):
        return ArrayImages(torch.full((32 if split == "train" else 8, 1, 4, 4), 255, dtype=torch.uint8))
""",
        "_target_: diffusion_lab.data.ImageDataModule\n"
        "source: {_target_: own_dataset.White}\n"
        "batch_size: ${batch_size}\naccumulate: ${accumulate}\nseed: ${seed}",
        lambda run, lines: column(lines, "train/loss")[0] == (2 * 1 - 0) ** 2,
    ),
    "network": Part(
        """
import torch
from torch import nn

class Number(nn.Module):
    def __init__(self, in_channels, out_channels, image_size):
        super().__init__()
        self.b, self.shape = nn.Parameter(torch.zeros(())), (out_channels, image_size, image_size)

    def forward(self, x, t):
        return self.b.expand(len(x), *self.shape)
""",
        "_target_: own_network.Number\n_partial_: true",
        lambda run, lines: json.loads((run / "run.json").read_text())["parameters"] == 1,
    ),
    "prediction": Part(
        """
import torch
from diffusion_lab.diffusion import Estimate, Prediction

class Double(Prediction):
    def target(self, x0, eps, alpha, sigma):
        return 2 * x0

    def estimate(self, out, x_t, alpha, sigma):
        return Estimate(out / 2, (x_t - alpha * out / 2) / sigma)

    def native_scale(self, snr):
        return torch.full_like(snr, 4.0)
""",
        "_target_: own_prediction.Double",
        lambda run, lines: column(lines, "train/loss")[0] == (2 * 1 - 0) ** 2,
    ),
    "weighting": Part(
        """
from diffusion_lab.diffusion import Weighting

class Square(Weighting):
    def x0_weight(self, snr, step):
        return snr.square()
""",
        "_target_: own_weighting.Square",
        lambda run, lines: column(lines, "sampler/objective")[0] == pytest.approx(list(SNR / SNR.sum())),
    ),
    "annealing": Part(
        """
from diffusion_lab.annealing import Annealing, Hyper

class Half(Annealing):
    def __call__(self, step):
        return Hyper(0.5)
""",
        "_target_: own_annealing.Half",
        lambda run, lines: column(lines, "train/loss")[1] == pytest.approx((0.5 - 2) ** 2, rel=1e-6),
    ),
    "averaging": Part(
        """
from diffusion_lab.averaging import AveragingRule

class Uniform(AveragingRule):
    names = ("uniform",)

    def shares(self, step):
        return [1 / step]
""",
        "_target_: own_averaging.Uniform",
        lambda run, lines: list(load(run / "checkpoints" / "last.ckpt")["callbacks"]["EMA"]) == ["uniform"],
    ),
    "callbacks": Part(
        """
from pathlib import Path
from lightning.pytorch import Callback

class Note(Callback):
    def __init__(self, path):
        self.path = Path(path)

    def on_train_end(self, trainer, pl_module):
        self.path.write_text(str(trainer.global_step))
""",
        "defaults: [default, _self_]\nnote: {_target_: own_callbacks.Note, path: '${paths.run_dir}/note.txt'}",
        lambda run, lines: (run / "note.txt").read_text() == "2",
    ),
    "schedule": Part(
        """
import torch
from diffusion_lab.diffusion import NoiseSchedule

def even(num_timesteps, beta) -> NoiseSchedule:
    return NoiseSchedule(torch.full((num_timesteps,), beta, dtype=torch.float64))
""",
        "_target_: own_schedule.even\nnum_timesteps: 7\nbeta: 0.1",
        lambda run, lines: pixel(run, 0) == byte(A[-1]),
    ),
    "variance": Part(
        """
import math
import torch
from diffusion_lab.diffusion import Variance

class Quarter(Variance):
    def log_variance(self, out, t, schedule):
        return torch.full((len(t), 1, 1, 1), math.log(0.25))
""",
        "_target_: own_variance.Quarter",
        lambda run, lines: pixel(run, 1) == byte(2 * 0.25),  # twice by the model
    ),
    "model": Part(
        """
import math
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.training import DiffusionModel, DiffusionModule

class Wide(Denoiser):
    def reverse(self, *arguments, **named):
        found = super().reverse(*arguments, **named)
        return found._replace(log_variance=found.log_variance + math.log(2))

class Named(DiffusionModule):
    def facts(self):
        return super().facts() | {"own": True}

class Mine(DiffusionModel):
    trains, generates = Named, Wide
""",
        "_target_: own_model.Mine",
        lambda run, lines: json.loads((run / "run.json").read_text())["own"] and pixel(run, 1) == byte(2 * 0.25),
    ),
    "solver": Part(
        """
import torch
from diffusion_lab.solvers import Solver

class Three(Solver):
    def describe(self):
        return "three"

    def check(self, schedule):
        pass

    def solve(self, denoiser, x_T, noise, bar, cond):
        t = torch.full((len(x_T),), denoiser.num_timesteps - 1)
        shown = [denoiser.schedule.alphas_cumprod[-1], denoiser.reverse(x_T, t, True)[1][0, 0, 0, 0].exp(), -0.5]
        return torch.stack([torch.full_like(x_T[0], float(shown[i % 3])) for i in range(len(x_T))])
""",
        "_target_: own_solver.Three",
        lambda run, lines: pixel(run, 2) == byte(-0.5) and variance(run) == pytest.approx(THREE),
    ),
}
SMALL = ("max_steps=2", "batch_size=8", "log_every=1", "snapshot_every=0", "optimizer.lr=1.0", "trainer=cpu")


def column(lines: Lines, key: str) -> list:
    return [line[key] for line in lines if key in line]


def byte(value: float) -> int:
    return round((value + 1) * 127.5)


def pixel(run: Path, sample: int) -> int:
    (path,) = run.rglob(f"{sample:06d}.png")
    (value,) = np.unique(np.asarray(Image.open(path)))
    return int(value)


def variance(run: Path) -> float:
    """What `evaluate` measured of three samples of the solver."""
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    (value,) = [line["value"] for line in lines if line["protocol"]["solver"] == "three"]
    return value


THREE = float(np.var([byte(A[-1]), byte(0.5), byte(-0.5)], ddof=1)) / 127.5**2


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lines]:
    """The folder of a run with all parts at once, trained, evaluated and sampled, and its log."""
    home = tmp_path_factory.mktemp("own")
    for kind, part in PARTS.items():
        (home / f"own_{kind}.py").write_text(part.python)
        (home / "my_conf" / kind).mkdir(parents=True)
        (home / "my_conf" / kind / "mine.yaml").write_text(part.yaml)
    own = ("--config-dir", "my_conf")

    def work() -> None:
        os.chdir(home)
        code = main(["train", *own, *(f"{kind}=mine" for kind in PARTS), "sampler=uniform", "metrics=none", *SMALL])
        run = f"run={next((home / 'runs').iterdir())}"
        code = code or main(["evaluate", *own, run, "metrics.names=[sample_variance]", "metrics.num_samples=3"])
        raise SystemExit(code or main(["sample", *own, run, "seeds=0-2"]))

    Child(work, home / "log").succeed()
    (run,) = (home / "runs").iterdir()
    return run, [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_from_outside_the_package_does_its_work(trained: tuple[Path, Lines], kind: str) -> None:
    assert PARTS[kind].shown(*trained)
