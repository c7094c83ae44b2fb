"""What is called differently in Hydra 1.3 and 1.4, whose OmegaConf needs no ANTLR runtime: all else is the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from diffusion_lab.cli.conf_folder import conf_dir


def behaviour() -> dict[str, Any]:
    """The argument that states which version's behaviour is wanted: 1.3 warns without it, 1.4 with it."""
    import hydra  # takes 0.1 s

    return {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}


def add_resolver(name: str, function: Callable[..., Any]) -> None:
    """Make `${name:...}` call a function in every configuration; a second time replaces the first."""
    import omegaconf

    old = omegaconf.__version__.startswith("2.3.")  # which has a `register_resolver`, of 2.0
    register: Any = getattr(omegaconf.OmegaConf, "register_new_resolver" if old else "register_resolver")
    register(name, function, replace=True)


def initialized(folder: Path | None = None) -> AbstractContextManager[None]:
    """Inside, `hydra.compose` reads the yaml files of a folder, of the package's if none is given."""
    import hydra

    return hydra.initialize_config_dir(str(folder or conf_dir()), **behaviour())
