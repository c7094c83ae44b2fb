"""The images of a run that were moved: the words that say where they are now, and the sentence that asks for them.

`train resume=R dataset.source.root=NEW/PLACE` composes its data set again. A command that reads a run takes the same
words; `load` replaces the places of the run's record by them, and the images are compared with the record as always.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.command_line import placed
from diffusion_lab.cli.config import plain
from diffusion_lab.cli.errors import ConfigError, MissingHere
from diffusion_lab.cli.same_run import SOURCE, places_of
from diffusion_lab.files import read_object
from diffusion_lab.runs.identity import leaves
from diffusion_lab.runs.names import RECORD

WORD = re.compile(rf"\+*{re.escape(SOURCE)}\.([\w.]+=)")
NODE = "moved"  # of the places in the configuration of such a command; its `dataset` would be that of a training


def typed_for_a_run(words: Sequence[str]) -> list[str]:
    """The words of a command that reads a run: `dataset.source.root=PLACE` is `moved.root` of its configuration."""
    return [WORD.sub(rf"+{NODE}.\1", word, count=1) if WORD.match(word) else word for word in words]


def typed_places(cfg: DictConfig) -> dict[str, Any]:
    """{"dataset.source.root": place} of the words in such a configuration."""
    return leaves(plain(cfg[NODE]), SOURCE) if NODE in cfg else {}


def with_places(cfg: DictConfig, moved: Mapping[str, Any]) -> DictConfig:
    """The configuration of a run with its images in other places, {key: place}; ConfigError if a key is no place of the
    images."""
    if not moved:
        return cfg
    keys = sorted(places_of(plain(cfg)))
    for key, place in moved.items():
        if key not in keys:
            which = f"use {', '.join(keys)}" if keys else "it has none; leave it out"
            raise ConfigError(f"{key}={place} must be a place of the run's images; {which}")
    there = DictConfig(plain(cfg))
    for key, place in moved.items():
        OmegaConf.update(there, key, place)
    return there


def where_now(fault: ConfigError, words: Sequence[str]) -> str:
    """The sentence of an error; for images of a run that are not where they were, with what to type."""
    key = str(fault).partition("=")[0]
    if not isinstance(fault, MissingHere) or not key.startswith(f"{SOURCE}."):
        return str(fault)
    runs = [word.partition("=")[2] for word in words if re.match(r"\+*(run|resume)=", word)]
    records = [read_object(Path(folder) / RECORD) or {} for word in runs for folder in placed(f"run={word}")]
    if any(key in places_of(config) for one in records if isinstance(config := one.get("config"), dict)):
        return f"{fault}; if they were moved, add {key}=NEW/PLACE"
    return str(fault)
