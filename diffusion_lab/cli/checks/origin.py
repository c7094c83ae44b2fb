"""Which key one would type: `dataset.batch_size` is `${batch_size}`, so a fault of it is told as `batch_size=...`."""

from __future__ import annotations

import re

from omegaconf import DictConfig, OmegaConf

REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")  # a whole value; relative references stay as they are


def origin(node: DictConfig, key: str) -> str:
    """The dotted key at the end of the chain of references that starts at `node[key]`, itself if it is a value."""
    path = node._get_full_key(key)
    for _ in range(8):
        if not isinstance(node, DictConfig) or key not in node or not OmegaConf.is_interpolation(node, key):
            break
        match = REFERENCE.fullmatch(str(node._get_node(key)._value()))  # type: ignore[union-attr]
        if match is None:
            break
        path = match[1]
        parent, _, key = path.rpartition(".")
        root = node._get_root()
        node = OmegaConf.select(root, parent) if parent else root  # type: ignore[assignment]
    return path


def by_origin(cfg: DictConfig, message: str) -> str:
    """A message `<key>=...` with the key that one would type."""
    match = re.match(r"([\w.]+)=", message)
    if match is None:
        return message
    parent, _, key = match[1].rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    if isinstance(node, DictConfig) and key in node:
        return origin(node, key) + message[match.end() - 1 :]
    # What the network is given late it has from the data set.
    if parent == "network" and OmegaConf.select(cfg, f"dataset.source.{key}") is not None:
        return f"dataset.source.{key}{message[match.end() - 1 :]}"
    return message
