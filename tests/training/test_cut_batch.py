"""How the global batch is cut into microbatches changes the order of sums, and nothing else without network dropout."""

from __future__ import annotations

import pytest
import torch
from lightning.pytorch import Callback

from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from tests.harness import configuration

FEW = ("max_steps=3", "network.channel_multipliers=[1]", "snapshot_every=0", "checkpoint_every=0", "threads=1")
LABELS = ("dataset.conditional=true", "dataset.label_dropout=0.3")
NULL = 10  # the label of digits that stands for a withheld one


class Seen(Callback):
    """The labels that each microbatch was given, in the order of the global batch."""

    def __init__(self) -> None:
        self.labels: list[torch.Tensor] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        self.labels.append(batch["label"].clone())


def trained(folder, *more: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The labels of all steps, and the weights at the end."""
    quiet_libraries()
    cfg, seen = configuration(folder, *FEW, *LABELS, "~callbacks.validation", *more), Seen()
    run = build_run(cfg, facts(cfg), [seen])
    run.trainer.fit(run.module, datamodule=run.data)
    return torch.cat(seen.labels), torch.cat([p.detach().flatten() for p in run.module.model.parameters()])


@pytest.mark.parametrize(("dropout", "least", "most"), [(0.0, 0.0, 1e-6), (0.1, 1e-4, 1.0)])
def test_accumulation_withholds_the_same_labels_and_moves_weights_by_rounding_alone(dropout, least, most, tmp_path):
    word = f"network.dropout={dropout}"
    labels, weights = trained(tmp_path / "whole", word)
    cut_labels, cut_weights = trained(tmp_path / "cut", word, "accumulate=4")
    assert torch.equal(cut_labels, labels) and 0.1 < (labels == NULL).double().mean() < 0.5
    assert least <= (cut_weights - weights).norm() / weights.norm() <= most
