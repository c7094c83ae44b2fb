"""What a run is: which keys of its configuration make it another run, another method, or neither.

A run is a function of (config, seed, step). Of the keys of its resolved configuration,

    those of `WITHOUT_EFFECT` and the run folder    change no result, but for the rounding of sums
    `seed`, and each `seed` below it that follows   make another run of the same method
    those of `MAY_CHANGE`                           may be changed when the run continues
    all others                                      make another method

The names and hashes of runs, the check of `resume`, `report` and `analyze` take what counts from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diffusion_lab.runs.added_later import ADDED_LATER, dropped

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
    "threads",
    "logger",
    "extras",
    "callbacks.progress",
    "callbacks.heartbeat",
    "callbacks.pruning",
    "dataset.num_workers",
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
READ_FROM = {"probabilities": "path", "found": "folder"}  # what was read: the key of the place it was read from


def effective(config: Mapping[str, Any], run_dir: str | None = None) -> dict[str, Any]:
    """A copy of a resolved configuration without the keys that do not count.

    A place whose content stands beside it (`READ_FROM`, e.g. in sampler=from_file) is left out, and the run folder
    reads `<run_dir>`.

    Args:
        config: as run.json has it.
        run_dir: the run folder; None: `paths.run_dir` of the configuration.
    """
    paths = config.get("paths")
    folder = run_dir or (paths.get("run_dir") if isinstance(paths, Mapping) else None)
    content = _without_places(config, folder if isinstance(folder, str) else None)
    for key in WITHOUT_EFFECT:
        *parents, last = key.split(".")
        node: Any = content
        for parent in parents:
            node = node.get(parent) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return content


def of_method(config: Mapping[str, Any], run_dir: str | None = None) -> dict[str, Any]:
    """`effective` without the run's seed; keys that follow it, such as dataset.seed, are there."""
    content = effective(config, run_dir)
    content.pop("seed", None)
    return content


def followers_of_seed(config: Any, seed: Any, path: str = "") -> frozenset[str]:
    """The keys below the top that are called `seed` and have the value of the run's, which they most likely follow."""
    found: frozenset[str] = frozenset()
    for key, value in config.items() if isinstance(config, dict) else ():
        place = f"{path}.{key}".lstrip(".")
        follows = key == "seed" and path and value == seed
        found |= {place} if follows else followers_of_seed(value, seed, place)
    return found


def same_method(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two runs with these configurations differ in their seeds alone, if in anything that counts."""
    one, other = (leaves(dropped(of_method(config), ADDED_LATER)) for config in (a, b))
    both = (followers_of_seed(dict(config), config.get("seed")) for config in (a, b))
    follow = frozenset.intersection(*both)
    return one.keys() == other.keys() and all(value == other[key] or key in follow for key, value in one.items())


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; lists are leaves."""
    if not isinstance(node, dict):
        return {path: node}
    return {k: v for key, value in node.items() for k, v in leaves(value, f"{path}.{key}".lstrip(".")).items()}


def _without_places(node: Any, folder: str | None) -> Any:
    if isinstance(node, Mapping):
        places = {place for content, place in READ_FROM.items() if content in node}
        return {str(key): _without_places(value, folder) for key, value in node.items() if key not in places}
    if isinstance(node, list):
        return [_without_places(value, folder) for value in node]
    if folder is not None and isinstance(node, str) and (node == folder or node.startswith(f"{folder}/")):
        return f"<run_dir>{node[len(folder) :]}"
    return node
