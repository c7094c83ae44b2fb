"""Attention in bfloat16 on a CPU against the formula in float64, and what stays PyTorch's fused kernel."""

import pytest
import torch
import torch.nn.functional as F

from diffusion_lab.networks import DiT, UNet, UViT
from diffusion_lab.networks.kernels import MOST_TOKENS, as_on_gpu, attend

# PyTorch's own import at the first derivative in forward mode
BY_TORCH = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")


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


@BY_TORCH
def test_forward_mode_is_the_derivative_of_the_formula():
    """Fused kernels have no derivative in forward mode: alone, inside vmap, and with reverse mode in it or around."""
    torch.manual_seed(0)
    q, k, v, *tangents = torch.randn(6, 2, 3, 5, 4, dtype=torch.float64)
    for function in (attend, formula):
        out, tangent = torch.func.jvp(function, (q, k, v), tuple(tangents))
        gradient = torch.func.grad(lambda q, f=function: torch.func.jvp(f, (q, k, v), tuple(tangents))[1].sum())(q)
        many = torch.func.vmap(lambda w, f=function: torch.func.jvp(lambda v: f(q, k, v), (v,), (w,))[1])(
            torch.stack(tangents)
        )
        turned = torch.func.jvp(torch.func.grad(lambda q, f=function: f(q, k, v).sin().sum()), (q,), (tangents[0],))[1]
        found = (out, tangent, gradient, many, turned)
        if function is attend:
            ours = found
    for one, exact in zip(ours, found, strict=True):
        torch.testing.assert_close(one, exact)


@BY_TORCH
def test_forward_mode_reaches_every_network_with_attention():
    x, t = torch.randn(2, 1, 8, 8), torch.tensor([3.0, 700.0])
    networks = [
        DiT(1, 1, 8, dim=16, depth=2, num_heads=2),
        UViT(1, 1, 8, 2, dim=16, depth=2, num_heads=2),
        UNet(1, 1, 8, 8, (1, 2), 1, (4,)),
    ]
    for network in networks:
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        network.eval()
        along, weight = (torch.randn_like(x), torch.randn(2)), torch.randn_like(x)
        tangent = torch.func.jvp(network, (x, t), along)[1]
        out = network(x.requires_grad_(), t.requires_grad_())
        gradients = torch.autograd.grad(out, (x, t), weight)  # weight . J along is the same in both modes
        reverse = sum((gradient * a).sum() for gradient, a in zip(gradients, along, strict=True))
        torch.testing.assert_close((tangent * weight).sum(), reverse, rtol=1e-3, atol=1e-4)
        x, t = x.detach(), t.detach()


def test_without_forward_mode_attention_stays_the_fused_kernel():
    with torch.profiler.profile() as seen:
        x = torch.randn(1, 2, 8, 4, requires_grad=True)
        attend(x, x, x).sum().backward()
    names = {event.key for event in seen.key_averages()}
    assert any("flash_attention_for_cpu" in name for name in names), names
