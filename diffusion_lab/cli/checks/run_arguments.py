"""What a command that reads runs is asked for, as far as its words and run.json tell whether it can be: it is checked
before torch is imported, which takes seconds.

What only the checkpoint tells, such as the names of its averages, is checked when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from diffusion_lab.cli.checks.setting import LARGEST, Setting, faults_of
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.config import choices_of, config_folders
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, config_errors, nearest
from diffusion_lab.cli.options.files import options
from diffusion_lab.runs.data_record import DataRecord, parse_labels
from diffusion_lab.runs.names import is_run
from diffusion_lab.runs.record import read_record

# Settings of all commands that use a trained model.
SETTINGS = {
    "run": Setting(str, "use a run folder, e.g. run=runs/digits-uniform-s0-1a2b3c4d; see runs/"),
    "checkpoint": Setting(str, "use checkpoint=last"),
    "device": Setting(str, "use device=auto"),
    "threads": Setting(int, "use null for those of the run, or one per core", least=1, null=True),
}
LATENTS = {  # settings of commands that generate samples
    "seed": Setting(int, "use seed=0 for the default run", least=0),
    "batch_size": Setting(int, "use 64", least=1),
    "outdir": Setting(str, "give a folder, or null", null=True),
}
MOST = 1_000_000  # samples of one command: all of them are in memory before the first is written
WEIGHTS = r"ema|raw|[\d.e-]+|std-.*"  # the names that the averages of this package have


def check_run_arguments(command: str, cfg: DictConfig) -> None:
    """Raise ConfigError or InvalidConfig for the first that `evaluate`, `sample`, `analyze` or `export` is asked for
    and cannot be."""
    if command == "analyze" and not choices_of(cfg).get("analysis"):
        names = options("analysis", [conf_dir(), *map(Path, config_folders())])
        cure = "`diffusion-lab list analysis` describes them"
        raise ConfigError(f"analysis=null must be one of {', '.join(names)}; {cure}")
    general = {key: SETTINGS[key] for key in ("device", "threads")}
    if faults := faults_of(cfg, {key: setting for key, setting in (LATENTS | general).items() if key in cfg}):
        raise InvalidConfig(faults)
    if command == "evaluate":
        parse_seeds(cfg.seeds)
    if command == "sample":
        parse_ids(str(cfg.seeds))
    for record in _records(command, cfg):
        _check_weights(cfg, record["config"])
        if command == "sample":
            _check_labels(cfg.labels, record)


def listed(value: Any) -> list[Any]:
    """The entries of a setting that may be one value or a list of them."""
    return list(value) if isinstance(value, ListConfig) else [value]


def _records(command: str, cfg: DictConfig) -> Iterator[dict[str, Any]]:
    """The records of the runs; `analyze` may be given several, or a folder of them, which is read later."""
    several = command == "analyze"
    if cfg.run is None:
        wanted = "one or several run folders" if several else "a run folder"
        raise ConfigError(f"run=null must be {wanted}; {SETTINGS['run'].cure}")
    words = {key: listed(cfg[key]) if several else [cfg[key]] for key in ("run", "checkpoint")}
    if faults := [fault for key, some in words.items() for one in some if (fault := SETTINGS[key].fault(key, one))]:
        raise InvalidConfig([ConfigError(fault) for fault in faults])
    if not all(words.values()) or any(len(set(some)) < len(some) for some in words.values()):
        raise ConfigError(
            f"run={words['run']} checkpoint={words['checkpoint']} must each name something, and each once"
        )
    for folder in map(Path, words["run"]):
        if several and folder.is_dir() and not is_run(folder):
            continue
        with config_errors(""):
            yield read_record(folder, "run")


def _check_weights(cfg: DictConfig, config: dict[str, Any]) -> None:
    """A word that is no name of an average; an averaging of the user's own may have any."""
    averaging = config.get("averaging")
    target = str(averaging.get("_target_")) if isinstance(averaging, dict) else "diffusion_lab."
    wrong = [name for name in map(str, listed(cfg.weights)) if not re.fullmatch(WEIGHTS, name)]
    if wrong and target.startswith("diffusion_lab."):
        hint = nearest(wrong[0], ["ema", "raw"]) or "; use weights=ema"
        raise ConfigError(f"weights={wrong[0]} must be ema, raw, or an average such as 0.9999 or std-0.08{hint}")


def _check_labels(labels: Any, record: dict[str, Any]) -> None:
    """Labels of a run that says what its classes are."""
    known, dataset = DataRecord.read(record.get("data")), record["config"].get("dataset")
    if known is not None and isinstance(dataset, dict):
        classes = known.classes if dataset.get("conditional") is True else None
        with config_errors(""):
            parse_labels(labels, None if classes is None else len(classes), classes or ())


def parse_seeds(seeds: Any) -> list[int]:
    """The seeds of the latents of an evaluation, if there are several; [] for None. ConfigError unless they are two
    different integers or more."""
    if seeds is None:
        return []
    given = listed(seeds)
    known = all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in given)
    if not known or len(set(given)) < len(given) or len(given) < 2:
        raise ConfigError(f"seeds={seeds} must be at least two different integers >= 0; use seeds=[0,1,2]")
    return given


def parse_ids(text: str) -> list[int]:
    """ "0-3,10" -> [0, 1, 2, 3, 10]

    Raises:
        ConfigError: the text has another form, a number exceeds 64 bits, or there are more than `MOST` samples.
    """
    ids: list[int] = []
    cure = "numbers and ranges such as 0-63 or [0,5,7]; the id of each sample"
    for word in text.replace("'", "").strip("[]").split(","):  # of a list with a range, which is text
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", word)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ConfigError(f"seeds={text} must be {cure}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last > LARGEST:
            raise ConfigError(f"seeds={text} must be numbers up to {LARGEST}; use {cure}")
        if len(ids) + last - first >= MOST:
            raise ConfigError(
                f"seeds={text} must be at most {MOST:,} samples, which lie in memory; use several commands"
            )
        ids += range(first, last + 1)
    if len(set(ids)) < len(ids):
        raise ConfigError(f"seeds={text} must name each sample once; a sample is a function of its number")
    return ids
