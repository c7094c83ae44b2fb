"""What a command that reads a run takes over from the run's record, unless it is typed.

    --config-dir   of a run of the user's own (`own_run`), so that its own metrics and analyses are found again
    dataset.source.root and other places of the run's images, if they are typed (`moved_images`)
    metrics.names  in `evaluate`: the metrics that the run was trained with
    metrics.seed   in `evaluate` and `train resume=`: a number, one set of latents for all runs, as in version 0.1.0
    features       in `evaluate`: the extractor whose arguments are typed as in `train`, dataset.features.weights=FILE

`train` accepts the words of `evaluate` for the extractor as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diffusion_lab.cli.command_line import KEYED, placed
from diffusion_lab.cli.conf_folder import METRIC, conf_dir, config_dirs
from diffusion_lab.cli.moved_images import typed_for_a_run
from diffusion_lab.cli.options.files import options
from diffusion_lab.cli.own_yaml import lost_dir
from diffusion_lab.files import read_object
from diffusion_lab.printable import one_line
from diffusion_lab.runs.identity import words_for_latents
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.signature import config_dirs_of, is_own

EXTRACTOR, OF_DATA = "features", "dataset.features"  # its node in `evaluate` and in `train`


def with_recorded_words(command: str, words: list[str]) -> list[str]:
    """The words of `evaluate`, `sample`, `analyze` or `export`, and what they take over.

    A --config-dir is taken over only if each of the runs is the user's own: modules beside it are then allowed to all.
    """
    words = typed_for_a_run(words) if command in KEYED else words
    folders = [Path(folder) for word in words if word.startswith("run=") for folder in placed(word)]
    records = [record for folder in folders for record in _records(folder)]
    if records and all(map(is_own, records)) and not config_dirs(words):
        found = next((given for record in records if (given := config_dirs_of(record))), [])
        words = [*words, *(word for folder in found if os.path.isdir(folder) for word in ("--config-dir", folder))]
    if command != "evaluate" or len(records) != 1 or not isinstance(records[0].get("config"), dict):
        return words
    config = records[0]["config"]
    return [*_with_metrics(_with_extractor(words, config), records[0]), *words_for_latents(config, words)]


def words_for_train(words: list[str]) -> list[str]:
    """The words of `train`, with the extractor named as there: features=NAME and dataset.features=NAME are
    +features@dataset.features=NAME."""
    named = [re.sub(rf"^\+*{EXTRACTOR}=", f"+{EXTRACTOR}@{OF_DATA}=", word) for word in map(_option, words)]
    return [re.sub(rf"^{EXTRACTOR}\.", f"{OF_DATA}.", word) for word in named]


def _option(word: str) -> str:
    """dataset.features=NAME as features=NAME, unless it is null; other words as they are."""
    return re.sub(rf"^{re.escape(OF_DATA)}=(?!null$)(?=\w+$)", f"{EXTRACTOR}=", word)


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    """The record of a run, or of each run in a folder of runs."""
    record = read_object(folder / RECORD)
    inside = [] if record is not None else (read_object(path) for path in sorted(folder.glob(f"*/{RECORD}")))
    yield from (one for one in (record, *inside) if one is not None)


def _with_metrics(words: list[str], record: dict[str, Any]) -> list[str]:
    node = record["config"].get("metrics")
    names = node.get("names") if isinstance(node, dict) else None
    if not isinstance(names, list) or any(re.match(r"metrics(\.names)?=", word) for word in words):
        return words
    files = options(METRIC, [conf_dir(), *map(Path, config_dirs(words))])
    known = [name for name in names if isinstance(name, str) and name in files and re.fullmatch(r"\w+", name)]
    if len(known) < len(names):
        lost = ", ".join(one_line(str(name)) for name in names if name not in known)
        gone = lost_dir(record)
        was = f", which was in --config-dir {one_line(gone)}" if gone else ""
        print(f"not measured: {lost}, of the run, for which there is no file here{was}; give --config-dir")
    return [*words, f"metrics.names=[{','.join(known)}]"] if known else words


def _with_extractor(words: list[str], config: dict[str, Any]) -> list[str]:
    """Arguments of the data set's extractor as those of this command's, which is then the same one."""
    words = [_option(word) for word in words]
    if not any(word.startswith(f"{OF_DATA}.") for word in words):
        return words
    typed = [re.sub(rf"^{re.escape(OF_DATA)}\.", f"{EXTRACTOR}.", word) for word in words]
    node = (config.get("dataset") or {}).get(EXTRACTOR)
    target = node.get("_target_") if isinstance(node, dict) else None
    files = sorted((conf_dir() / EXTRACTOR).glob("*.yaml"))
    name = next((file.stem for file in files if f"_target_: {target}\n" in file.read_text(encoding="utf-8")), None)
    if any(word.startswith(f"{EXTRACTOR}=") for word in words):
        return typed
    return words if name is None else [f"{EXTRACTOR}={name}", *typed]
