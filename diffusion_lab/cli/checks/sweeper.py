"""Whether a sweeper searches: it is given a value of each job, and chooses the next jobs by it."""

from __future__ import annotations

from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeperConf
from hydra.utils import get_class
from omegaconf import ListConfig, OmegaConf

from diffusion_lab.cli.errors import ConfigError


def searching(hydra: Any) -> str | None:
    """The word that chose a sweeper that needs a value of each job, e.g. "hydra/sweeper=optuna"; None for one that only
    starts jobs. That is Hydra's own, and each whose class says `needs_values = False`; any other one is assumed to
    search.

    Raises:
        ConfigError: the sweeper needs several values of each job, and a run gives one.
    """
    target = str(hydra.sweeper._target_)
    if target == BasicSweeperConf._target_ or not getattr(get_class(target), "needs_values", True):
        return None
    direction = OmegaConf.select(hydra, "sweeper.direction", default=None)
    if isinstance(direction, ListConfig) and len(direction) > 1:
        listed = ",".join(getattr(one, "name", str(one)) for one in direction)
        raise ConfigError(
            f"hydra.sweeper.direction=[{listed}] must be one direction, because objective names one metric; "
            "use hydra.sweeper.direction=minimize"
        )
    return f"hydra/sweeper={hydra.runtime.choices.get('hydra/sweeper')}"
