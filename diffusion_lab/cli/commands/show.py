"""`diffusion-lab show key=value,... run=DIR`: which timesteps would be trained on, or are, and with which weight."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from diffusion_lab.cli.command_line import parsed
from diffusion_lab.cli.config import given_config_dirs
from diffusion_lab.cli.errors import ConfigError, at
from diffusion_lab.cli.imports import importing
from diffusion_lab.cli.sweep_jobs import split_values
from diffusion_lab.runs.names import is_run
from diffusion_lab.runs.shell_commands import command, key_of, setting

if TYPE_CHECKING:
    from diffusion_lab.reports.timestep_numbers import TimestepNumbers

FOLDER = "figures"


def main(argv: list[str]) -> int:
    """Compose each method, build its sampler and weighting, print, write; returns 0, or 2 for a bad configuration."""
    options = parsed(_parser(), argv)
    if options.figures and is_run(Path(options.figures)):  # `--figures run=DIR`, whose key is taken off
        options.figures = setting("run", options.figures)
    if options.figures and "=" in options.figures:  # `--figures sampler=speed`: the folder was left out
        options.settings.insert(0, options.figures)
        options.figures = FOLDER
    _answer(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab show",
        description="p (how often each timestep is drawn), w (its weight in the loss) and their product, by timestep "
        "and per nat of log SNR, without training. A comma puts methods side by side: sampler=uniform,speed",
    )
    parser.add_argument(
        "settings", nargs="*", metavar="key=value", help="as for train; several values with commas; run=DIR: a run"
    )
    parser.add_argument("--step", type=int, default=0, metavar="N", help="optimizer step of a curriculum; default 0")
    losses = ("eps", "x0", "native")
    parser.add_argument("--loss", choices=losses, default="eps", help="the loss that w weights; default eps")
    parser.add_argument("--figures", nargs="?", const=FOLDER, metavar="DIR", help="write show.svg; default figures")
    parser.add_argument("--write", metavar="FILE", help="write p, one number per line, which sampler=from_file reads")
    parser.add_argument("--config-dir", "-cd", action="append", default=[], metavar="DIR", help="your own yaml files")
    return parser


def _methods(options: argparse.Namespace, settings: list[str]) -> list[tuple[str, DictConfig]]:
    """(name, configuration) of each combination of the values with commas."""
    from diffusion_lab.cli.compose_errors import explained
    from diffusion_lab.cli.config import compose_train, method_name

    methods = []
    with explained(settings):
        for words, varied in _combinations(settings):
            cfg = compose_train(words, Path("runs/show"), options.config_dir)
            methods.append((" ".join(varied) or method_name(cfg), cfg))
    return methods


def _combinations(settings: list[str]) -> list[tuple[list[str], list[str]]]:
    """(overrides, values that vary) of each method: Hydra's own reading of commas, ranges and choices."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    columns = []
    for word in settings:
        (override,) = OverridesParser.create().parse_overrides([word])  # whose error names the word
        if not override.is_sweep_override():
            columns.append([(word, "")])
            continue
        key = override.get_key_element()
        columns.append([(f"{key}={value}", _short(key, value)) for value in override.sweep_string_iterator()])
    products = itertools.product(*columns)
    return [([word for word, _ in row], [name for _, name in row if name]) for row in products]


def _not_shown(methods: list[tuple[str, DictConfig]], settings: list[str], config_dirs: list[str]) -> list[str]:
    """Commands that show what an experiment sweeps, one for each of its products; none where the words decide it."""
    typed = set(map(key_of, settings))
    swept, commands = False, dict[str, None]()
    for _, cfg in methods:
        sweeper = cfg.hydra.sweeper
        for block in sweeper.get("products") or [{}]:
            block = {str(key): str(values) for key, values in {**(sweeper.get("params") or {}), **block}.items()}
            kept = [key for key in block if key not in typed and key.rpartition(".")[2] != "seed"]
            swept |= len(sweeper.get("products") or ()) > 1 or any(len(split_values(block[key])) > 1 for key in kept)
            own = [f"--config-dir={folder}" for folder in config_dirs]
            words = [f"{key}={','.join(split_values(block[key]))}" for key in kept]
            commands |= {command("show", *own, *settings, *words): None} if kept else {}
    return [*commands] if swept else []


def _short(key: str, value: str) -> str:
    """An option by its name, a number with the name of its argument."""
    return f"{key.rpartition('.')[2]}={value}" if "." in key else value


def _found(options: argparse.Namespace) -> tuple[list[TimestepNumbers], list[str]]:
    """The runs that are named, then the methods; without words, the default method. And what is not shown."""
    from diffusion_lab.cli.targets import Trust

    # No setting, `key=value` or `~key`.
    runs = [word for word in options.settings if os.path.isdir(word) or not ("=" in word or word.startswith("~"))]
    allow = [word.removeprefix("allow=") for word in options.settings if word.startswith("allow=")]
    settings = [word for word in options.settings if word not in runs and not word.startswith("allow=")]
    methods = _methods(options, settings) if settings or not runs else []
    with importing():  # once the words can be composed
        from diffusion_lab.cli.show_numbers import numbers_before_training, numbers_of_run
    if runs and options.step:
        raise ConfigError(f"--step={options.step} must be left out with a run, which is shown at its last step")
    found = []
    for folder in runs:
        suffix = f" {Path(folder).resolve().name}" if len(runs) > 1 or settings else ""
        found += numbers_of_run(Path(folder), options.loss, Trust.read(options.config_dir, allow), suffix)
    for name, cfg in methods:
        found.append(numbers_before_training(name, cfg, options.step, options.loss, options.config_dir))
    return found, _not_shown(methods, settings, options.config_dir)


def _answer(options: argparse.Namespace) -> None:
    if options.step < 0:
        raise ConfigError(f"--step={options.step} must be an integer >= 0; use 0 for the start of training")
    with given_config_dirs(options.config_dir):
        found, more = _found(options)
    adapted = len(found) == 2 and found[1].name == "step 0"
    if options.write and len(found) > 1 and not adapted:  # of a run, the trained p
        raise ConfigError(f"--write={options.write} must have one method, and there are {len(found)}; leave one")
    _print(found, options.loss)
    if more:
        print("The experiment sweeps more than is shown here:", *more, sep="\n    ")
    if options.write:
        from diffusion_lab.distribution_file import write_distribution

        comment = f"p of {found[0].name}, timestep 0 (least noisy) first"
        with _written("--write", options.write):
            write_distribution(Path(options.write), found[0].p.tolist(), comment)
        print(f"distribution: {options.write}")
    if options.figures:
        from diffusion_lab.reports.timestep_numbers import write_figure

        with _written("--figures", options.figures):
            print(f"figure: {write_figure(Path(options.figures), found, options.loss)}")


def _print(found: list[TimestepNumbers], loss: str) -> None:
    from diffusion_lab.reports.timestep_numbers import plain_lines, plot_lines

    lines = plot_lines(found, loss) if sys.stdout.isatty() else plain_lines(found, loss)
    print("\n".join(lines))
    for note in dict.fromkeys(f"{one.name}: {one.note}" for one in found if one.note):
        print(note)


@contextmanager
def _written(option: str, value: str) -> Iterator[None]:
    """Report a file that cannot be written as an error in the option that names it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise at("", ValueError(f"{option}={value} must be a place for a file: {reason}; use another")) from error
