"""The numbers of `diffusion-lab show run=DIR`: p and w as they are at the run's last checkpoint, beside step 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from diffusion_lab.cli.checks.method import METHOD
from diffusion_lab.cli.checks.read_back import check_read_back
from diffusion_lab.cli.config import plain
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, config_errors, describe
from diffusion_lab.cli.foreign import check_read, kept_inside, read_back
from diffusion_lab.cli.own_run import with_own
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.same_data import recorded_data
from diffusion_lab.cli.same_run import check_origin
from diffusion_lab.cli.shown import check_diffusion, evaluated, made_ready
from diffusion_lab.cli.source import content_of, recorded
from diffusion_lab.cli.targets import Trust
from diffusion_lab.reports.shown import Shown
from diffusion_lab.runs.names import CHECKPOINTS
from diffusion_lab.runs.record import read_record
from diffusion_lab.runs.signature import is_own


def shown_run(folder: Path, loss: str, trust: Trust, suffix: str = "") -> list[Shown]:
    """A run at its last checkpoint and, where that differs, at step 0.

    The folder is not trusted (docs/safety.md): its whole configuration is checked before any part is built, and of the
    checkpoint, which may hold only tensors and plain containers, the state of sampler and weighting alone is used.

    Args:
        folder: a run folder.
        loss: whose weight w is.
        trust: the classes that the run may name besides this package's.
        suffix: of the names, for more than one run.

    Raises:
        ConfigError: it is no run of a diffusion model, has no intact checkpoint, or one of another run.
        InvalidConfig: the run's configuration names a class that is not allowed.
    """
    with config_errors(""):
        record = read_record(folder, "run")
    saved, data = record["config"], recorded_data(record)
    trust = with_own(trust, record, f"run={folder}")
    cfg = read_back(saved)
    check_diffusion(f"run={folder}", cfg)
    if errors := check_read_back(saved, (*METHOD, "dataset"), trust):
        raise InvalidConfig(errors, f"run={folder}: ")
    content = content_of(folder / CHECKPOINTS, "last")
    check_origin(cfg, recorded(content), f"run={folder}")
    if not is_own(record):
        cfg = DictConfig(kept_inside(plain(cfg), folder))
        read = METHOD if data is not None else (*METHOD, "dataset")
        check_read({name: node for name, node in plain(cfg).items() if name in read}, folder, trust, f"run={folder}")
    parts = RunParts(cfg, trust)
    made_ready(parts, parts["dataset"].shape if data is None else data.shape)
    before = evaluated(f"step 0{suffix}", parts, 0, loss)
    try:
        step = int(content["global_step"])
        _restore(parts, content)
        classes = f"; classes: {data.numbered()}" if data is not None and data.numbered() else ""
        after = evaluated(f"step {step}{suffix}", parts, step, loss, f"the last checkpoint of {folder}{classes}")
    except (KeyError, RuntimeError, TypeError, ValueError) as error:  # a checkpoint is not trusted and may be damaged
        raise ConfigError(f"run={folder} must have a checkpoint of its own parts ({describe(error)})") from error
    same = np.allclose(before.p, after.p, rtol=1e-6) and np.allclose(before.weight, after.weight, rtol=1e-6)
    return [after] if same else [after, before]


def _restore(parts: RunParts, content: dict[str, Any]) -> None:
    """Load what sampler and weighting have learned, which `TimestepSampling` and the module have saved."""
    sampler, weighting = parts["sampler"], parts["weighting"]
    callbacks = {key: state for key, state in content["callbacks"].items() if key.startswith("TimestepSampling/")}
    sampler.load_state_dict(next(iter(callbacks.values()), {}))
    begin = "weighting."
    states = content["state_dict"].items()
    weighting.load_state_dict({key.removeprefix(begin): state for key, state in states if key.startswith(begin)})
