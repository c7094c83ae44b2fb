"""Where the yaml files are, the package's and the user's, found without importing Hydra or OmegaConf; and who reads
them."""

from __future__ import annotations

from itertools import repeat
from pathlib import Path
from typing import Any

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.printable import one_line

METRIC = "metric"  # the group whose files `metrics.names` lists


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


def config_dirs(words: list[str]) -> list[str]:
    """Values of `--config-dir DIR`, `--config-dir=DIR` and `-cd DIR`."""
    folders = [word.split("=", 1)[1] for word in words if word.startswith(("--config-dir=", "-cd="))]
    return folders + [value for flag, value in zip(words, words[1:], strict=False) if flag in ("--config-dir", "-cd")]


def yaml_file(path: Path) -> dict[str, Any]:
    """The content of one yaml file, as it is written; by LibYAML if PyYAML has it, which is ten times as fast."""
    import yaml  # here, because help needs only the folder

    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}


def yaml_nodes(path: Path, text: str) -> Any:
    """The nodes of a file with this text, which know where in it they are; None of an empty one.

    Raises:
        ConfigError: it is not yaml.
    """
    import yaml

    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        said = one_line(" ".join(str(error).split()))
        raise ConfigError(f"{path} must be yaml ({said}); correct it") from error


def read_by_libyaml() -> None:
    """From now on OmegaConf, and with it Hydra, reads yaml files by LibYAML too, with rules of its own as before.

    A composition reads 26 files, and PyYAML's own parser takes a sixth of its time. May be called twice; without effect
    where PyYAML has no LibYAML.
    """
    import yaml
    from omegaconf import _utils

    if not yaml.__with_libyaml__:
        return
    usual = yaml.SafeLoader
    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore  # on which OmegaConf's class is made
    try:
        loader = _utils.get_yaml_loader()
    finally:
        yaml.SafeLoader = usual  # type: ignore
    _utils.get_yaml_loader = repeat(loader).__next__  # the same class each time
