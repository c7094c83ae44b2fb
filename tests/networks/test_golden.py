"""The answers of the published code: guided-diffusion's `unet.py`, U-ViT's `uvit.py` and DiT's `models.py` were run in
float64 with the numbers of `filling.py` in their parameters, which stand in the same order there, and two of its images
as input. DiT's table of positions is its own.

    (mean square over all outputs, channel 0 at row 2, column 5 of both images, last channel at row 6, column 1 of both)
"""

import pytest
import torch

from diffusion_lab.networks import ADMSuperResolution, ADMUNet, DiT, UViT
from tests.networks.filling import fill, numbers

IDDPM = {"out_channels": 6, "channel_multipliers": [1, 2], "num_res_blocks": 1, "attention_resolutions": [8]}
HEADS = {"num_heads": None, "head_channels": 64}
ADM = IDDPM | HEADS | {"num_res_blocks": 2, "attention_resolutions": [4], "attention_layout": "new"}
ADM |= {"resblock_updown": True, "num_classes": 10}
LDM = IDDPM | {"out_channels": 3, "attention_resolutions": [8, 4], "scale_shift_norm": False}
LDM |= {"num_heads": None, "head_channels": 32}
SR = IDDPM | {"attention_resolutions": [4], "resblock_updown": True}
S = {"out_channels": 3, "patch_size": 2, "dim": 64, "depth": 4, "num_heads": 4}
H = {"out_channels": 3, "patch_size": 4, "dim": 48, "depth": 2, "num_heads": 3, "conv": False, "num_classes": 10}
DIT_2 = {"out_channels": 6, "patch_size": 2, "dim": 64, "depth": 3, "num_heads": 4, "num_classes": 10}
DIT_4 = {"out_channels": 3, "patch_size": 4, "dim": 48, "depth": 2, "num_heads": 3, "num_classes": 10}

GOLDEN = {
    "iddpm": (ADMUNet, IDDPM, [0.6930143, 0.8291023, 1.4429478, 0.7652426, -0.0909796]),
    "adm": (ADMUNet, ADM, [0.4868905, 0.3969372, 0.3665821, 0.9040266, -0.3625215]),
    "latent_diffusion": (ADMUNet, LDM, [0.2626865, -0.3152895, 0.0078107, 0.1730738, 0.0760488]),
    "super_resolution": (ADMSuperResolution, SR, [0.5095187, 0.6923833, -0.0644563, -1.1184536, -0.3255197]),
    "uvit_small": (UViT, S, [1.2435635, -0.7335393, -0.7844671, 1.9339023, 0.6737611]),
    "uvit_huge": (UViT, H, [1.4464143, -1.1038393, -0.0966047, -1.3999797, -1.5849133]),
    "dit_2": (DiT, DIT_2, [1.9154180, 0.0715501, 0.4015008, 0.2128180, 1.3582413]),
    "dit_4": (DiT, DIT_4, [1.2566568, -0.0651806, -1.0703887, -1.7511626, -0.8929481]),
}


def answer(name, **changes):
    network, arguments, _ = GOLDEN[name]
    network = fill(network(**({"in_channels": 3, "image_size": 8} | arguments | changes)))
    cond = {"label": torch.tensor([3, 9])} if "num_classes" in arguments else {}
    if name == "super_resolution":
        cond["low_res"] = 2 * numbers((2, 3, 4, 4), 201).float()
    with torch.no_grad():
        return network(2 * numbers((2, 3, 8, 8), 200).float(), torch.tensor([7, 640]), **cond)


def summary(out):
    return [out.square().mean().item(), *out[:, 0, 2, 5].tolist(), *out[:, -1, 6, 1].tolist()]


@pytest.mark.parametrize("name", GOLDEN)
def test_answers_are_those_of_the_published_code(name):
    assert summary(answer(name)) == pytest.approx(GOLDEN[name][2], abs=1e-5)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("iddpm", {"attention_layout": "new"}),
        ("adm", {"attention_layout": "legacy"}),
        ("iddpm", {"num_heads": 2}),
        ("super_resolution", {"head_channels": 32, "num_heads": None}),
        ("uvit_small", {"num_heads": 2}),
        ("dit_2", {"num_heads": 2}),
    ],
)
def test_a_change_without_parameters_changes_the_answers(name, changes):
    """Negative control: each of these networks has the same parameters."""
    wrong = summary(answer(name, **changes))
    assert max(abs(a - b) for a, b in zip(wrong, GOLDEN[name][2], strict=True)) > 1e-3
