"""The study of mixed predictions: its own reduction, and the shares of heads that runs have logged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from diffusion_lab.cli.main import main
from experiments import mixed_page
from experiments.mixed.relative import RelativeSoftMin
from tests.harness import Child


def test_the_relative_soft_minimum_is_equally_soft_at_every_scale() -> None:
    losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]])[:, :, None]
    gates = RelativeSoftMin(0.1)(losses, torch.zeros(2), torch.tensor(0))
    torch.testing.assert_close(gates[0, :, 0], torch.softmax(-10 * torch.tensor([1.0, 2.0, 3.0]) / 6, 0))
    torch.testing.assert_close(gates[1, :, 0], torch.full((3,), 1 / 3))
    torch.testing.assert_close(RelativeSoftMin(0.1)(1e-3 * losses, torch.zeros(2), torch.tensor(0)), gates)


def test_the_table_has_the_mean_share_and_the_ranges_in_which_a_head_starves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {"x0": [(1.0, 0.9), (0.92, 0.88)], "v": [(0.0, 0.02), (0.05, 0.05)], "eps": [(0.0, 0.08), (0.03, 0.07)]}
    lines = [
        f"minimum,{seed},{head},{k},{share}"
        for head, ranges in shares.items()
        for k, own in enumerate(ranges)
        for seed, share in enumerate(own)
    ]
    path = tmp_path / "heads.csv"
    path.write_text("\n".join([",".join(mixed_page.COLUMNS), *lines]) + "\n")
    monkeypatch.setattr(mixed_page, "VALUES", path)
    row = mixed_page.starvation().split("\n")[2]
    assert row == "| minimum | 92 % | 0 of 2 | **3 %** | 1 of 2 | **4 %** | 1 of 2 |"


@pytest.mark.slow
def test_shares_of_a_run_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["experiment=mixed_digits", "hydra.mode=RUN", "prediction=mixed", "max_steps=4", "log_every=1"]
    words += [
        "prediction.reduction._target_=relative.RelativeSoftMin",
        "solver.steps=2",
        "trainer=cpu",
        "batch_size=128",
    ]
    words += ["metrics.names=[sample_variance]", "metrics.num_samples=16", "question.metric=sample_variance"]

    def work() -> None:
        code = main(
            [
                "train",
                "--config-dir",
                str(mixed_page.VALUES.parent),
                *words,
                f"hydra.run.dir={tmp_path / 'runs' / 'one'}",
            ]
        )
        monkeypatch.setattr(mixed_page, "VALUES", tmp_path / "heads.csv")
        if not code:
            mixed_page.collect(tmp_path / "runs")
        raise SystemExit(code)

    Child(work, tmp_path / "log").succeed()
    monkeypatch.setattr(mixed_page, "VALUES", tmp_path / "heads.csv")
    ((_, heads),) = mixed_page.shares().items()
    total = sum(heads.values())
    assert heads.keys() == {*mixed_page.HEADS} and len(total) > 10
    assert total == pytest.approx(1)
