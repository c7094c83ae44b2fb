"""Every analysis with small numbers where its yaml has large ones, which take minutes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hydra import compose
from omegaconf import DictConfig, OmegaConf, open_dict

from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.hydra_version import initialized

NAMES = sorted(path.stem for path in (conf_dir() / "analysis").glob("*.yaml"))
AT_MOST = {
    "images": 3,
    "points": 3,
    "draws": 2,
    "vectors": 3,
    "steps": 3,
    "count": 2,
    "repeats": 3,
    "warmup": 1,
    "pairs": 3,
    "noises": 2,
    "samples": 2,
    "num_windows": 2,
    "num_slots": 3,
    "sketch": 16,
}
INSTEAD = {
    "batch_sizes": [4, 8],
    "sizes": [1, 2],
    "shown": [1],
    "timesteps": [0, 500],
    "ranges": [[1, 500]],
    "last": 0,
    "clip": False,  # the data have values beyond [-1, 1]
    "beta1": [0.9, 0.4],
}
SECOND_CASES = ("low_discrepancy", "antithetic", "equal_loss_slots", "power")  # of samplers that batch_noise compares


def composed(name: str) -> DictConfig:
    """The configuration of `diffusion-lab analyze analysis=NAME`."""
    register_resolvers()
    with initialized():
        return compose("analyze", overrides=[f"analysis={name}"])


def small(name: str) -> DictConfig:
    """Its node `analysis`, with small numbers."""
    node = composed(name).analysis
    for place, value in _changes(node):
        with open_dict(node):
            OmegaConf.update(node, place, value, merge=False)
    if "samplers" in node:
        node.samplers = {name: sampler for name, sampler in node.samplers.items() if name not in SECOND_CASES}
    return node


def small_words(name: str) -> list[str]:
    """The overrides with which a command performs it with small numbers."""
    words = (f"analysis.{place}={value}".replace(" ", "") for place, value in _changes(composed(name).analysis))
    return [f"analysis={name}", *words]


def _changes(node: DictConfig, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        place = f"{path}{key}"
        if isinstance(value, DictConfig) and key == "solver":
            yield from _changes(value, f"{place}.")
        elif key in INSTEAD:
            yield place, INSTEAD[str(key)]
        elif key in AT_MOST and value is not None:
            yield place, min(value, AT_MOST[str(key)])
        elif key == "every":
            yield place, 200
