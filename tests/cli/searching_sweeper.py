"""A stand-in for a sweeper that searches, as Optuna's: it launches batches and needs the value of each job.

Hydra knows plugins by their module, which must be below `hydra_plugins`; `install` puts this one there.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

PLACE = "hydra_plugins.searching_sweeper"


class Searching(Sweeper):
    """Launches a job for each value of `lr`, one at a time, and prints the best."""

    def __init__(self, lr: list[float], direction: Any = "minimize") -> None:
        self.lr = list(lr)

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        values = []
        for i, lr in enumerate(self.lr):
            (returned,) = self.launcher.launch([[*arguments, f"optimizer.lr={lr}"]], initial_job_idx=i)
            values.append(float(returned.return_value))
        print(f"best: {min(values):.4f} of {len(values)}", flush=True)


def install() -> None:
    """Make it hydra/sweeper=searching."""
    module = ModuleType(PLACE)
    module.Searching = Searching  # type: ignore[attr-defined]
    sys.modules[PLACE] = module
    Searching.__module__ = PLACE
    Plugins.instance().register(Searching)
    node = {"_target_": f"{PLACE}.Searching", "lr": [0.001], "direction": "minimize"}
    ConfigStore.instance().store(group="hydra/sweeper", name="searching", node=node)
