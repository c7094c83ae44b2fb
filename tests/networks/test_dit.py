"""DiT: start as the identity, its formulas, positions, time, patches, labels, checkpointing, and its errors."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from diffusion_lab.diffusion import Denoiser, Epsilon, LearnedRange, linear
from diffusion_lab.networks import DiT, UViT
from diffusion_lab.networks.dit import DiTBlock, LastLayer, sin_cos_positions
from diffusion_lab.networks.uvit import UViTAttention
from tests.networks.filling import fill, numbers

TINY = {"patch_size": 2, "dim": 16, "depth": 2, "num_heads": 2}
X, T = 2 * numbers((4, 1, 8, 8), 90).float(), torch.tensor([3, 30, 300, 999])


def tiny(outputs=1, **changes):
    return DiT(1, outputs, 8, **(TINY | changes))


def normalised(x):
    """(x - mean) / sqrt(variance + 1e-6) over the last axis."""
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize("num_classes", [None, 3])
def test_the_output_is_exactly_zero_at_the_start(num_classes):
    network = tiny(outputs=2, num_classes=num_classes)
    label = None if num_classes is None else torch.tensor([0, 1, 2, 0])
    assert not network(X, T, label=label).any()
    assert fill(network)(X, T, label=label).abs().min() > 0  # negative control


def test_blocks_are_the_identity_at_the_start():
    network = tiny()
    tokens, c = numbers((4, 16, 16), 91).float(), numbers((4, 16), 92).float()
    for block in network.blocks:
        assert torch.equal(block(tokens, c), tokens)
        assert not torch.allclose(fill(block)(tokens, c), tokens, atol=1e-2)  # negative control


def test_weights_start_as_published():
    torch.manual_seed(0)
    network = tiny(dim=64, num_classes=50)
    small = {network.time[0], network.time[2]}
    zero = {network.last.out, network.last.modulation, *(block.modulation for block in network.blocks)}
    for module in (m for m in network.modules() if isinstance(m, nn.Linear | nn.Conv2d)):
        weight = module.weight.flatten(1)
        assert not module.bias.any()
        if module in zero:
            assert not weight.any()
        elif module in small:
            assert weight.std().item() == pytest.approx(0.02, rel=0.1)
        else:  # Xavier: uniform in [-b, b], so the largest of many is close to b
            bound = math.sqrt(6 / sum(weight.shape))
            assert 0.97 * bound < weight.abs().max().item() <= bound
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert network.label.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_positions_are_their_closed_form():
    table = sin_cos_positions(5, 24)
    assert table.shape == (25, 24) and table.dtype == torch.float32
    for token in range(25):
        row, column = divmod(token, 5)
        for place in range(24):
            axis, within = divmod(place, 12)
            function, k = divmod(within, 6)
            angle = (column, row)[axis] / 10_000 ** (k / 6)
            assert table[token, place].item() == pytest.approx((math.sin, math.cos)[function](angle), abs=1e-7)


def test_positions_are_neither_trained_nor_saved():
    network = tiny()
    assert "position" not in network.state_dict() and "position" not in dict(network.named_parameters())
    assert torch.equal(network.position, sin_cos_positions(4, 16))


def test_block_is_its_formula():
    block, x, c = fill(DiTBlock(16, 2)).double(), numbers((2, 7, 16), 61), numbers((2, 16), 62)
    a1, b1, g1, a2, b2, g2 = (c @ block.modulation.weight.T + block.modulation.bias)[:, None].split(16, dim=2)
    h = x + g1 * block.attention(normalised(x) * (1 + b1) + a1)
    inner = block.hidden(normalised(h) * (1 + b2) + a2)
    gelu = inner / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    assert block.hidden.out_features == 64 and torch.allclose(block(x, c), h + g2 * block.out(gelu), atol=1e-10)


def test_attention_has_a_bias_before_the_softmax():
    layer, x = fill(UViTAttention(16, 2, qkv_bias=True)).double(), numbers((2, 7, 16), 60)
    q, k, v = (x @ layer.qkv.weight.T + layer.qkv.bias).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    mixed = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(8), dim=-1) @ v
    assert torch.allclose(layer(x), layer.out(mixed.transpose(1, 2).flatten(2)), atol=1e-10)


def test_the_network_is_the_formula_of_its_docstring():
    """Every pixel, with patches, positions and their places written out."""
    network, label = fill(tiny(outputs=3, num_classes=5)).double(), torch.tensor([0, 1, 4, 4])
    x = X.double()
    angles = T[:, None] * torch.exp(-math.log(10_000) * torch.arange(128) / 128)
    features = torch.cat([angles.cos(), angles.sin()], dim=1).double()
    c = F.silu(network.time[2](F.silu(network.time[0](features))) + network.label.weight[label])
    patches = x.reshape(4, 4, 2, 4, 2).permute(0, 1, 3, 2, 4).reshape(4, 16, 4)
    h = patches @ network.patches.weight.flatten(1).T + network.patches.bias + network.position
    for block in network.blocks:
        h = block(h, c)
    shift, scale = network.last.modulation(c)[:, None].chunk(2, dim=2)
    h = network.last.out(normalised(h) * (1 + scale) + shift)
    out = network(x, T, label=label)
    for row in range(8):
        for column in range(8):
            token, place = row // 2 * 4 + column // 2, row % 2 * 2 + column % 2
            assert torch.allclose(out[:, :, row, column], h[:, token, 3 * place : 3 * place + 3], atol=1e-5)


def test_time_is_an_index_or_a_real_number():
    network = fill(tiny())
    assert torch.equal(network(X, T), network(X, T.float()))
    between = network(X, T + 0.5)
    assert all(not torch.allclose(between, network(X, t), atol=1e-3) for t in (T, T + 1))


def test_channels_that_nothing_reads_have_no_gradient():
    """SiT's: variance=learned_range variance.vlb_weight=0 keeps DiT's parameters and trains as with fewer channels."""
    network = fill(tiny(outputs=2)).double()
    denoiser = Denoiser(network, linear(1000), Epsilon(), LearnedRange(vlb_weight=0.0))
    loss = denoiser.loss(X.double(), numbers((4, 1, 8, 8), 93), T)
    (loss.native + loss.vlb).mean().backward()
    prediction, variance = network.last.out.weight.grad.unflatten(0, (4, 2)).unbind(1)
    assert prediction.any() and not variance.any()


def test_every_parameter_gets_a_gradient():
    network = fill(tiny(outputs=2, num_classes=3)).double()
    (network(X.double(), T, label=torch.tensor([0, 1, 2, 0])) - 1).square().mean().backward()
    assert [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_rows_do_not_mix_and_labels_steer_their_own_row():
    network = fill(tiny(num_classes=10))
    a, b = (network(X, T, label=torch.tensor([1, k, 3, 4])) for k in (2, 9))
    assert torch.equal(a[[0, 2, 3]], b[[0, 2, 3]]) and not torch.allclose(a[1], b[1], atol=1e-2)
    alone = [network(X[i : i + 1], T[i : i + 1], label=torch.tensor([k])) for i, k in enumerate((1, 2, 3, 4))]
    assert torch.allclose(a, torch.cat(alone), atol=1e-4)


def test_checkpointing_changes_no_bit_of_the_gradients():
    def gradients(network):
        calls = []
        network.blocks[0].attention.register_forward_hook(lambda *_: calls.append(1))
        network(X, T).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in network.parameters()]), len(calls)

    kept, again, other = (fill(tiny(**changes)) for changes in ({}, {"checkpointing": True}, {"num_heads": 1}))
    (a, once), (b, twice), (c, _) = gradients(kept), gradients(again), gradients(other)
    assert torch.equal(a, b) and (once, twice) == (1, 2)
    assert not torch.equal(a, c)  # negative control


def test_the_output_is_no_view():
    """FSDP warns of views: an operation in place on one would lose the hook that gathers the weights."""
    outputs = [tiny()(X, T), UViT(1, 1, 8, dim=16, depth=2, num_heads=2, conv=False)(X, T)]
    assert not any(out._is_view() for out in outputs)


def test_bfloat16_networks_answer_in_bfloat16():
    network = tiny(num_classes=3).bfloat16()
    assert network(X.bfloat16(), T, label=torch.tensor([0, 1, 2, 0])).dtype == torch.bfloat16


@pytest.mark.parametrize("label", [None, torch.tensor([0])])
def test_labels_and_classes_go_together(label):
    network = tiny(num_classes=None if label is not None else 10)
    with pytest.raises(ValueError, match=r"^num_classes=(10|None) .*give the network"):
        network(X[:1], T[:1], label=label)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"patch_size": 3},
            r"^patch_size=3 must divide image_size=32; use patch_size=2, or images of 33 pixels, or .*$",
        ),
        ({"patch_size": 0}, r"^patch_size=0 must be an integer >= 1"),
        ({"dim": 1150}, r"^dim=1150 must be a multiple of 4 and of num_heads=16; use 1152$"),
        ({"dim": 18, "num_heads": 3}, r"^dim=18 must be a multiple of 4 and of num_heads=3; use 24$"),
        ({"dim": 6, "num_heads": 1}, r"^dim=6 must be a multiple of 4 and of num_heads=1; use 8$"),
        ({"dim": 0}, r"^dim=0 must be an integer >= 4"),
        ({"depth": 0}, r"^depth=0 must be an integer >= 1"),
        ({"num_heads": 0}, r"^num_heads=0 must be an integer >= 1"),
        ({"checkpointing": 1}, r"^checkpointing=1 must be true or false"),
        ({"num_classes": 0}, r"^num_classes=0 must be an integer >= 1; use null"),
        ({"in_channels": 0}, r"^in_channels=0 must be an integer >= 1"),
        ({"out_channels": 0}, r"^out_channels=0 must be an integer >= 1"),
    ],
)
def test_bad_arguments_are_named(changes, expected):
    with torch.device("meta"), pytest.raises(ValueError, match=expected):
        DiT(**({"in_channels": 3, "out_channels": 3, "image_size": 32} | changes))


def test_the_last_layer_is_its_formula():
    layer, x, c = fill(LastLayer(16, 5)).double(), numbers((2, 7, 16), 63), numbers((2, 16), 64)
    shift, scale = (c @ layer.modulation.weight.T + layer.modulation.bias)[:, None].chunk(2, dim=2)
    assert torch.allclose(layer(x, c), layer.out(normalised(x) * (1 + scale) + shift), atol=1e-10)
