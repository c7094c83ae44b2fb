"""`diffusion_lab.train` and `diffusion_lab.load_run`: what the commands do, from a script or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.cli.app import App
from diffusion_lab.cli.command_line import check_words
from diffusion_lab.cli.conf_folder import config_dirs
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.own_yaml import check_encoding

if TYPE_CHECKING:
    from diffusion_lab.training import TrainedModel


def train(*words: str) -> TrainedModel:
    """Train as `diffusion-lab train WORDS` does, in this process; a finished run is loaded, an unfinished one goes on.

        run = train("dataset=digits", "sampler=speed", "max_steps=500")

    Args:
        words: overrides such as "sampler=speed", and "--config-dir", "FOLDER" for parts of your own. Classes in the
            working folder may be named.

    Returns:
        The run, with its averaged weights.

    Raises:
        InvalidConfig: what the command reports as `config error`.
        Exception: whatever ended the training.
    """
    if any(word in ("-m", "--multirun") for word in words):
        raise ConfigError("-m must be left out: train() is one run; call it in a loop, or use the command")
    check_words(words)
    check_encoding(words)
    app = App("train", list(words), typed=["train", *words])
    error = app.attempt()
    if error is not None:
        if faults := app.faults(error):
            raise InvalidConfig([ConfigError(fault) for fault in faults]) from None
        raise error
    if app.output is None or not app.called:  # `--cfg job` and the like
        raise ConfigError(f"{' '.join(words)} must be settings of one run; use the command for what it prints")
    from diffusion_lab.cli.load import load_run as load
    from diffusion_lab.cli.targets import Trust

    return load(app.output, trust=Trust.typed(config_dirs(list(words))))


def load_run(
    folder: str | Path, checkpoint: str = "last", weights: str = "ema", allow: str | Sequence[str] | None = None
) -> TrainedModel:
    """A trained run with its averaged weights, from its folder; nothing in the folder is executed.

        run = load_run("runs/digits-uniform-s0-1a2b3c4d")
        images = run.samples(range(16))          # (16,C,H,W) uint8

    Args:
        folder: a run folder.
        checkpoint: "last", or the name of a numbered checkpoint such as "step-00001000".
        weights: "ema" for the first average, "raw", a decay such as "0.9999", or a width such as "std-0.08".
        allow: dotted names of classes of your own that the run's configuration may name.

    Raises:
        ConfigError: the folder is not a run, or the checkpoint or average does not exist.
        InvalidConfig: the run's configuration names a class that is not allowed.
    """
    from diffusion_lab.cli.load import load_run as load
    from diffusion_lab.cli.targets import Trust

    return load(folder, checkpoint, weights, Trust.read([], allow, command=False), "folder", reads_data=False)
