"""ADM's U-Nets: layouts, start, gradients, checkpointing, conditions, and their complaints."""

import pytest
import torch
import torch.nn.functional as F

from diffusion_lab.networks import ADMSuperResolution, ADMUNet
from tests.networks.filling import fill, numbers

TINY = {
    "base_channels": 8,
    "channel_multipliers": [1, 2],
    "num_res_blocks": 1,
    "attention_resolutions": [4],
    "num_heads": 2,
    "dropout": 0.0,
}
X, T = 2 * numbers((4, 1, 8, 8), 90).float(), torch.tensor([3, 30, 300, 999])


def tiny(network=ADMUNet, outputs=1, **changes):
    return network(1, outputs, 8, **(TINY | changes))


@pytest.mark.parametrize("multipliers", [[1], [1, 2], [2, 1, 3]])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("resblock_updown", [True, False])
@pytest.mark.parametrize("heads", [{"num_heads": 2}, {"num_heads": None, "head_channels": 4}])
def test_every_layout_runs(multipliers, blocks, resblock_updown, heads):
    arguments = {"channel_multipliers": multipliers, "num_res_blocks": blocks, "attention_resolutions": [8]}
    network = tiny(outputs=5, resblock_updown=resblock_updown, **arguments, **heads)
    assert network(X, T).shape == (4, 5, 8, 8)


@pytest.mark.parametrize("updown", [True, False])
@pytest.mark.parametrize("scale_shift_norm", [True, False])
def test_output_at_the_start_is_exactly_zero(updown, scale_shift_norm):
    network = tiny(resblock_updown=updown, scale_shift_norm=scale_shift_norm)
    assert not network(X, T).any()
    assert fill(network)(X, T).abs().min() > 0  # negative control


