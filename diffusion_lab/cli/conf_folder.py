"""Where the yaml files of the configuration are; found without importing Hydra or OmegaConf."""

from __future__ import annotations

from pathlib import Path


def conf_dir() -> Path:
    """The folder of the yaml files: inside the package in a wheel, beside it in a checkout.

    Raises:
        FileNotFoundError: the installation is broken.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / "train.yaml").is_file():
            return candidate
    raise FileNotFoundError(f"no conf folder in {package} or beside it; reinstall diffusion-lab")
