"""The key to type: `dataset.batch_size` is `${batch_size}`, so an error in it is reported as `batch_size=...`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, Node, OmegaConf

from diffusion_lab.cli.config import choices_of

REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")  # a whole value; relative references are not followed
NAMED = re.compile(r"([\w.]+)(\[[^\]]*\])*=")  # a key with list indices


PART = re.compile(r"(?<![\w.])([a-z_]+)=([A-Z]\w*)")  # `sampler=SpeeD`
CURED = re.compile(r"(?<![\w.\[/-])[A-Za-z_]\w*(?==)")  # `min_size` in "or set min_size=40"


def key_to_type(node: DictConfig | ListConfig, key: Any) -> str:
    """The dotted key at the end of the chain of references that starts at `node[key]`; the key itself for a value."""
    path, root = node._get_full_key(key), node._get_root()
    at: Any = node
    for _ in range(8):
        there = isinstance(at, ListConfig) or (isinstance(at, DictConfig) and key in at)
        if not there or not OmegaConf.is_interpolation(at, key):
            break
        value = at._get_node(key)
        match = REFERENCE.fullmatch(str(value._value())) if isinstance(value, Node) else None
        if match is None:
            break
        path = match[1]
        parent, _, key = path.rpartition(".")
        at = OmegaConf.select(root, parent) if parent else root
    return path


def with_keys_to_type(cfg: DictConfig, message: str) -> str:
    """A message `<key>=...` with the words to type: the first key, those of the same part that its cure names, and the
    options of parts that it names by their classes, sampler=speed for sampler=SpeeD."""
    choices = choices_of(cfg)
    return PART.sub(lambda found: _chosen(cfg, choices, found), _with_first_key(cfg, message))


def _with_first_key(cfg: DictConfig, message: str) -> str:
    match = NAMED.match(message)
    if match is None:
        return message
    parent, _, key = match[1].rpartition(".")
    rest = CURED.sub(lambda found: _beside(cfg, parent, found[0]), message[match.end(1) :])
    node = OmegaConf.select(cfg, parent) if parent else cfg
    if isinstance(node, DictConfig) and key in node:
        return key_to_type(node, key) + rest
    # The build step passes arguments of the network from the data set.
    if parent == "network" and OmegaConf.select(cfg, f"dataset.source.{key}") is not None:
        return f"dataset.source.{key}{rest}"
    if isinstance(node, DictConfig) and parent:  # a key that the current part does not have
        return f"{node._get_full_key(key)}{rest}"
    return message


def _beside(cfg: DictConfig, parent: str, key: str) -> str:
    """What to type for an argument of the part at `parent`, or of one around it; the key itself if none has it."""
    while parent:
        node = OmegaConf.select(cfg, parent)
        if isinstance(node, DictConfig) and "_target_" in node and key in node:  # no container such as the callbacks
            return key_to_type(node, key)
        parent = parent.rpartition(".")[0]
    return key


def _chosen(cfg: DictConfig, choices: Mapping[str, Any], found: re.Match[str]) -> str:
    """`group=option` for `group=Class`, if the part of the configuration is of this class and an option chose it."""
    group, name = found.groups()
    if not choices.get(group):  # no group, such as init_from, whose value may be a list
        return found[0]
    target = OmegaConf.select(cfg, f"{group}._target_")
    return f"{group}={choices[group]}" if str(target).endswith(f".{name}") else found[0]
