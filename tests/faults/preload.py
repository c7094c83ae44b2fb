"""Import everything that a command imports, once before the first fork."""

from __future__ import annotations

import importlib
import pkgutil
import warnings

import diffusion_lab
import hydra_plugins.diffusion_lab_launcher

OPTIONAL = (
    "diffusion_lab.loggers.wandb",
    "diffusion_lab.loggers.tensorboard",
)  # their imports are not needed by any case


def preload() -> None:
    """Import the package, the launcher, and the lazy imports of the data sets and Hydra."""
    from hydra.core.plugins import Plugins

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Plugins.instance()
        for package in (diffusion_lab, hydra_plugins.diffusion_lab_launcher):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                if module.name not in OPTIONAL:
                    importlib.import_module(module.name)
        importlib.import_module("sklearn.datasets")
