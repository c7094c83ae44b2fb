"""Which part of the user's own an error comes from: the option of the command line, the class, the line of its file."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.conf_folder import METRIC
from diffusion_lab.cli.config import choices_of
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.targets import is_installed
from diffusion_lab.failure import Failure, WrongResult
from diffusion_lab.runs.identity import parts

OURS = ("diffusion_lab", "hydra_plugins")


def part_of(error: BaseException, cfg: DictConfig) -> str:
    """`sampler=mine (mine.Sampler)` for an error that a part of the user's own is the reason of, with the line of its
    file if it was raised there; "" for any other. Called inside of the job, which knows the options."""
    if isinstance(error, WrongResult):
        return option_of(cfg, _name(error.kind)) or raised_in(error, cfg)
    known = isinstance(error, Failure | ConfigError | InvalidConfig) or not isinstance(error, Exception)
    return "" if known else raised_in(error, cfg)


def raised_in(error: BaseException, cfg: DictConfig) -> str:
    """`sampler=mine (mine.Sampler), mine.py line 7` for an error that was raised in code of the user's own, or in what
    it called; "" for any other."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):  # the innermost part, and the innermost line
        if not _is_own(frame):
            continue
        owner, module = frame.f_locals.get("self"), frame.f_globals.get("__name__", "")
        part = option_of(cfg, f"{module}.{frame.f_code.co_qualname}" if owner is None else _name(type(owner)))
        name = part or found.partition(", ")[0] or module
        found = f"{name}, {frame.f_code.co_filename} line {line}"
    return found


def option_of(cfg: DictConfig, target: str) -> str:
    """`sampler=mine (mine.Sampler)`, the part of this class or function in a configuration; "" without one."""
    try:  # each node is found at its own place, so references need not resolve
        content, choices = OmegaConf.to_container(with_metrics(cfg)), choices_of(cfg)
    except (ConfigError, OmegaConfBaseException, ValueError):
        return ""
    assert isinstance(content, dict)
    content.pop("hydra", None)
    path = next((path for path, node in parts(content) if node["_target_"] == target), None)
    if path is None:
        return ""
    group, _, name = path.partition(".")
    if group == METRIC:
        return f"metrics.names=[{name}] ({target})"
    option = choices.get(path.replace(".", "/"))
    return f"{path}={option} ({target})" if option else f"{path} ({target})"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_own(frame: FrameType) -> bool:
    """Whether it runs code that is neither this package's nor installed."""
    if str(frame.f_globals.get("__name__")).partition(".")[0] in OURS:
        return False
    file = Path(frame.f_code.co_filename)
    return file.is_file() and not is_installed(file)
