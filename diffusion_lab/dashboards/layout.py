"""The sections of a dashboard: the panels for which the runs have data. A pure function of what they have logged.

A panel knows which keys it needs, and so what is missing of them in what runs have logged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from diffusion_lab.dashboards.logged import MEMORY, NORM, RATE, SAMPLES, LoggedKeys
from diffusion_lab.runs.wandb_names import IMAGES, SECONDS, VALUE

AXES = {IMAGES: "images seen", SECONDS: "training time [s]"}
OVER = {"timestep": "timestep", "log_snr": "log SNR", "noise_angle": "noise angle, 90° is noise alone"}


@dataclass(frozen=True)
class Panel(ABC):
    """A panel.

    Args:
        title: heading.
    """

    title: str

    @abstractmethod
    def missing(self, logged: LoggedKeys) -> list[str]:
        """The keys, and columns as `key: column`, that it needs and that were not logged."""


@dataclass(frozen=True)
class Lines(Panel):
    """Numbers over another number; the mean over seeds, and the range from the lowest to the highest.

    Args:
        x: key of the axis.
        y: keys of the lines.
        x_title: label of the axis.
        log_y: whether the other axis is logarithmic.
    """

    x: str
    y: tuple[str, ...]
    x_title: str
    log_y: bool = False

    def missing(self, logged: LoggedKeys) -> list[str]:
        return [key for key in (self.x, *self.y) if key not in logged.numbers]


@dataclass(frozen=True)
class Chart(Panel):
    """The newest value of a list over a coordinate of its entries, a line for each run.

    Args:
        key: key of the list.
        over: the coordinate, a column of its table.
    """

    key: str
    over: str

    def missing(self, logged: LoggedKeys) -> list[str]:
        columns = logged.lists.get(self.key)
        if columns is None:
            return [self.key]
        return [f"{self.key}: {column}" for column in (self.over, VALUE) if column not in columns]


@dataclass(frozen=True)
class Pictures(Panel):
    """A picture of each run, by step.

    Args:
        key: key of the picture.
    """

    key: str

    def missing(self, logged: LoggedKeys) -> list[str]:
        return [] if self.key in logged.pictures else [self.key]


@dataclass(frozen=True)
class Bars(Panel):
    """The newest value of a number, a bar for each run or the mean over seeds.

    Args:
        key: key of the number.
    """

    key: str

    def missing(self, logged: LoggedKeys) -> list[str]:
        return [] if self.key in logged.numbers else [self.key]


class PanelSection(NamedTuple):
    """Panels under a heading.

    Attributes:
        name: the heading.
        panels: row by row.
        columns: panels in a row.
        rows: rows that are shown at once.
    """

    name: str
    panels: tuple[Panel, ...]
    columns: int = 2
    rows: int = 2


def sections(logged: LoggedKeys) -> list[PanelSection]:
    """The sections with panels for which everything is logged."""
    there = [
        section._replace(panels=tuple(panel for panel in section.panels if not panel.missing(logged)))
        for section in _all(logged)
    ]
    return [section for section in there if section.panels]


def _all(logged: LoggedKeys) -> Iterator[PanelSection]:
    quality = tuple(_quality(logged))
    yield PanelSection(
        "Quality against images and against training time", quality, rows=min(3, max(1, len(quality) // 2))
    )
    loss = {"val/loss_t": "Validation loss", "train/loss_t": "Training loss since the last log"}
    yield PanelSection(
        "Loss by timestep and by log SNR",
        tuple(_chart(title, key, over) for key, title in loss.items() for over in ("timestep", "log_snr")),
    )
    density = {
        "sampler/drawn": "Share of the rows trained on",
        "sampler/p": "Sampler's probabilities",
        "sampler/objective": "Effective weighting",
    }
    yield PanelSection(
        "Density of timesteps",
        tuple(_chart(title, key, "timestep") for key, title in density.items()),
        columns=3,
        rows=1,
    )
    yield PanelSection("Sample grids, same latents", (Pictures("Samples", SAMPLES),), columns=1, rows=1)
    heads = [key for key in logged.lists if key.startswith("prediction/")]
    yield PanelSection("Heads of the prediction", tuple(_chart(key, key, "noise_angle") for key in heads), columns=3)
    yield PanelSection("Cost", tuple(_cost()), columns=3)
    yield PanelSection("Optimization", tuple(_optimization()))


def _quality(logged: LoggedKeys) -> Iterator[Panel]:
    """Each metric, then the validation loss, over both axes side by side."""
    numbers = {f"metrics/{name}": (name, better) for name, better in logged.better.items()}
    for key, (name, better) in {**numbers, "val/loss": ("validation loss", "lower")}.items():
        for axis, words in AXES.items():
            yield Lines(f"{name}, {better}{' direction' * (better == 'neither')} is better", axis, (key,), words)


def _optimization() -> Iterator[Panel]:
    lines = {
        "training loss, at the timesteps drawn": ("train/loss",),
        "norm of the gradient before clipping": (NORM,),
        "learning rate": ("optim/lr",),
        "beta1": ("optim/beta1",),
        "losses of the GAN": ("train/loss_generator", "train/loss_discriminator"),
        "share that the discriminator judges right": ("train/judged_real", "train/judged_fake"),
    }
    for title, keys in lines.items():
        yield Lines(title, IMAGES, keys, AXES[IMAGES], log_y=keys in (("train/loss",), (NORM,)))


def _cost() -> Iterator[Panel]:
    for title, key in (("images per second", RATE), ("memory [MB]", MEMORY)):
        yield Lines(title, SECONDS, (key,), AXES[SECONDS])
    yield Lines("images seen", SECONDS, (IMAGES,), AXES[SECONDS])
    for title, key in (("training time [s]", SECONDS), ("images per second, last", RATE), ("memory [MB]", MEMORY)):
        yield Bars(title, key)


def _chart(title: str, key: str, over: str) -> Chart:
    return Chart(f"{title} by {OVER[over]}", key, over)
