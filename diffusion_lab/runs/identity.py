"""What a run is: which keys of its configuration make it another run, another method, or neither.

A run is a function of (config, seed, step). Of the keys of its resolved configuration,

    those of `WITHOUT_EFFECT` and the run folder    change no result, but for the rounding of sums
    `seed`, and each `seed` below it that follows   make another run of the same method
    those of `MAY_CHANGE`                           may be changed when the run continues
    all others                                      make another method

The names and hashes of runs, the check of `resume`, `report` and `analyze` take what counts from here. A run that was
saved before a key existed behaves as the key's default does, so a key of `ADDED_LATER` counts only at another value.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

# Top-level keys and dotted paths that do not affect the results of a run, except for the rounding of sums
# and, by `compile` and `channels_last`, the masks of dropout.
WITHOUT_EFFECT = (
    "hydra",
    "paths",
    "name",
    "resume",
    "allow",
    "anew",
    "hang_timeout_min",
    "dry_run",
    "cost",
    "most_samples",  # the number of samples that follows from it counts
    "objective",
    "question",
    "threads",
    "logger",
    "callbacks.progress",
    "callbacks.heartbeat",
    "callbacks.pruning",
    "dataset.num_workers",
    "dataset.source.cache_gb",
    "dataset.source.images.cache_gb",
    "dataset.features.batch_size",
    "auxiliary.repa.encoder.batch_size",
    "images_per_device",
    "accumulate",
    "dataset.accumulate",
    "trainer.accumulate_grad_batches",
    "channels_last",
    "compile",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.strategy",
    "trainer.num_nodes",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.profiler",
    "trainer.num_sanity_val_steps",
    "trainer.default_root_dir",
)
# Keys that count and that a continued run may change.
MAY_CHANGE = (
    "max_steps",
    "trainer.max_steps",
    "metrics_every",
    "callbacks.checkpoint",
    "callbacks.generation.every",
    "callbacks.generation.metrics_every",
)
# Keys that count and say how often something is recorded: other curves of the same training.
RECORDING = ("log_every", "snapshot_every", "metrics_every", "checkpoint_every", "keep_every")
# Keys that were added after a release, so that its runs keep their names and hashes and can continue: `_target_` of the
# key's node, or "" for the whole configuration -> {key: default}. A run without the key behaves as with its default, so
# the key counts only if it has another value. A key with no `_target_` above it is dotted: {"": {"callbacks.new": 1}}.
# Values are those of a resolved configuration. Entries never change: a default that is changed later makes another run.
ADDED_LATER: dict[str, dict[str, Any]] = {
    "": {
        "auxiliary": None,
        "order": None,
        "dataset.order": None,
        "stream_seeds": {"init": None, "timesteps": None, "noise": None, "dropout": None},
    },
    "diffusion_lab.solvers.Guided": {"interval": None},
}
# What was read: the key of the place it was read from.
READ_FROM = {"probabilities": "path", "found": "folder", "checksum": "run"}


def containers(config: dict[Any, Any]) -> list[tuple[str, Any]]:
    """Dotted path and content of every dict and list of a plain configuration, outer ones first, itself as "".

    The path of an item of a list is `key[0]`.
    """
    found: list[tuple[str, Any]] = [("", config)]
    for path, one in found:  # grows during the loop
        is_list = isinstance(one, list)
        for key, value in enumerate(one) if is_list else one.items():
            if isinstance(value, dict | list):
                found.append((f"{path}[{key}]" if is_list else f"{path}.{key}" if path else str(key), value))
    return found


def parts(config: dict[Any, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Dotted path and content of every node with a `_target_`."""
    nodes = containers(config)
    return [(path, node) for path, node in nodes if isinstance(node, dict) and "_target_" in node]


