"""Every analysis of conf/analysis on the paper GPU: no tensor is left on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, open_dict

from diffusion_lab.analyses import Analysis, perform
from diffusion_lab.testing.analyses import tiny_update
from tests.contract.test_analyses import composed
from tests.cuda.machine import paper_machine
from tests.cuda.paper import CUDA
from tests.cuda.training import options

# At most; what a yaml asks for takes minutes on paper.
SMALLER = {
    "images": 4,
    "points": 5,
    "draws": 4,
    "vectors": 3,
    "steps": 4,
    "count": 2,
    "repeats": 3,
    "warmup": 1,
    "pairs": 3,
    "noises": 2,
    "samples": 4,
    "num_windows": 2,
    "num_slots": 3,
    "sketch": 64,
}
INSTEAD = {"batch_sizes": [4, 8], "sizes": [1, 2], "shown": [1], "timesteps": [0, 500], "ranges": [[1, 500]], "last": 0}


def smaller(name: str) -> Analysis:
    """The analysis of a yaml, with small numbers where it has large ones."""
    node = composed(name).analysis
    _reduce(node)
    return instantiate(node, _convert_="all")


def _reduce(node: DictConfig) -> None:
    with open_dict(node):
        for key, value in node.items():
            if isinstance(value, DictConfig) and key == "solver":
                _reduce(value)
            elif key in INSTEAD:
                node[key] = INSTEAD[str(key)]
            elif key in SMALLER and value is not None:
                node[key] = min(value, SMALLER[str(key)])
            elif key == "every":
                node[key] = 200


def performed(name: str, device: torch.device | str, folder: Path) -> Path:
    """The folder of the results of the analysis of two tiny models on a device."""
    analysis, models = smaller(name), tiny_update()
    for model in models:
        model.denoiser.network.dropout.p = 0.0  # a device draws its own masks
        model.denoiser.to(device)
    analysis.check(models)
    assert perform(analysis, models, folder / name, {}, 0, device).endswith(".")
    return folder / name


@pytest.mark.parametrize("name", options()["analysis"])
def test_an_analysis_stays_on_the_device(name: str, tmp_path: Path) -> None:
    with paper_machine():
        assert (performed(name, CUDA, tmp_path) / "data.npz").is_file()
