"""`diffusion-lab plan`: its table and sentence from given costs, its source, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli import dry_run
from diffusion_lab.cli.commands import plan
from diffusion_lab.cli.cost.cost import Cost, Counts
from diffusion_lab.cli.cost.counts import Beside, Memory
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main
from diffusion_lab.planning import ARCHIVE, Price, cheapest_samples, ratio_decided, two_figures
from diffusion_lab.runs.find import read_runs
from tests.harness import Child
from tests.runs.test_pilot import write_all

QUICK = ["metrics.names=[fid]", "metrics_every=0", "snapshot_every=1000", "max_steps=2000", "solver.steps=10"]
CALL, STEP = 1e-4, 0.05  # seconds


@pytest.fixture
def sweep(composed, monkeypatch: pytest.MonkeyPatch):
    """sweep(*overrides): the configurations of two methods with four seeds, whose costs are known."""

    def costs_of(cfgs):
        from diffusion_lab.cli.cost.counts import count_beside
        from diffusion_lab.cli.run_parts import part

        beside = count_beside(cfgs[0], part(cfgs[0], "dataset"))
        counts = Counts(1, 1, 3, Beside(beside.calls, 1, 0), 0)
        return [Cost(counts, Memory(0, 0, ""), STEP, 2000, CALL * beside.calls, "invented", 0, 0) for _ in cfgs], []

    monkeypatch.setattr(dry_run, "costs_of", costs_of)

    def make(*overrides: str):
        rows = [composed(*QUICK, *overrides, f"sampler={sampler}") for sampler in ("uniform", "logit_normal")]
        return [OmegaConf.merge(cfg, {"seed": seed}) for cfg in rows for seed in range(4)]

    return make


def test_the_table_is_that_of_the_formulas(sweep, capsys: pytest.CaptureFixture[str]) -> None:
    plan.answer(sweep("question.metric=fid"), [], None)
    lines = capsys.readouterr().out.splitlines()
    cells = [line.split("\t") for line in lines if line.count("\t") == 3]
    validations = 2 * 360 * CALL  # of the training's price, as it does not depend on the samples
    price = Price(2000 * STEP + validations, 10 * CALL, 2)
    least = two_figures(cheapest_samples(ARCHIVE["end"], price))
    assert least > 1000 and cells[0] == ["seeds", "samples", "ratio decided", "hours"]
    assert cells[1:] == [
        [str(n), f"{m:,}", f"{ratio_decided(ARCHIVE['end'], m, n, 2):.2f}", f"{price.hours(2, n, m):.2g}"]
        for m in (1000, least)
        for n in (3, 4, 5, 8)
    ]
    said = f"With 4 seeds and {least:,} samples a ratio of {ratio_decided(ARCHIVE['end'], least, 4, 2):.2f} is decided"
    assert any(line.startswith(said) for line in lines)
    assert "question: fd1k_digits at the end; equal up to a ratio of 1.1; 4 seeds, 1,000 samples; 2 rows" in lines[-3]
    assert "(digits: 144 cells" in lines[-2] and lines[-1].endswith("invented; nothing was written")


def test_a_pilot_takes_the_place_of_the_archive(sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_all(tmp_path / "pilot", 3, 4)
    plan.answer(sweep(), [], tmp_path / "pilot")
    out = capsys.readouterr().out
    found = f"fd1k_digits of {tmp_path / 'pilot'}: 2 rows, 3 seeds, 4 sets of latents"
    assert f"{found}; a part of training: digits: 144 cells" in out
    write_all(tmp_path / "alone", 3, 0)
    plan.answer(sweep(), [], tmp_path / "alone")
    assert "3 seeds, 1 set of latents; measuring and a part of training: digits: 144 cells" in capsys.readouterr().out


def test_another_metric_than_the_one_that_was_asked_for_is_not_planned(sweep, tmp_path: Path) -> None:
    write_all(tmp_path / "pilot", 3, 4)
    plan.answer(sweep("question.metric=fid"), [], tmp_path / "pilot")  # of the same kind
    with pytest.raises(ConfigError, match="question.metric=is must be a metric for which smaller is better and"):
        plan.answer(sweep("question.metric=is", "metrics.names=[fid,is]"), [], tmp_path / "pilot")


def test_of_a_pilot_on_several_data_sets_the_one_of_the_sweep_is_taken(
    sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values on different data sets are not rows of one table, although their metric has one name."""
    cfgs, pilot = sweep(), tmp_path / "pilot"
    for name, seeds, source in (
        ("own", 2, OmegaConf.to_container(cfgs[0].dataset.source)),
        ("other", 3, {"root": "b"}),
    ):
        for run in (run for row in write_all(pilot / name, seeds, 4) for run in row):
            record = json.loads((run.folder / "run.json").read_text())
            record |= {"config": {"dataset": {"source": source}}, "group_hash": name + record["group_hash"]}
            (run.folder / "run.json").write_text(json.dumps(record))
    plan.answer(cfgs, [], pilot)
    assert ": 2 rows, 2 seeds, 4 sets of latents;" in capsys.readouterr().out
    neither = OmegaConf.create({"dataset": {"source": {"root": "c"}}})
    with pytest.raises(ConfigError, match="must hold runs on the data set of the sweep, but has runs on 2 others"):
        plan._on_one_data_set(list(read_runs(pilot).runs), neither, pilot)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["question.metric=is", "metrics.names=[is]"], "question.metric=is1k_digits must have a pilot"),
        (["metrics=none"], "metrics.num_samples must be the same number >= 1"),
    ],
)
def test_what_cannot_be_planned(sweep, overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        plan.answer(sweep(*overrides), [], None)


def test_the_grid_of_a_later_seed_is_no_evaluation(sweep) -> None:
    """The dry run's cost is of the job with most calls: a seed above 0 makes its grid beside the samples."""
    from diffusion_lab.cli.cost.counts import count_beside
    from diffusion_lab.cli.run_parts import part

    cfgs = sweep("metrics.num_samples=128")
    costs, _ = dry_run.costs_of(cfgs[1:])
    assert costs[0].counts.beside.calls > count_beside(cfgs[0], part(cfgs[0], "dataset")).calls
    assert plan._price(cfgs[1:], costs).evaluations == 2  # at steps 1000 and 2000


def test_the_price_is_the_mean_over_the_jobs_in_whatever_order(sweep) -> None:
    """What samples cost was that of the first job: 400 steps before 10 gave another answer, and a logarithm of < 0."""
    cfgs = [one for steps in (400, 10) for one in sweep(f"solver.steps={steps}")[::4]]
    costs = [dry_run.costs_of([one])[0][0] for one in cfgs]
    prices = [plan._price(list(jobs), list(of)) for jobs, of in ((cfgs, costs), (cfgs[::-1], costs[::-1]))]
    assert prices[0] == pytest.approx(prices[1]) and prices[0].sample == pytest.approx(205 * CALL)
    assert prices[0].training == pytest.approx(2000 * STEP + 2 * 360 * CALL)


def test_one_row_and_a_folder_that_is_no_pilot(sweep, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="plan must have two rows"):
        plan.answer(sweep()[:4], [], None)
    with pytest.raises(ConfigError, match="must be an existing folder"):
        plan.answer(sweep(), [], tmp_path / "nowhere")
    write_all(tmp_path / "one", 1, 0)
    with pytest.raises(ConfigError, match="must hold finished runs of two methods"):
        plan.answer(sweep(), [], tmp_path / "one")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    assert "pilot=DIR" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_plans_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["network.base_channels=8", "solver.steps=4", "max_steps=20", "trainer.accelerator=cpu"]
    small.append("sampler=uniform,stratified")

    def work() -> None:
        raise SystemExit(main(["plan", *small, "seed=0,1,2"]))

    Child(work, tmp_path / "log").succeed()
    text = (tmp_path / "log").read_text()
    assert "With 3 seeds and" in text and "measured over" in text and "nothing was written" in text
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
