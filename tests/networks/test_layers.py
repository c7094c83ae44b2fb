"""Layers against their formulas, written out another way."""

import math

import pytest
import torch
import torch.nn.functional as F

from diffusion_lab.networks import timestep_embedding
from diffusion_lab.networks.kernels import GroupNorm
from diffusion_lab.networks.layers import Attention, Downsample, ResBlock, TimeEmbedding, Upsample, num_groups


def warm(module):
    """Weights and biases of ordinary size everywhere, so that no branch is near 0."""
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(std=0.3)
    return module.double()


@pytest.mark.parametrize("dim", [4, 16, 128])
def test_time_embedding_has_the_closed_form(dim):
    t = torch.tensor([0, 1, 2, 500, 999, 3999])
    values = timestep_embedding(t, dim)
    assert values.shape == (6, dim) and values.dtype == torch.float32
    half = dim // 2
    for row, time in zip(values.tolist(), t.tolist(), strict=True):
        for i in range(half):
            angle = time * 10_000 ** (-i / (half - 1))
            # Angles up to 4000 carry a rounding error of 4000 / 2^24 in float32.
            assert row[i] == pytest.approx(math.sin(angle), abs=5e-4)
            assert row[half + i] == pytest.approx(math.cos(angle), abs=5e-4)


def test_time_embedding_tells_all_timesteps_apart_even_in_bfloat16_networks():
    embedding = timestep_embedding(torch.arange(1000).to(torch.int64), 32)
    assert torch.cdist(embedding, embedding).fill_diagonal_(9).min() > 1e-3
    assert timestep_embedding(torch.tensor([999.0], dtype=torch.bfloat16), 32).dtype == torch.float32
    assert TimeEmbedding(32, 64).bfloat16()(torch.arange(4)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("channels", "groups"), [(128, 32), (256, 32), (384, 32), (512, 32), (64, 16), (16, 4), (48, 12), (4, 1), (148, 4)]
)
def test_group_count(channels, groups):
    assert num_groups(channels) == groups


def group_norm(x, layer):
    n, c = x.shape[:2]
    grouped = x.reshape(n, layer.num_groups, -1)
    mean, var = grouped.mean(-1, keepdim=True), grouped.var(-1, unbiased=False, keepdim=True)
    normal = ((grouped - mean) / (var + 1e-6).sqrt()).reshape(x.shape)
    return normal * layer.weight[:, None, None] + layer.bias[:, None, None]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_group_norm_in_bfloat16_keeps_type_and_layout_and_is_the_formula_to_its_rounding(layout):
    torch.manual_seed(0)
    layer = warm(GroupNorm(4, 16, eps=1e-6)).float()
    x = torch.randn(3, 16, 6, 6).bfloat16().to(memory_format=layout).requires_grad_()
    exact = x.detach().double().requires_grad_()
    y, expected = layer(x), group_norm(exact, layer.double())
    layer.float()
    assert y.dtype == torch.bfloat16 and y.is_contiguous(memory_format=layout)
    assert torch.allclose(y.double(), expected, rtol=2**-8, atol=2**-8)  # half a unit of bfloat16, at most 1.5 in size
    seed = torch.randn(3, 16, 6, 6)
    y.backward(seed.bfloat16())
    expected.backward(seed.bfloat16().double())
    assert torch.allclose(x.grad.double(), exact.grad, rtol=2**-7, atol=2**-7)


def test_group_norm_in_float32_is_pytorchs_to_the_bit():
    torch.manual_seed(0)
    layer = warm(GroupNorm(4, 16, eps=1e-6)).float()
    for x in (torch.randn(3, 16, 6, 6), torch.randn(3, 16, 6, 6).to(memory_format=torch.channels_last)):
        assert torch.equal(layer(x), F.group_norm(x, 4, layer.weight, layer.bias, 1e-6))


