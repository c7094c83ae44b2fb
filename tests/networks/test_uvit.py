"""U-ViT: attention, long skips, patches, conditions, checkpointing, start, and its complaints."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from diffusion_lab.networks import UViT
from diffusion_lab.networks.uvit import UViTAttention, UViTBlock, UViTSkipBlock
from tests.networks.filling import fill, numbers

TINY = {"patch_size": 2, "dim": 16, "depth": 4, "num_heads": 2}
X, T = 2 * numbers((4, 1, 8, 8), 90).float(), torch.tensor([3, 30, 300, 999])


def tiny(outputs=1, **changes):
    return UViT(1, outputs, 8, **(TINY | changes))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_is_softmax_over_tokens(heads):
    layer, x = fill(UViTAttention(16, heads)).double(), 4 * numbers((2, 7, 16), 60)
    q, k, v = (x @ layer.qkv.weight.T).chunk(3, dim=2)
    size, mixed = 16 // heads, []
    for head in range(heads):
        part = slice(size * head, size * (head + 1))
        scores = torch.einsum("bqc,bkc->bqk", q[..., part], k[..., part]) / math.sqrt(size)
        mixed.append(torch.einsum("bqk,bkc->bqc", torch.softmax(scores, dim=-1), v[..., part]))
    out = torch.cat(mixed, dim=2) @ layer.out.weight.T + layer.out.bias
    assert layer.qkv.bias is None and torch.allclose(layer(x), out, atol=1e-10)


def test_block_is_its_formula():
    block, x = fill(UViTBlock(16, 2)).double(), numbers((2, 7, 16), 61)
    h = x + block.attention(F.layer_norm(x, (16,), block.norm1.weight, block.norm1.bias))
    inner = block.hidden(F.layer_norm(h, (16,), block.norm2.weight, block.norm2.bias))
    gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    assert block.hidden.out_features == 64 and torch.allclose(block(x), h + block.out(gelu), atol=1e-10)


def test_long_skips_join_first_with_last():
    """The k-th block from the end is given what the k-th block from the start gave."""
    network, given, taken = fill(tiny(depth=6)), [], []
    for block in network.encoder:
        block.register_forward_hook(lambda _, __, out: given.append(out))
    for block in network.decoder:
        block.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[1]))
    network(X, T)
    assert len(given) == len(taken) == 3
    assert all(a is b for a, b in zip(given, reversed(taken), strict=True))
    assert not torch.equal(given[0], given[1])
    block, h = network.decoder[0], given[0]
    merged = torch.cat([h, given[1]], dim=2) @ block.merge.weight.T + block.merge.bias
    assert isinstance(block, UViTSkipBlock) and torch.allclose(block(h, given[1]), UViTBlock.forward(block, merged))


@pytest.mark.parametrize("patch", [1, 2, 4, 8])
def test_patches_return_to_where_they_came_from(patch):
    """Patch (i, j) of the output depends on the last tokens' place (i, j) alone, pixel by pixel, channel by channel."""
    network = tiny(outputs=3, patch_size=patch, conv=False)
    side = 8 // patch
    tokens = torch.arange(4 * (1 + side * side) * patch * patch * 3.0).reshape(4, 1 + side * side, -1)
    image = network._image(tokens, X)
    for i in range(8):
        for j in range(8):
            token, place = 1 + (i // patch) * side + j // patch, (i % patch) * patch + j % patch
            assert torch.equal(image[:, :, i, j], tokens[:, token, 3 * place : 3 * place + 3])


@pytest.mark.parametrize("conv", [True, False])
@pytest.mark.parametrize("num_classes", [None, 3])
def test_every_layout_runs(conv, num_classes):
    network = tiny(outputs=5, conv=conv, num_classes=num_classes)
    label = None if num_classes is None else torch.tensor([0, 1, 2, 0])
    assert network(X, T, label=label).shape == (4, 5, 8, 8)
    assert network.position.shape == (1, 16 + (1 if num_classes is None else 2), 16)


def test_weights_start_as_published():
    torch.manual_seed(0)
    network = tiny(dim=64, num_classes=3)
    for module in network.modules():
        if isinstance(module, nn.Linear):
            assert module.weight.std().item() == pytest.approx(0.02, rel=0.15)
            assert module.bias is None or not module.bias.any()
    assert network.position.std().item() == pytest.approx(0.02, rel=0.15)
    assert network.patches.weight.std().item() == pytest.approx(1 / math.sqrt(3 * 4), rel=0.15)  # PyTorch's own
    assert network.label.weight.std().item() == pytest.approx(1, rel=0.2)


def test_every_parameter_gets_a_gradient():
    network = fill(tiny(outputs=2, num_classes=3)).double()
    (network(X.double(), T, label=torch.tensor([0, 1, 2, 0])) - 1).square().mean().backward()
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


def test_checkpointing_changes_no_bit_of_the_gradients():
    def gradients(network):
        calls = []
        network.decoder[0].attention.register_forward_hook(lambda *_: calls.append(1))
        network(X, T).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in network.parameters()]), len(calls)

    kept, again, other = (fill(tiny(**changes)) for changes in ({}, {"checkpointing": True}, {"num_heads": 1}))
    (a, once), (b, twice), (c, _) = gradients(kept), gradients(again), gradients(other)
    assert torch.equal(a, b) and (once, twice) == (1, 2)
    assert not torch.equal(a, c)  # negative control


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
        (
            {"patch_size": 64},
            r"^patch_size=64 must divide image_size=32; use patch_size=32, or images of 64 pixels, or .*$",
        ),
        ({"patch_size": 0}, r"^patch_size=0 must be an integer >= 1"),
        (
            {"image_size": 0},
            r"^patch_size=2 must divide image_size=0; use patch_size=1, or images of 2 pixels, or .*$",
        ),
        ({"dim": 500}, r"^dim=500 must be even and a multiple of num_heads=8; use 496$"),
        ({"dim": 15, "num_heads": 5}, r"^dim=15 must be even and a multiple of num_heads=5; use 20$"),
        ({"dim": 0}, r"^dim=0 must be an integer >= 2"),
        ({"depth": 13}, r"^depth=13 must be even.*use 12 for 13 blocks in all$"),
        ({"depth": 0}, r"^depth=0 must be an integer >= 2"),
        ({"num_heads": 0}, r"^num_heads=0 must be an integer >= 1"),
        ({"conv": 3}, r"^conv=3 must be true or false"),
        ({"checkpointing": 1}, r"^checkpointing=1 must be true or false"),
        ({"num_classes": 0}, r"^num_classes=0 must be an integer >= 1; use null"),
        ({"in_channels": 0}, r"^in_channels=0 must be an integer >= 1"),
        ({"out_channels": 0}, r"^out_channels=0 must be an integer >= 1"),
    ],
)
def test_bad_arguments_are_named(changes, expected):
    with torch.device("meta"), pytest.raises(ValueError, match=expected):
        UViT(**({"in_channels": 3, "out_channels": 3, "image_size": 32} | changes))