def test_every_parameter_gets_a_gradient():
    network = fill(tiny(outputs=2, num_classes=3)).double()
    label = torch.tensor([0, 1, 2, 0])
    (network(X.double(), T, label=label) - 1).square().mean().backward()
    assert [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_rows_do_not_mix_and_time_matters():
    network = fill(tiny())
    together = network(X, T)
    alone = torch.cat([network(X[i : i + 1], T[i : i + 1]) for i in range(4)])
    assert torch.allclose(together, alone, atol=1e-4)
    assert not torch.allclose(together, network(X, T.flip(0)), atol=1e-2)


def test_labels_steer_the_output_of_their_own_row():
    network = fill(tiny(num_classes=10))
    a, b = (network(X, T, label=torch.tensor([1, k, 3, 4])) for k in (2, 9))
    assert torch.equal(a[[0, 2, 3]], b[[0, 2, 3]]) and not torch.allclose(a[1], b[1], atol=1e-2)


def test_the_small_image_stands_beside_the_noisy_one():
    network = fill(tiny(ADMSuperResolution))
    low_res = 2 * numbers((4, 1, 2, 2), 91).float()
    plain = fill(ADMUNet(2, 1, 8, **TINY))  # the same parameters, one channel more
    beside = torch.cat([X, F.interpolate(low_res, size=8, mode="bilinear")], dim=1)
    assert torch.equal(network(X, T, low_res=low_res), plain(beside, T))
    assert not torch.allclose(network(X, T, low_res=low_res), network(X, T, low_res=low_res.flip(0)), atol=1e-2)


def test_small_images_go_with_labels():
    network = fill(tiny(ADMSuperResolution, num_classes=3))
    a, b = (network(X, T, label=torch.full((4,), k), low_res=X[..., ::2, ::2]) for k in (0, 2))
    assert a.shape == X.shape and not torch.allclose(a, b, atol=1e-2)


def gradients(network, **cond):
    torch.manual_seed(5)
    network.zero_grad()
    network(X, T, **cond).square().mean().backward()
    return torch.cat([p.grad.flatten() for p in network.parameters()])


@pytest.mark.parametrize("updown", [True, False])
def test_checkpointing_changes_no_bit_of_the_gradients(updown):
    arguments = {"dropout": 0.3, "num_classes": 3, "resblock_updown": updown}
    cond = {"label": torch.tensor([0, 1, 2, 0])}
    kept = fill(tiny(**arguments)).train()
    again = fill(tiny(**arguments, checkpointing=True)).train()
    assert torch.equal(gradients(kept, **cond), gradients(again, **cond))
    without_dropout = fill(tiny(**(arguments | {"dropout": 0.0}))).train()
    assert not torch.equal(gradients(kept, **cond), gradients(without_dropout, **cond))  # negative control


@pytest.mark.parametrize("checkpointing", [True, False])
def test_checkpointing_computes_blocks_twice_in_training_only(checkpointing):
    network, calls = fill(tiny(checkpointing=checkpointing)), []
    network.middle[0].res.register_forward_hook(lambda *_: calls.append(1))
    network(X, T).sum().backward()
    assert len(calls) == 1 + checkpointing
    with torch.no_grad():
        network(X, T)
    assert len(calls) == 2 + checkpointing


@pytest.mark.parametrize("label", [None, torch.tensor([0])])
def test_labels_and_classes_go_together(label):
    network = tiny(num_classes=None if label is not None else 10)
    with pytest.raises(ValueError, match=r"^num_classes=(10|None) .*give the network"):
        network(X[:1], T[:1], label=label)


@pytest.mark.parametrize("low_res", [torch.zeros(4, 3, 4, 4), torch.zeros(2, 1, 4, 4)])
def test_super_resolution_asks_for_small_images(low_res):
    with pytest.raises(ValueError, match=r"^low_res=.* must be one small image of 1 channels .* 4 images; give"):
        tiny(ADMSuperResolution)(X, T, low_res=low_res)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"image_size": 30}, r"^image_size=30 must be a positive multiple of 8"),
        ({"base_channels": 30}, r"^base_channels=30 must be a positive multiple of 4"),
        ({"channel_multipliers": []}, r"^channel_multipliers=\[\] must"),
        ({"num_res_blocks": 0}, r"^num_res_blocks=0 must be an integer >= 1"),
        ({"attention_resolutions": [5]}, r"^attention_resolutions=\[5\] .*but 5 does not"),
        ({"num_heads": 3}, r"^num_heads=3 must divide the 256 channels .*use a divisor of 256"),
        ({"num_heads": 0}, r"^num_heads=0 must be an integer >= 1"),
        ({"num_heads": None}, r"^num_heads=None must be an integer >= 1; use 4, or set head_channels"),
        ({"num_heads": None, "head_channels": 96}, r"^head_channels=96 must divide the 256 channels"),
        ({"num_heads": None, "head_channels": 0}, r"^head_channels=0 must be an integer >= 1"),
        ({"head_channels": 64}, r"^num_heads=4 must be null where head_channels=64 is given; set one"),
        ({"attention_layout": "old"}, r"^attention_layout=old must be one of legacy, new"),
        ({"scale_shift_norm": 1}, r"^scale_shift_norm=1 must be true or false"),
        ({"resblock_updown": "yes"}, r"^resblock_updown='yes' must be true or false"),
        ({"checkpointing": None}, r"^checkpointing=None must be true or false"),
        ({"dropout": 1.0}, r"^dropout=1.0 must lie in \[0, 1\)"),
        ({"num_classes": 0}, r"^num_classes=0 must be an integer >= 1; use null"),
    ],
)
def test_bad_arguments_are_named(changes, expected):
    with torch.device("meta"), pytest.raises(ValueError, match=expected):
        ADMUNet(**({"in_channels": 3, "out_channels": 3, "image_size": 32} | changes))


def test_time_scale_is_the_network_at_other_timesteps():
    plain, scaled = fill(tiny()), fill(tiny(time_scale=0.25))
    assert torch.equal(scaled(X, 4 * T), plain(X, T)) and not torch.allclose(scaled(X, T), plain(X, T))
