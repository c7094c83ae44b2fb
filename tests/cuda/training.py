"""Trainings on the paper GPU, with any option of any group, and what they wait for."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch import Callback
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from diffusion_lab.callbacks.base import callbacks_of
from diffusion_lab.cli.build import TrainingRun, build_run
from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.cli.config import compose_train, conf_dir
from tests.cuda.machine import paper_machine
from tests.cuda.paper import PaperGPU, Wait
from tests.harness import configuration

CONF = Path(conf_dir())
STEPS = 3
FIRST, LAST = 1, 2  # the step between them is an ordinary one: no log, no measurement, no checkpoint
QUIET = [
    "~trainer.accelerator",
    "trainer.strategy={_target_: tests.cuda.machine.PaperStrategy}",
    "schedule.num_timesteps=40",
    "batch_size=4",
    "dataset.val_images=60",  # one batch of the evaluation at the end
    "max_steps=2000",  # a share of it is a part's interval
    f"trainer.max_steps={STEPS}",
    "log_every=1000",
    "snapshot_every=0",
    "checkpoint_every=0",
    "callbacks.ema.decays=[0.9]",
    "callbacks.progress.every=1000",
    "callbacks.guard.every=1000",
    "callbacks.weight_normalization.every=1000",
]

SMALLER = {"points": 3, "images": 8}  # of a sampler that measures: each is a backward pass


class SmallNetwork(nn.Module):
    """One convolution that is told t and the class: what is tested beside the networks needs no more."""

    takes_time_map = True

    def __init__(self, in_channels: int, out_channels: int, image_size: int, num_classes: int | None = None) -> None:
        super().__init__()
        self.body, self.time = nn.Conv2d(in_channels, out_channels, 3, padding=1), nn.Linear(1, out_channels)
        self.label = None if num_classes is None else nn.Embedding(num_classes, out_channels)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None, **_: Tensor) -> Tensor:
        times = (t if t.ndim > 1 else t[:, None, None, None]).float() / 1000
        shift = self.time(times.movedim(1, -1)).movedim(-1, 1)
        if self.label is not None and label is not None:
            shift = shift + self.label(label)[:, :, None, None]
        return self.body(x) + shift


class Watched(NamedTuple):
    """A training that has ended."""

    run: TrainingRun
    steps: Counter[Wait]  # waits of the steps between FIRST and LAST
    all: Counter[Wait]


class Window(Callback):
    """Takes the waits at the beginning of steps `FIRST` and `LAST`."""

    def __init__(self, gpu: PaperGPU) -> None:
        self.gpu, self.at = gpu, dict[int, Counter[Wait]]()

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self.at.setdefault(trainer.global_step, Counter(self.gpu.waits))


def train(cfg: DictConfig, machine: Callable[..., Any] = paper_machine) -> Watched:
    """`diffusion-lab train` of this configuration on the paper GPU or another machine, without lock and messages."""
    quiet_libraries()
    with machine(mixed=cfg.precision != "32-true") as gpu:
        window = Window(gpu)
        run = build_run(cfg, {"config": {}, "config_hash": ""})
        callbacks_of(run.trainer).insert(0, window)
        run.trainer.fit(run.module, datamodule=run.data)
    return Watched(run, window.at[LAST] - window.at[FIRST], Counter(gpu.waits))


@functools.cache
def _base(*overrides: str) -> DictConfig:
    cfg = configuration(Path("nowhere"), *QUIET, *overrides)
    small = {"_target_": "tests.cuda.training.SmallNetwork", "_partial_": True}
    with open_dict(cfg):
        cfg.network = OmegaConf.create(small)
    return cfg


def options() -> dict[str, list[str]]:
    """Every yaml of every group of conf, a group of a group included: "prediction/space" -> ["eps", "x0", ..]."""
    found: dict[str, list[str]] = {}
    for path in sorted(CONF.glob("*/**/*.yaml")):
        found.setdefault(str(path.parent.relative_to(CONF)), []).append(path.stem)
    return found


def configured(folder: Path, choices: str | None = None, *overrides: str) -> DictConfig:
    """The quiet configuration in `folder`, with an option of each group that is named, "sampler=speed order=curriculum"
    or "prediction/space=v".

    An option that is a plain node is put into its place without Hydra, which takes longer than the training.
    """
    cfg = _chosen(choices, overrides)
    with open_dict(cfg):
        cfg.paths.run_dir = str(folder)
        for key, value in SMALLER.items():
            if key in cfg.sampler:
                cfg.sampler[key] = value
        if "path" in cfg.sampler:  # of a file of T numbers
            cfg.sampler.path = str(folder / "numbers.txt")
            (folder / "numbers.txt").write_text("1.0\n" * cfg.schedule.num_timesteps)
        for loss in (cfg.get("auxiliary") or {}).values():
            if "layers" in loss:
                loss.layers = ["body"]
            if "run" in (loss.get("encoder") or {}):  # of a trained run
                loss.encoder = copy.deepcopy(cfg.dataset.features)
    return cfg


def gan(folder: Path, *choices: str) -> DictConfig:
    """The quiet configuration of a GAN in `folder`."""
    absent = ("schedule.", "callbacks.ema.", "callbacks.weight_normalization.")
    quiet = [word for word in QUIET if not word.startswith(absent)]
    return compose_train([*quiet, "~callbacks.generation", *choices], folder)


def _chosen(choices: str | None, overrides: tuple[str, ...]) -> DictConfig:
    words, nodes = list[str](), dict[str, str]()
    for choice in (choices or "").split():
        group, name = choice.split("=")
        text = (CONF / group / f"{name}.yaml").read_text()
        above, _, key = group.rpartition("/")
        words += [f"{above}={_parent(above, key)}"] if above else []
        if group == "method" or "defaults:" in text or "@package" in text:
            words.append(choice)
        else:
            nodes[group.replace("/", ".")] = text
    cfg = copy.deepcopy(_base(*words, *overrides))
    with open_dict(cfg):
        for key, text in nodes.items():
            OmegaConf.update(cfg, key, OmegaConf.create(text), merge=False)
    return cfg


def _parent(group: str, key: str) -> str:
    """The first option of `group` whose defaults list has `key`."""
    for path in sorted((CONF / group).glob("*.yaml")):
        content: Any = OmegaConf.load(path)
        if any(key in entry for entry in content.get("defaults", []) if not isinstance(entry, str)):
            return path.stem
    raise LookupError(f"no option of {group} has {key}")
