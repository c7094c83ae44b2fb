"""Dropout's masks in bfloat16 on a CPU: frequency, independence, layout; PyTorch's everywhere else."""

import math

import pytest
import torch
from torch import nn

from diffusion_lab.networks.kernels import Dropout, as_on_gpu


def dropped(x, p, seed):
    torch.manual_seed(seed)
    return Dropout(p)(x)


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_a_share_of_p_is_dropped_and_the_rest_scaled(p):
    n = 400_003  # not a multiple of the four masks of a random word
    y = dropped(torch.ones(n, dtype=torch.bfloat16), p, 0)
    zeros = int((y == 0).sum())
    assert abs(zeros - n * p) < 5 * math.sqrt(n * p * (1 - p))  # a false alarm in 2 million
    assert torch.equal(y[y != 0].unique(), torch.tensor([1 / (1 - p)]).bfloat16())


@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_an_element_is_kept_if_its_16_random_bits_are_at_least_p(p):
    n = 1003
    torch.manual_seed(7)
    words = torch.empty(n // 4 + 1, dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[:n].int() + 2**15  # 0 to 2^16 - 1
    level = round(p * 2**16)
    expected = torch.where(numbers >= level, 2**16 / (2**16 - level), 0.0).bfloat16()
    assert torch.equal(dropped(torch.ones(n, dtype=torch.bfloat16), p, 7), expected)
    assert not torch.equal(dropped(torch.ones(n, dtype=torch.bfloat16), p, 8), expected)


def test_neighbours_are_independent():
    """Four elements share one random word: each pair of its positions is dropped together with probability p^2."""
    p, n = 0.3, 200_000
    zero = (dropped(torch.ones(n, 4, dtype=torch.bfloat16), p, 1) == 0).double()
    together = zero.T @ zero / n
    for a in range(4):
        for b in range(4):
            expected = p if a == b else p * p
            assert abs(together[a, b] - expected) < 5 * math.sqrt(expected * (1 - expected) / n)


def test_a_seed_gives_the_same_mask_and_another_seed_another_one():
    x = torch.randn(2, 8, 5, 5).bfloat16()
    assert torch.equal(dropped(x, 0.5, 3), dropped(x, 0.5, 3))
    assert not torch.equal(dropped(x, 0.5, 3), dropped(x, 0.5, 4))


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 8, 5, 3).bfloat16(),
        torch.randn(2, 8, 5, 3).bfloat16().to(memory_format=torch.channels_last),
        torch.randn(2, 8, 5, 3).bfloat16()[:, ::2],
        torch.randn(2, 1, 5, 3).bfloat16().expand(2, 8, 5, 3),
        torch.randn(0, 8, 5, 3).bfloat16(),
    ],
    ids=["contiguous", "channels last", "every second", "expanded", "empty"],
)
def test_layout_and_gradient(x):
    x = x.detach().requires_grad_()
    y = dropped(x, 0.5, 5)
    assert y.dtype == torch.bfloat16 and y.stride() == torch.empty_like(x).stride()
    assert torch.equal(y[y != 0], 2 * x[y != 0])
    assert torch.equal(torch.autograd.grad(y, x, torch.ones_like(y))[0], 2.0 * (y != 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_are_drawn_in_the_order_of_memory(dtype):
    contiguous = torch.ones(2, 8, 5, 3, dtype=dtype)
    last = contiguous.to(memory_format=torch.channels_last)
    a, b = dropped(contiguous, 0.5, 6), dropped(last, 0.5, 6)
    assert torch.equal(a.flatten(), b.permute(0, 2, 3, 1).flatten())
    assert not torch.equal(a, b)


def test_elsewhere_it_is_pytorchs_to_the_bit():
    x = torch.randn(4, 6)
    torch.manual_seed(0)
    theirs = nn.Dropout(0.4)(x)
    assert torch.equal(dropped(x, 0.4, 0), theirs)
    half = x.bfloat16()
    torch.manual_seed(0)
    theirs = nn.Dropout(0.4)(half)
    assert not torch.equal(dropped(half, 0.4, 0), theirs)
    with as_on_gpu():
        assert torch.equal(dropped(half, 0.4, 0), theirs)
    assert Dropout(0.4).eval()(half) is half
    for p in (0.0, 1.0):
        assert torch.equal(dropped(half, p, 0), (1 - p) * half)
