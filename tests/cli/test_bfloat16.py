"""What a float32 run says about bfloat16: only where a CPU has matrix units, and nothing of the run changes."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch

from diffusion_lab.cli import bfloat16
from diffusion_lab.cli.bfloat16 import faster_bfloat16, has_bfloat16, has_matrix_units, probed
from diffusion_lab.cli.build_model import build_network
from diffusion_lab.cli.main import main
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.networks import UNet
from tests.cli.conftest import Compose

SMALL = ["network.base_channels=8"]


@pytest.mark.parametrize(
    ("flags", "instructions", "units"),
    [
        ("flags\t: fpu avx512f", False, False),
        ("flags\t: fpu avx512_bf16", True, False),
        ("flags\t: fpu avx512_bf16 amx_tile amx_bf16", True, True),
        ("Features\t: fp asimd bf16", True, True),
    ],
)
def test_what_the_processor_has(
    flags: str, instructions: bool, units: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr(bfloat16, "CPUINFO", tmp_path / "cpuinfo")
    assert (has_bfloat16(), has_matrix_units()) == (instructions, units)


def test_the_probe_changes_neither_weights_nor_gradients_nor_random_numbers() -> None:
    torch.manual_seed(0)
    network = UNet(3, 3, 8, base_channels=8, num_res_blocks=1, attention_resolutions=(), dropout=0.5, num_classes=4)
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    ratio, images = probed(network, {"in_channels": 3, "image_size": 8, "num_classes": 4}, 16, None)
    assert ratio > 0 and 1 <= images <= 16
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert all(weight.grad is None for weight in network.parameters())


@pytest.mark.parametrize(
    ("units", "words", "ratio", "hinted"),
    [
        (True, [], 0.4, True),
        (True, [], 0.95, False),  # not worth a line
        (False, [], 0.4, False),
        (True, ["precision=bf16-mixed"], 0.4, False),
        (True, ["trainer.devices=2"], 0.4, False),
    ],
)
def test_where_the_gain_is_said(
    composed: Compose, units: bool, words: list[str], ratio: float, hinted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bfloat16, "has_matrix_units", lambda: units)
    monkeypatch.setattr(bfloat16, "probed", lambda *_: (ratio, 8))
    parts = RunParts(with_metrics(composed(*SMALL, "trainer.accelerator=cpu", *words)))
    said = faster_bfloat16(parts, build_network(parts))
    assert (said is not None) == hinted
    assert said is None or "precision=bf16-mixed, another run, the network takes 0.40 times as long" in said


def test_a_run_that_says_it_is_the_same_run(
    in_folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", *SMALL, "max_steps=2", "log_every=1", "batch_size=8", "trainer.accelerator=cpu", "metrics=none"]
    weights = []
    for units, folder in ((False, "a"), (True, "b")):
        monkeypatch.setattr(bfloat16, "has_matrix_units", lambda units=units: units)
        monkeypatch.setattr(bfloat16, "WORTH_A_LINE", 1e9)
        assert main([*words, f"paths.root={folder}"]) == 0
        (file,) = Path(folder).rglob("last.ckpt")
        weights.append(torch.load(file, weights_only=True)["state_dict"])
    assert len(re.findall("bfloat16 matrix units", capsys.readouterr().out)) == 1
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
