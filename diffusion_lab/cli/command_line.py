"""The arguments for Hydra, with options before settings and `resume=<run folder>` replaced by the arguments of that run
and its folder; and the command that repeats a job.
"""

from __future__ import annotations

import math
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from diffusion_lab.cli.conf_folder import config_dirs
from diffusion_lab.cli.errors import ConfigError, config_errors, nearest
from diffusion_lab.cli.untrusted_run import recorded_init_identity, resume_overrides
from diffusion_lab.intervals import ESTIMANDS
from diffusion_lab.runs.identity import words_for_latents
from diffusion_lab.runs.record import read_record
from diffusion_lab.runs.shell_commands import command, setting
from diffusion_lab.runs.signature import is_own

EMPTY = re.compile(r"(--[\w-]+|-cd|resume|init_from|pilot)=")
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "paths.root")  # of a run that starts
VALUED = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p", "--cfg", "-c")

KEYED = ("evaluate", "sample", "analyze", "export")  # commands that take a run folder as run=DIR
PLACED = ("show", "verify", "report", "compare", "dashboard")  # and those that take folders as words


def check_words(words: Sequence[str]) -> None:
    """Refuse a command line with an empty word, folder or option, as after an unset variable of a shell: a path would
    be the working folder, and an option at the end would take another word for its value; and any other than one
    --config-dir that is there, as Hydra would take the last of several."""
    if words and words[-1] in VALUED:
        raise ConfigError(f"{words[-1]} must have a value, and is the last word; give it one, or leave it out")
    for before, word in zip(["", *words], words, strict=False):
        if not word:
            raise ConfigError(f"{before} '' must not be empty; use . for the working folder".lstrip())
        if EMPTY.fullmatch(re.sub("[+'\"]", "", word)):
            raise ConfigError(f"{word} must have a value, and is empty; use . for the working folder, or leave it out")
    folders = config_dirs(list(words))
    if len(folders) > 1:
        raise ConfigError(f"--config-dir must be given once, and is {' and '.join(folders)}; put the files into one")
    for folder in folders:
        if not Path(folder).is_dir():
            cure = "must be a folder with your own yaml files; make it or leave the option out"
            raise ConfigError(f"--config-dir={folder} {cure}")


def check_options(words: Sequence[str], *parsers: ArgumentParser) -> None:
    """Refuse the first option among the words that none of a command's parsers has, in full or as the beginning
    of one."""
    every = {option: parser for parser in parsers for action in parser._actions for option in action.option_strings}
    known = {option: parser for option, parser in every.items() if option.startswith("--")}
    for word in takewhile(lambda word: word != "--", words):
        name = word.partition("=")[0]
        if not name.startswith("--") or name in known:
            continue
        if not any(option.startswith(name) and parser.allow_abbrev for option, parser in known.items()):
            raise ConfigError(f"{name} must be an option of this command{nearest(name, known)}; --help lists them")


def parsed(parser: ArgumentParser, words: Sequence[str]) -> Namespace:
    """The options of a command.

    Raises:
        ConfigError: the command does not have one of them.
        SystemExit: argparse refuses them, or --help was asked for; what there is to say is printed.
    """
    check_options(words, parser)
    return parser.parse_args(words)


def seeds_of(text: str | None) -> list[int]:
    """The seeds of `--seeds 0,1,2`; [] without it.

    Raises:
        ConfigError: they are not different integers >= 0.
    """
    words = text.split(",") if text else []
    if not all(re.fullmatch("[0-9]+", word) for word in words) or len(set(map(int, words))) < len(words):
        raise ConfigError(f"seeds={text} must be different integers >= 0; use e.g. --seeds 0,1,2")
    return [int(word) for word in words]


def add_question(parser: ArgumentParser) -> None:
    """Add the options that ask a table another question than the recorded one."""
    parser.add_argument(
        "--estimand",
        choices=tuple(ESTIMANDS),
        help="what decides: the last value, or the mean over the snapshots; default: what the sweep records, else end",
    )
    parser.add_argument(
        "--margin",
        metavar="RATIO",
        type=float,
        help="ratio within which methods are equal; default: what the sweep records, else 1.1",
    )


def check_question(options: Namespace) -> None:
    """Raise ValueError for a value of `add_question`: a margin that is no ratio above 1."""
    if options.margin is not None and not 1 < options.margin < math.inf:
        raise ValueError(f"margin={options.margin:g} must be a ratio above 1; use e.g. --margin 1.05")


def given_options(options: Namespace, keys: Sequence[str]) -> list[str]:
    """`--KEY VALUE` of those of the options that have a value."""
    values = {key: value for key in keys if (value := getattr(options, key)) is not None}
    return [word for key, value in values.items() for word in (f"--{key}", f"{value}")]


def options_first(arguments: list[str]) -> list[str]:
    """`a=1 -m b=2` as `-m a=1 b=2`: argparse does not accept settings on both sides of an option."""
    options, settings, words = [], [], iter(arguments)
    for word in words:
        if not word.startswith("-"):
            settings.append(word)
            continue
        options.append(word)
        if word in VALUED:
            options += [value for value in [next(words, None)] if value is not None]
    return [*options, *settings]


