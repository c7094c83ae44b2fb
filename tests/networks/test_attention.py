"""Attention in bfloat16 on a CPU against the formula in float64, and what stays PyTorch's fused kernel."""

import pytest
import torch
import torch.nn.functional as F

from diffusion_lab.networks.kernels import MOST_TOKENS, as_on_gpu, attend


def drawn(tokens, dtype, heads=2, size=16):
    """q, k, v (3,heads,tokens,size) as views of one tensor, as the layers have them, and a gradient."""
    torch.manual_seed(tokens)
    qkv = torch.randn(3, tokens, 3, heads, size).to(dtype)
    return qkv.requires_grad_(), torch.randn(3, heads, tokens, size).to(dtype)


def both(function, qkv, gradient):
    out = function(*(x.transpose(1, 2) for x in qkv.unbind(2)))
    return out, torch.autograd.grad(out, qkv, gradient)[0]


def formula(q, k, v):
    return torch.softmax(torch.einsum("bnqd,bnkd->bnqk", q, k) / q.shape[3] ** 0.5, dim=3) @ v


@pytest.mark.parametrize("tokens", [1, 7, 64, MOST_TOKENS, MOST_TOKENS + 1])
def test_bfloat16_is_the_formula_to_its_rounding(tokens):
    qkv, gradient = drawn(tokens, torch.bfloat16)
    out, grad = both(attend, qkv, gradient)
    exact, exact_grad = both(formula, qkv.detach().double().requires_grad_(), gradient.double())
    assert out.dtype == grad.dtype == torch.bfloat16
    assert (out.double() - exact).norm() < 0.01 * exact.norm()  # twice 2^-8, the spacing of bfloat16 numbers
    assert (grad.double() - exact_grad).norm() < 0.01 * exact_grad.norm()


def test_two_products_are_taken_up_to_the_bound_and_on_the_cpu_alone():
    """Their rounding differs from the fused kernel's, so that equal bits tell which one was used."""
    few, many = drawn(MOST_TOKENS, torch.bfloat16)[0], drawn(MOST_TOKENS + 1, torch.bfloat16)[0]
    with torch.no_grad():
        for qkv, fused in ((few, False), (many, True)):
            views = [x.transpose(1, 2) for x in qkv.unbind(2)]
            assert torch.equal(attend(*views), F.scaled_dot_product_attention(*views)) is fused
            with as_on_gpu():
                assert torch.equal(attend(*views), F.scaled_dot_product_attention(*views))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_types_are_pytorchs_to_the_bit(dtype):
    qkv, gradient = drawn(9, dtype)
    for ours, theirs in zip(
        both(attend, qkv, gradient), both(F.scaled_dot_product_attention, qkv, gradient), strict=True
    ):
        assert torch.equal(ours, theirs)
