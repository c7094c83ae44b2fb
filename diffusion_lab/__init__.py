"""Training of diffusion models in which the distribution of the timesteps is a part that one exchanges.

The names below are imported at their first use, so `import diffusion_lab` takes no time. They are the public interface,
with the names in `__all__` of the packages in `PACKAGES`; everything else may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diffusion_lab.light_torchmetrics import defer

if TYPE_CHECKING:
    from diffusion_lab.callbacks import EMA, TimestepLog, TimestepSampling
    from diffusion_lab.cli.from_python import load_run, train
    from diffusion_lab.data import ImageDataModule
    from diffusion_lab.diffusion import Denoiser, GaussianPath, NoiseSchedule
    from diffusion_lab.metrics import save_grid
    from diffusion_lab.streams import Streams
    from diffusion_lab.timesteps import TimestepSampler
    from diffusion_lab.training import DiffusionModule, LoopSampler, TrainedModel

__version__ = "0.1.0"
__all__ = [
    "EMA",
    "Denoiser",
    "DiffusionModule",
    "GaussianPath",
    "ImageDataModule",
    "LoopSampler",
    "NoiseSchedule",
    "Streams",
    "TimestepLog",
    "TimestepSampler",
    "TimestepSampling",
    "TrainedModel",
    "load_run",
    "save_grid",
    "train",
]
PACKAGES = (
    "diffusion",
    "networks",
    "solvers",
    "timesteps",
    "auxiliary",
    "optimizers",
    "annealing",
    "averaging",
    "data",
    "metrics",
    "training",
    "loggers",
    "callbacks",
    "analyses",
    "export",
    "testing",
)
_WHERE = {
    "callbacks": ("EMA", "TimestepLog", "TimestepSampling"),
    "cli.from_python": ("load_run", "train"),
    "data": ("ImageDataModule",),
    "diffusion": ("Denoiser", "GaussianPath", "NoiseSchedule"),
    "metrics": ("save_grid",),
    "streams": ("Streams",),
    "timesteps": ("TimestepSampler",),
    "training": ("DiffusionModule", "LoopSampler", "TrainedModel"),
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}

defer()  # before anything imports Lightning


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *PACKAGES})
