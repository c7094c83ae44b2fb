"""Every analysis of conf/analysis on the paper GPU: no tensor is left on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate

from diffusion_lab.analyses import perform
from diffusion_lab.testing.analyses import tiny_update
from tests.analyses.small import small
from tests.cuda.machine import paper_machine
from tests.cuda.paper import CUDA
from tests.cuda.training import options


def performed(name: str, device: torch.device | str, folder: Path) -> Path:
    """The folder of the results of the analysis of two tiny models on a device."""
    analysis, models = instantiate(small(name), _convert_="all"), tiny_update()
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
