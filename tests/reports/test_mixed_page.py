"""The study of mixed predictions: its own reduction, and the shares of heads that runs have logged."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from diffusion_lab.cli.main import main
from experiments import mixed_page
from experiments.mixed.relative import RelativeSoftMin
from tests.harness import Child

MINIMUM = "uniform-mixed space={} granularity={} reduction=min generation_head=best"


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
        f"{MINIMUM.format(*place)},{seed},{head},{' '.join(str(own[seed]) for own in ranges)},{int(head == 'v')} 0"
        for place in product(("x0", "native"), mixed_page.GRAINS)
        for head, ranges in shares.items()
        for seed in range(2)
    ]
    path = tmp_path / "heads.csv"
    lines.append(f"{MINIMUM.format('x0', 'sample')},2,v,nan 0.05,1 0")  # a range that no image of a run has reached
    path.write_text("\n".join([",".join(mixed_page.COLUMNS), *lines]) + "\n")
    monkeypatch.setattr(mixed_page, "VALUES", path)
    _, _, *lines = mixed_page.starvation("unit").split("\n")
    assert len(lines) == 8 and lines[5].startswith("| minimum by batch (native) |")
    assert lines[5].endswith("| 92 % | 0 of 2 | **3 %** | 1 of 2 | **4 %** | 1 of 2 |")
    assert mixed_page.generating()["minimum by batch (native)"] == "v 2"


SIZES = {"per_batch": 2.0, "relative_soft_min": 0.5, "best": 3.0}  # factors of rows with these words


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five seeds of all rows: the seed's factor, those of the row's words, and a hundredth of noise."""
    labels = [*{label: None for own in mixed_page.SINGLES.values() for label in own.values()}, "uniform-combined"]
    for start in ("uniform-mixed", "uniform-mixed-v"):
        for space, grain in product(("x0", "native"), mixed_page.GRAINS):
            rules = ("min", "relative_soft_min") if start == "uniform-mixed" else ("min",)
            labels += [f"{start} space={space} granularity={grain} reduction={rule}" for rule in rules]
        labels.append(f"{start} space=x0 granularity=sample reduction=mean_of_heads generation_head=best")
    labels.append(f"{labels[-1].replace('-v ', ' ').rpartition('=')[0]}=least_squares")
    random = np.random.default_rng(0)
    lines = ["row,seed,metric,value"]
    for label in labels:
        words = label.replace("=", " ").split()[1:]
        factor = np.prod([SIZES[w] for w in words if w in SIZES])
        lines += [
            f"{label},{seed},fd2k_digits,{factor * 2**seed * np.exp(random.normal(0, 0.01))}" for seed in range(5)
        ]
    (tmp_path / "digits.per_seed.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(mixed_page, "FOLDER", tmp_path)
    return tmp_path


def test_a_comparison_of_sets_is_that_of_their_geometric_means(known: Path) -> None:
    unit = mixed_page.table("unit")
    soft = mixed_page.compared(unit, mixed_page.minima("unit", "soft minimum"), mixed_page.minima("unit"))
    assert soft.n == 5 and np.exp(soft.mean) == pytest.approx(0.5, rel=0.01)
    assert soft.low < math.log(0.5) < soft.high and soft.high - soft.low < 0.05
    found = [[cell.strip() for cell in line.split("|")[1:4]] for line in mixed_page.predictions().split("\n")[4:]]
    sizes = [(number, size[:3]) for number, _, size in found]  # 3 / 2^(2/8), and 3 / 2^(2/6) without those by pixel
    assert sizes == [*[("3", "0.5")] * 3, ("4", "1.0"), ("5", "0.3"), ("6", "2.5"), ("6", "2.3"), ("7", "2.5")]


def test_rows_are_decided_against_the_best_single_prediction(known: Path) -> None:
    single, found = mixed_page.best_single("unit")
    words = {name: one.word for name, one in found.items()}
    assert single in mixed_page.SINGLES["unit"] and len(found) == 19 and not words.keys() & mixed_page.SINGLES["unit"]
    assert words["soft minimum by image (x0)"] == "better" and words["minimum by batch (x0)"] == "worse"
    assert words["combined"] == words["minimum by pixel (native)"] == "equal"
    first, *others = mixed_page.every("v").split("\n")[2:]
    assert first.startswith("| v | 5 |") and len(others) == 11 and "**worse**" in others[-1]


def test_learning_rates_stand_side_by_side(known: Path) -> None:
    text = (known / "digits.per_seed.csv").read_text()
    (known / "lr_0.02.per_seed.csv").write_text(text.replace("uniform-v prediction=v", "uniform-v"))
    head, _, *lines = mixed_page.rates().split("\n")
    assert head == "| learning rate | x0 | v | eps |" and [line.split("|")[1].strip() for line in lines] == [
        "0.01",
        "0.02",
    ]
    assert lines[0].split("|")[2:] == lines[1].split("|")[2:]


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
    assert total == pytest.approx(1, abs=1e-3)  # of shares with four digits


def test_minima_are_measured_again_with_one_head(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("minimum by image (native)", "minimum by batch (x0)")
    lines = [f"{name},run,{s},fd2k_digits,400,{2**s},{{}}" for name in names for s in range(5)]
    text = "\n".join(["row,run,seed,metric,step,value,protocol", *lines])
    (known / "digits_selected.per_seed.csv").write_text(text + "\n")
    monkeypatch.setattr(mixed_page, "generating", lambda: dict.fromkeys(names, "v 5"))
    _, _, *found = mixed_page.selected().split("\n")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found]
    assert [line[:3] for line in cells] == [[names[0], "v 5", "x0"], [names[1], "v 5", "v"]]
    sizes = [[float(line[3]), float(line[5])] for line in cells]
    assert sizes == [pytest.approx([1, 1], abs=0.03), pytest.approx([2, 1], abs=0.06)]


def test_a_learned_gate_has_ranges_of_its_own() -> None:
    label = "uniform-mixed space=x0 granularity=sample reduction=learned_gate generation_head=best"
    assert mixed_page._name(label) == "learned gate by noise range (x0)"