def resume_arguments(arguments: list[str]) -> list[str]:
    """Arguments with `resume=<folder>` replaced by the arguments of that run.

    The other arguments come last and override them; `validate` checks which differences a resumed run may have. For a
    run of the user's own its --config-dir is repeated too, unless another is given.

    Raises:
        ConfigError: the folder is missing, is not a run, or contains overrides that are not allowed.
    """
    from diffusion_lab.cli.output_folders import check_run_folder

    folders = [word.split("=", 1)[1].strip("'\"") for word in arguments if _resumes(word)]
    if not folders or folders[-1] in ("", "null"):
        return arguments
    if "${" in folders[-1]:
        raise ConfigError(
            f"resume={folders[-1]} must be a folder whose name has no ${{, a reference; rename the folder"
        )
    from diffusion_lab.cli.own_run import config_dir_of

    folder = Path(folders[-1])
    with config_errors(""):
        record = read_record(folder, "resume")
    given = [word for word in arguments if not _resumes(word)]
    if any(word in ("-m", "--multirun") for word in given):
        raise ConfigError(f"resume={folder} must not be combined with -m; run the sweep's own command again")
    for word in given:
        key = word.partition("=")[0].lstrip("+")
        if key == "init_from":
            raise ConfigError(f"{word} must be left out with resume={folder}, which goes on from its own checkpoint")
        # Lightning starts the other processes of a run with the folder of the run itself.
        if key in FOLDERS and Path(word.partition("=")[2].strip("'\"")).resolve() != folder.resolve():
            raise ConfigError(f"{word} must be left out with resume={folder}, which goes on there; move the folder")
    check_run_folder("resume", folder)
    kept = resume_overrides(folder, record.get("overrides"), given, is_own(record))
    kept += words_for_latents(record["config"], [*kept, *given])
    kept += [] if config_dirs(given) else config_dir_of(record, f"resume={folder}")
    start = recorded_init_identity(record["config"])
    kept += [] if start is None else [f"init_from={{{','.join(f'{key}: {_quoted(start[key])}' for key in start)}}}"]
    # A job of a sweep is resumed alone, although its experiment defines the whole sweep.
    return [*kept, *given, setting("resume", folder), setting("hydra.run.dir", folder), "hydra.mode=RUN"]


def _resumes(word: str) -> bool:
    return word.lstrip("+").startswith("resume=")


def _quoted(value: object) -> str:
    return "null" if value is None else str(value) if isinstance(value, int) else f"'{value}'"


def lists(arguments: list[str], keys: tuple[str, ...]) -> list[str]:
    """`run=A,B` as `run=[A,B]` for these keys, which take several values; Hydra would parse a sweep."""
    written = []
    for word in arguments:
        key, _, value = word.partition("=")
        several = key in keys and "," in value and value[0] not in "[\"'"
        written.append(f"{key}=[{value}]" if several else word)
    return written


def run_folders_named(command: str, words: list[str]) -> list[str]:
    """Words of a command in which run folders are named as the command names them: a word without a key is `run=DIR` of
    the commands in `KEYED`, and `run=DIR` is a word of those in `PLACED`."""
    if command in PLACED:
        found = [placed(word) for word in words]
        return [word for some in found for word in some]
    if command not in KEYED or any(word.startswith("run=") for word in words):
        return words
    values = {i + 1 for i, word in enumerate(words) if word in VALUED}
    bare = [i for i, word in enumerate(words) if i not in values and _is_folder(word)]
    kept = [word for i, word in enumerate(words) if i not in bare]
    named = [setting("run", words[i]).removeprefix("run=") for i in bare]
    return [*kept, f"run={named[0]}" if len(named) == 1 else f"run=[{','.join(named)}]"] if named else words


def placed(word: str) -> list[str]:
    """The folders in `run=A` or `run=[A,B]`; any other word itself."""
    if not word.startswith("run="):
        return [word]
    value = word.removeprefix("run=").strip("'\"")
    return [value] if os.path.isdir(value) else [one.strip("'\"") for one in value.strip("[]").split(",")]


def _is_folder(word: str) -> bool:
    return "=" not in word and word[:1] not in ("-", "~", "") and ("/" in word or os.path.isdir(word))


def command_line() -> tuple[list[str], str]:
    """The overrides of this job, and the command that repeats this job only, quoted for a shell."""
    from hydra.core.hydra_config import HydraConfig

    from diffusion_lab.cli.config import config_folders

    if not HydraConfig.initialized():
        return [], "diffusion-lab train"
    hydra = HydraConfig.get()
    overrides = [word for word in hydra.overrides.task if not word.startswith(("anew=", "resume="))]  # apply once
    own = [word for folder in config_folders() for word in ("--config-dir", folder)]
    return overrides, command("train", *own, *overrides)