def effective(config: Mapping[str, Any], run_dir: str | None = None) -> dict[str, Any]:
    """A copy of a resolved configuration without the keys that do not count.

    A place whose content stands beside it (`READ_FROM`, e.g. in sampler=from_file) is left out, and the run folder
    reads `<run_dir>`.

    Args:
        config: as run.json has it.
        run_dir: the run folder; None: `paths.run_dir` of the configuration.
    """
    folders = config.get("paths")
    folder = run_dir or (folders.get("run_dir") if isinstance(folders, Mapping) else None)
    content = json.loads(json.dumps(dict(config), default=str))  # a copy in which all keys are texts
    for _, node in containers(content):
        for kept, place in READ_FROM.items() if isinstance(node, dict) else ():
            if kept in node and (node[kept] is not None or node.get(place) is None):
                node.pop(place, None)
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(value, str) and isinstance(folder, str) and f"{value}/".startswith(f"{folder}/"):
                node[key] = f"<run_dir>{value[len(folder) :]}"
    for key in WITHOUT_EFFECT:
        *parents, last = key.split(".")
        node: Any = content
        for parent in parents:
            node = node.get(parent) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return content


def of_method(config: Mapping[str, Any]) -> dict[str, Any]:
    """`effective` without the run's seed; keys that follow it, such as dataset.seed, are there."""
    content = effective(config)
    content.pop("seed", None)
    return content


def followers_of_seed(config: dict[str, Any], seed: Any) -> frozenset[str]:
    """The keys below the top that are called `seed` and have the value of the run's, which they most likely follow."""
    nodes = [(path, node) for path, node in containers(config) if path and isinstance(node, dict)]
    return frozenset(f"{path}.seed" for path, node in nodes if "seed" in node and node["seed"] == seed)


def same_method(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two runs with these configurations differ in their seeds alone, if in anything that counts."""
    one, other = (leaves(dropped(of_method(config))) for config in (a, b))
    both = (followers_of_seed(dict(config), config.get("seed")) for config in (a, b))
    follow = frozenset.intersection(*both)
    return one.keys() == other.keys() and all(value == other[key] or key in follow for key, value in one.items())


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; lists are leaves."""
    if not isinstance(node, dict):
        return {path: node}
    return {k: v for key, value in node.items() for k, v in leaves(value, f"{path}.{key}".lstrip(".")).items()}


def dropped(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of a resolved configuration without the keys of `ADDED_LATER` that have their default value."""
    config = copy.deepcopy(config)
    for parent, key, default in _added(config):
        # True is not 1: their text differs, and so would the hash.
        if key in parent and parent[key] == default and isinstance(parent[key], bool) == isinstance(default, bool):
            del parent[key]
    return config


def filled(config: dict[str, Any]) -> dict[str, Any]:
    """A copy in which missing keys of `ADDED_LATER` have their default value."""
    config = copy.deepcopy(config)
    for parent, key, default in _added(config):
        parent.setdefault(key, copy.deepcopy(default))
    return config


def words_for_latents(config: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """`metrics.seed=N` for a run that was evaluated on the latents of one seed N for all runs, as those of version
    0.1.0 with N = 0, so that its further values can be compared with those that it has; [] for the latents of the run's
    own seed, the default since then, and if the words say which."""
    metrics = config.get("metrics")
    seed = metrics.get("seed") if isinstance(metrics, Mapping) else None
    typed = any(word.lstrip("+").startswith("metrics.seed=") for word in words)
    return [f"metrics.seed={seed}"] if type(seed) is int and not typed else []


def _added(config: dict[str, Any]) -> list[tuple[dict[str, Any], str, Any]]:
    """(node of the key, which may be missing; key; default).

    Inner nodes come first: a default may itself be a node with such keys.
    """
    found = []
    for path, node in reversed(containers(config)):
        target = node.get("_target_") if path and isinstance(node, dict) else "" if not path else None
        for dotted, default in ADDED_LATER.get(target, {}).items() if isinstance(target, str) else ():
            *parents, key = dotted.split(".")
            parent: Any = node
            for name in parents:
                parent = parent.get(name) if isinstance(parent, dict) else None
            if isinstance(parent, dict):
                found.append((parent, key, default))
    return found