@pytest.mark.parametrize(("size", "mean"), [(1, 0), (5, 0), (28, 10), (31, 1000)])
def test_samples_are_normalised_by_sums_of_few_pixels_in_channels_last(size, mean):
    """As exact as PyTorch's kernel or more, whose last bits differ, also where the mean is far from 0."""
    torch.manual_seed(0)
    layer = warm(GroupNorm(4, 16, eps=1e-6))
    x = (torch.randn(3, 16, size, size) + mean).to(memory_format=torch.channels_last)
    with torch.no_grad():
        exact = group_norm(x.double(), layer)
        layer.float()
        theirs = layer(x)
        with torch.inference_mode():
            ours = layer(x)
        assert torch.equal(theirs, F.group_norm(x, 4, layer.weight, layer.bias, 1e-6))
    off, their_off = ((y.double() - exact).abs().max() for y in (ours, theirs))
    assert off < 1e-5 + 1e-6 * mean and off < 2 * their_off
    assert ours.stride() == theirs.stride() and (size == 1 or not torch.equal(ours, theirs))


def test_samples_in_other_layouts_and_of_many_pixels_are_pytorchs_to_the_bit():
    layer = warm(GroupNorm(4, 16, eps=1e-6)).float()
    last = torch.randn(1, 16, 32, 32).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        for x in (last, last.contiguous()[..., :8, :8].contiguous(), last[..., :16, :16], torch.randn(2, 16, 5)):
            assert torch.equal(layer(x), F.group_norm(x, 4, layer.weight, layer.bias, 1e-6))


@pytest.mark.parametrize("out_channels", [8, 12])
def test_residual_block_is_its_formula(out_channels):
    torch.manual_seed(0)
    block = warm(ResBlock(8, out_channels, 16, dropout=0.5)).eval()
    x, e = torch.randn(3, 8, 4, 4).double(), torch.randn(3, 16).double()

    def silu(v):
        return v * torch.sigmoid(v)

    h = F.conv2d(silu(group_norm(x, block.norm1)), block.conv1.weight, block.conv1.bias, padding=1)
    h = h + (e @ block.shift.weight.T + block.shift.bias)[:, :, None, None]
    h = F.conv2d(silu(group_norm(h, block.norm2)), block.conv2.weight, block.conv2.bias, padding=1)
    skip = x if out_channels == 8 else F.conv2d(x, block.skip.weight, block.skip.bias)
    assert torch.allclose(block(x, e), skip + h, atol=1e-10)


def test_attention_is_softmax_over_pixels():
    torch.manual_seed(0)
    layer = warm(Attention(8))
    x = torch.randn(2, 8, 3, 5).double()
    q, k, v = (
        torch.einsum("oi,nihw->nohw", layer.qkv.weight[..., 0, 0], group_norm(x, layer.norm))
        .add(layer.qkv.bias[:, None, None])
        .flatten(2)
        .chunk(3, dim=1)
    )
    weights = torch.softmax(torch.einsum("ncq,nck->nqk", q, k) / math.sqrt(8), dim=-1)
    mixed = torch.einsum("nqk,nck->ncq", weights, v).reshape(2, 8, 3, 5)
    out = torch.einsum("oi,nihw->nohw", layer.out.weight[..., 0, 0], mixed) + layer.out.bias[:, None, None]
    assert torch.allclose(layer(x), x + out, atol=1e-10)


def test_halving_pads_right_and_bottom():
    """Tap (i, j) of output pixel (y, x) reads input pixel (2y + i, 2x + j)."""
    layer = warm(Downsample(4))
    x = torch.randn(1, 4, 6, 6).double()
    padded = torch.zeros(1, 4, 7, 7).double()
    padded[..., :6, :6] = x
    expected = layer.conv.bias.view(1, 4, 1, 1).expand(1, 4, 3, 3).clone()
    for i in range(3):
        for j in range(3):
            expected += torch.einsum(
                "oi,nihw->nohw", layer.conv.weight[..., i, j], padded[..., i : i + 5 : 2, j : j + 5 : 2]
            )
    assert torch.allclose(layer(x), expected)


def test_doubling_repeats_pixels():
    layer = warm(Upsample(torch.nn.Conv2d(4, 4, 3, padding=1)))
    x = torch.randn(1, 4, 3, 5).double().requires_grad_()
    repeated = x.repeat_interleave(2, -1).repeat_interleave(2, -2)
    expected = F.conv2d(repeated, layer.conv.weight, layer.conv.bias, padding=1)
    assert torch.allclose(layer(x), expected)
    of, gradient = (x, *layer.parameters()), torch.randn_like(expected)
    for ours, theirs in zip(*(torch.autograd.grad(y, of, gradient) for y in (layer(x), expected)), strict=True):
        assert torch.allclose(ours, theirs)
