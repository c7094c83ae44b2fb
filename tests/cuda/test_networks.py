"""Every network of conf/network at its full size on the paper GPU, without numbers, hence without their memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch import Tensor, nn

from diffusion_lab.networks import AdversarialNetworks
from tests.cuda.machine import paper_machine
from tests.cuda.paper import CUDA
from tests.cuda.training import CONF, options
from tests.networks.configured import configured, parameters

SIZES = (8, 16, 32, 64, 128, 256)


def target(name: str) -> type:
    return get_class(OmegaConf.load(CONF / "network" / f"{name}.yaml")["_target_"])


def smallest(name: str, device: str = "meta") -> tuple[nn.Module, int]:
    """The network, for 10 classes if it takes labels, and for the smallest images that it takes; without numbers unless
    it is made on a device that has some."""
    classes = {"num_classes": 10} if "num_classes" in inspect.signature(target(name)).parameters else {}
    for size in SIZES:
        try:
            return configured(name, 3, 3, size, device=device, **classes), size
        except ValueError:
            continue
    raise AssertionError(f"{name} takes no images of {SIZES} pixels")


def answer(
    network: nn.Module, size: int, device: torch.device = CUDA, draw: Callable[..., Tensor] = torch.randn
) -> Tensor:
    """Of two images, with all that the network's forward pass takes; of a GAN two images, judged."""
    cond = {"label": torch.zeros(2, dtype=torch.int64, device=device)}
    if isinstance(network, AdversarialNetworks):
        cond = cond if "label" in inspect.signature(network.generator.forward).parameters else {}
        images = network.generator(draw(2, network.generator.latent_dim, device=device), **cond)
        return images * network.discriminator(images, **cond).view(-1, 1, 1, 1)
    if "low_res" in inspect.signature(network.forward).parameters:
        cond["low_res"] = draw(2, 3, size // 4, size // 4, device=device)
    t = torch.zeros(2, dtype=torch.int64, device=device)
    return network(draw(2, 3, size, size, device=device), t, **cond)


def kind(name: str) -> str:
    """A network's class and what is no number in its yaml: networks of a kind differ in sizes alone."""
    node = OmegaConf.to_container(OmegaConf.load(CONF / "network" / f"{name}.yaml"))
    return repr([(key, type(value) if type(value) in (int, float, list) else value) for key, value in node.items()])


def first_of_each_kind() -> list[Any]:
    """All networks; a second one of a kind is a second case."""
    names = options()["network"]
    first = {kind(name): name for name in reversed(names)}.values()
    return [pytest.param(name, marks=[pytest.mark.exhaustive] * (name not in first)) for name in names]


@pytest.mark.parametrize("name", first_of_each_kind())
def test_a_network_of_full_size_runs_forward_on_the_device_without_a_wait(name: str) -> None:
    network, size = smallest(name)
    with paper_machine(values=False) as gpu, torch.no_grad():
        out = answer(network.to_empty(device=CUDA), size)
    assert out.device == CUDA and out.shape == (2, 3, size, size) and not gpu.waits


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", options()["network"])
def test_a_network_of_full_size_gives_every_weight_a_gradient(name: str) -> None:
    network, size = smallest(name)
    with paper_machine(values=False) as gpu:
        answer(network.to_empty(device=CUDA), size).square().mean().backward()
    assert not gpu.waits
    assert all(p.grad is not None and p.grad.device == CUDA and p.grad.dtype == p.dtype for p in network.parameters())


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", [n for n in options()["network"] if not issubclass(target(n), AdversarialNetworks)])
def test_a_network_of_full_size_runs_in_half_precision(name: str, dtype: torch.dtype) -> None:
    """All but the first and the last layer, which ours keep in float32."""
    network, size = smallest(name)
    seen = set[torch.dtype]()
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(lambda layer, given, out: seen.add(out.dtype))
    with paper_machine(values=False, mixed=True) as gpu, torch.no_grad(), torch.autocast("cuda", dtype):
        out = answer(network.to_empty(device=CUDA), size)
    assert out.device == CUDA and out.dtype in (dtype, torch.float32) and dtype in seen and not gpu.waits
    assert {p.dtype for p in network.parameters()} == {torch.float32}


class BufferAsAttribute(nn.Module):
    """Keeps a table in an attribute that no `.to` reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.table = nn.Conv2d(3, 3, 1), torch.ones(3, 1, 1)

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        return self.body(x) * self.table


def test_a_network_with_a_table_on_the_host_is_refused() -> None:
    with paper_machine(values=False), pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu"):
        answer(BufferAsAttribute().to_empty(device=CUDA), 8)


def test_the_largest_network_is_there_and_whole() -> None:
    assert parameters(smallest("uvit_huge")[0]) > 490_000_000
