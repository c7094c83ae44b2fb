"""Muon: which weights it has, its update against the singular value decomposition, and AdamW's for the rest."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from diffusion_lab.cli.main import main
from diffusion_lab.networks import DiT, UViT
from diffusion_lab.optimizers import Muon, Weights
from diffusion_lab.testing import same

LR, DECAY = 0.01, 0.1


class Small(nn.Module):
    """An embedding, a block with a matrix, a bias and a convolution, and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into = nn.Linear(3, 6)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv1d(1, 1, 1), nn.Linear(6, 8))])
        self.out = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.blocks[0](self.into(x)[:, None])[:, 0].tanh()).square().mean()


def names_of_hidden(module: nn.Module) -> set[str]:
    hidden = set(map(id, Weights(module).hidden))
    return {name for name, weight in module.named_parameters() if id(weight) in hidden}


def stepped(model: Small, optimizer: torch.optim.Optimizer, steps: int = 1) -> dict[str, torch.Tensor]:
    """The weights after steps on fixed data."""
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def test_hidden_matrices_are_those_of_the_blocks() -> None:
    assert names_of_hidden(Small()) == {"blocks.0.1.weight"}
    dit = DiT(1, 1, 8, patch_size=2, dim=32, depth=2, num_heads=2)
    assert all(name.startswith("blocks.") for name in names_of_hidden(dit)) and len(names_of_hidden(dit)) == 2 * 5
    uvit = UViT(1, 1, 8, patch_size=2, dim=32, depth=2, num_heads=2)
    assert {name.split(".")[0] for name in names_of_hidden(uvit)} == {"encoder", "middle", "decoder"}


def test_the_update_of_a_matrix_is_near_the_orthogonal_factor_of_its_gradient() -> None:
    """N is a multiple of G in the first step, so O(N) has G's singular vectors, and singular values near 1."""
    model, name = Small(), "blocks.0.1.weight"
    matrix = model.get_parameter(name)
    before = matrix.detach().clone()
    matrix.grad = gradient = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    Muon(Weights(model), LR, weight_decay=DECAY).step()
    update = ((1 - LR * DECAY) * before - matrix.detach()) / (LR * 0.2 * math.sqrt(8))
    u, _, vh = torch.linalg.svd(gradient, full_matrices=False)
    inner = u.T @ update @ vh.T
    values = inner.diag()
    assert bool(((values > 0.6) & (values < 1.3)).all())
    assert float((inner - values.diag()).abs().max()) < 0.05  # bfloat16 has 8 bits
    plain = gradient / gradient.norm()  # the control: a normalized gradient is far from it
    assert float((u.T @ plain @ vh.T).diag().min()) < 0.3


def test_the_rest_is_adamw_to_the_bit() -> None:
    """With equal gradients: in the first step the matrix has not yet changed them."""
    model, other = Small(), Small()
    after = stepped(model, Muon(Weights(model), LR, weight_decay=DECAY))
    expected = stepped(other, torch.optim.AdamW(other.parameters(), LR, weight_decay=DECAY))
    assert {name for name in after if not torch.equal(after[name], expected[name])} == {"blocks.0.1.weight"}


def test_a_loaded_state_continues_exactly() -> None:
    model = Small()
    optimizer = Muon(Weights(model), LR)
    stepped(model, optimizer, 3)
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    whole = stepped(model, optimizer, 2)
    ends = []
    for state in (saved, None):
        again = Small()
        again.load_state_dict(weights)
        continued = Muon(Weights(again), LR)
        if state is not None:
            continued.load_state_dict(state)
        ends.append(stepped(again, continued, 2))
    assert same(whole, ends[0]) and not torch.equal(whole["blocks.0.1.weight"], ends[1]["blocks.0.1.weight"])


def test_an_older_pytorch_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], in_folder: object
) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    code = main(["train", "optimizer=muon", "network=dit_tiny", "trainer=cpu"])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and line.endswith(f"2.9 or later to have Muon, and is {torch.__version__}; use optimizer=adamw")
