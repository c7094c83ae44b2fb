"""The conditions that a network takes, from its signature."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from diffusion_lab.data.own_batches import OwnBatches
from diffusion_lab.networks.checks import keywords
from diffusion_lab.training.model_kind import condition_faults


class Named(nn.Module):
    def forward(self, x, t, label, low_res=None):
        return x


class Open(nn.Module):
    def forward(self, x, t, **cond):
        return x


class Anything(nn.Module):
    """As a wrapper passes on what it is given."""

    def forward(self, *arguments, **cond):
        return arguments[0]


class NeedsLabel(nn.Module):
    def forward(self, x, t, *, label, **cond):
        return x


def faults(network: nn.Module, *names: str) -> list[str]:
    return [*condition_faults(network, SimpleNamespace(names={*names}, task=object()))]  # type: ignore[arg-type]


def test_keywords_behind_the_first_two() -> None:
    assert keywords(Named().forward, 2) == ({"label", "low_res"}, {"label"}, False)
    assert keywords(Open().forward, 2) == (set(), set(), True)
    assert keywords(Anything().forward, 2) == (set(), set(), True)
    assert keywords(NeedsLabel().forward, 2) == ({"label"}, {"label"}, True)
    assert keywords(lambda in_channels, **more: None).takes("num_classes")


@pytest.mark.parametrize("network", [Open(), Anything(), NeedsLabel()])
def test_a_network_with_any_keywords_takes_every_condition(network: nn.Module) -> None:
    assert faults(network, "label", "low_res") == []
    given = OwnBatches(network).read((torch.rand(2, 1, 4, 4) * 2 - 1, torch.ones(2)))
    assert given.keys() == {"image", "label"}


def test_what_a_network_needs_is_missed_also_if_it_takes_any_keywords() -> None:
    (fault,) = faults(NeedsLabel())
    assert fault.startswith("network=NeedsLabel must be given label")
    (fault,) = faults(Named(), "label", "depth")
    assert "must have a network that takes depth" in fault
