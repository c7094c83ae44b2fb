"""Layers of ADM against their formulas, written out another way."""

import math

import pytest
import torch
import torch.nn.functional as F

from diffusion_lab.networks.adm_layers import (
    ADMAttention,
    ADMDownsample,
    ADMResBlock,
    cos_sin_embedding,
    double,
    halve,
)
from diffusion_lab.networks.layers import TimeEmbedding, Upsample
from tests.networks.filling import fill, numbers


def group_norm(x, layer):
    grouped = x.reshape(len(x), layer.num_groups, -1)
    mean, var = grouped.mean(-1, keepdim=True), grouped.var(-1, unbiased=False, keepdim=True)
    normal = ((grouped - mean) / (var + 1e-5).sqrt()).reshape(x.shape)
    return normal * layer.weight[:, None, None] + layer.bias[:, None, None]


def silu(x):
    return x * torch.sigmoid(x)


@pytest.mark.parametrize("dim", [2, 16, 48])
def test_time_embedding_has_the_closed_form(dim):
    t = torch.tensor([0, 1, 2, 500, 999])
    half, values = dim // 2, cos_sin_embedding(t, dim)
    assert values.shape == (5, dim) and values.dtype == torch.float32
    for row, time in zip(values.tolist(), t.tolist(), strict=True):
        for i in range(half):
            angle = time * 10_000 ** (-i / half)
            assert row[i] == pytest.approx(math.cos(angle), abs=5e-4)
            assert row[half + i] == pytest.approx(math.sin(angle), abs=5e-4)


def test_time_is_not_rounded_in_bfloat16_networks():
    assert cos_sin_embedding(torch.tensor([999.0], dtype=torch.bfloat16), 32).dtype == torch.float32
    time = TimeEmbedding(32, 64, cos_sin_embedding, torch.nn.Linear).bfloat16()
    assert time(torch.arange(4)).dtype == torch.bfloat16


@pytest.mark.parametrize("scale_shift_norm", [True, False])
@pytest.mark.parametrize("resample", [None, halve, double])
@pytest.mark.parametrize("out_channels", [8, 12])
def test_residual_block_is_its_formula(out_channels, resample, scale_shift_norm):
    block = fill(ADMResBlock(8, out_channels, 16, 0.5, scale_shift_norm, resample)).double()
    x, e = numbers((3, 8, 4, 4), 50), numbers((3, 16), 51)
    h, skip = silu(group_norm(x, block.norm1)), x
    if resample is halve:
        h, skip = (sum(v[..., i::2, j::2] for i in (0, 1) for j in (0, 1)) / 4 for v in (h, skip))
    if resample is double:
        h, skip = (v.repeat_interleave(2, 2).repeat_interleave(2, 3) for v in (h, skip))
    h = F.conv2d(h, block.conv1.weight, block.conv1.bias, padding=1)
    modulation = (e @ block.modulation.weight.T + block.modulation.bias)[:, :, None, None]
    if scale_shift_norm:
        h = group_norm(h, block.norm2) * (1 + modulation[:, :out_channels]) + modulation[:, out_channels:]
    else:
        h = group_norm(h + modulation, block.norm2)
    h = F.conv2d(silu(h), block.conv2.weight, block.conv2.bias, padding=1)
    skip = skip if out_channels == 8 else F.conv2d(skip, block.skip.weight, block.skip.bias)
    assert torch.allclose(block(x, e), skip + h, atol=1e-10)


def attended(layer, x, layout):
    """The formula with a loop over heads; `layout` says which of the 3 C rows are whose."""
    batch, channels, height, width = x.shape
    qkv = torch.einsum("oc,bcp->bop", layer.qkv.weight, group_norm(x, layer.norm).flatten(2))
    qkv = qkv + layer.qkv.bias[:, None]
    size, mixed = channels // layer.heads, []
    for head in range(layer.heads):
        starts = {
            "legacy": [3 * size * head + part * size for part in range(3)],
            "new": [part * channels + size * head for part in range(3)],
        }[layout]
        q, k, v = (qkv[:, start : start + size] for start in starts)
        weights = torch.softmax(torch.einsum("bcq,bck->bqk", q * size**-0.25, k * size**-0.25), dim=-1)
        mixed.append(torch.einsum("bqk,bck->bcq", weights, v))
    out = torch.einsum("oc,bcp->bop", layer.out.weight, torch.cat(mixed, dim=1)) + layer.out.bias[:, None]
    return x + out.reshape(batch, channels, height, width)


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("layout", ["legacy", "new"])
def test_attention_is_softmax_over_pixels(layout, heads):
    layer, x = fill(ADMAttention(16, heads, layout)).double(), 4 * numbers((2, 16, 3, 5), 60)
    other = {"legacy": "new", "new": "legacy"}[layout]
    assert torch.allclose(layer(x), attended(layer, x, layout), atol=1e-10)
    # Negative control: with one head the two orders are one, with more they are not.
    assert torch.allclose(layer(x), attended(layer, x, other), atol=1e-4) == (heads == 1)


def test_halving_pads_on_all_sides():
    """Tap (i, j) of output pixel (y, x) reads input pixel (2y + i - 1, 2x + j - 1)."""
    layer, x = fill(ADMDownsample(4)).double(), numbers((1, 4, 6, 6), 70)
    padded = torch.zeros(1, 4, 8, 8).double()
    padded[..., 1:7, 1:7] = x
    expected = layer.conv.bias.view(1, 4, 1, 1).expand(1, 4, 3, 3).clone()
    for i in range(3):
        for j in range(3):
            tap = layer.conv.weight[..., i, j]
            expected += torch.einsum("oi,nihw->nohw", tap, padded[..., i : i + 5 : 2, j : j + 5 : 2])
    assert torch.allclose(layer(x, torch.zeros(1)), expected)


def test_doubling_repeats_pixels():
    layer, x = fill(Upsample(torch.nn.Conv2d(4, 4, 3, padding=1))).double(), numbers((1, 4, 3, 3), 80)
    repeated = x.repeat_interleave(2, -1).repeat_interleave(2, -2)
    assert torch.allclose(layer(x, torch.zeros(1)), F.conv2d(repeated, layer.conv.weight, layer.conv.bias, padding=1))


@pytest.mark.parametrize("layer", [ADMAttention(16, 2, "legacy"), ADMResBlock(16, 16, 8, 0.1, True)])
def test_branches_start_at_exactly_zero(layer):
    x = torch.randn(2, 16, 4, 4)
    assert torch.equal(layer(x) if isinstance(layer, ADMAttention) else layer(x, torch.randn(2, 8)), x)
