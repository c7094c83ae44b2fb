"""What `evaluate` prints of values that are given."""

from __future__ import annotations

import io
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.commands import evaluate
from diffusion_lab.metrics import MetricResult

SEEDS = {"[1,2]": 2, "null": 1}


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_run_stands_whole_above_the_table_and_what_is_not_finite_is_warned_of_once(
    seeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [MetricResult(name, value, {"seed": 0}, "higher", "") for name, value in (("mine50", math.nan), ("x", 1))]
    monkeypatch.setattr("diffusion_lab.cli.inference.load_trained", lambda cfg: SimpleNamespace(step=4))
    monkeypatch.setattr(evaluate, "_measure", lambda *_, **how: results)
    folder = tmp_path / "digits-early-v-capped-with-a-name-that-is-wider-than-the-table-s0-e4be345c"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    evaluate.run(OmegaConf.create(f"{{run: {folder.name}, weights: ema, seeds: {seeds}, metrics: {{seed: 0}}}}"))
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"{folder.name} at step 4"
    assert err.splitlines() == [
        "warning: metrics/mine50 is not finite at step 4 (nan)",
        *["warning: metrics/mine50_mean_of_2 is not finite at step 4 (nan)"] * (SEEDS[seeds] - 1),
    ]


def test_the_reason_for_no_value_is_the_data_or_the_model() -> None:
    assert "dataset.features=null must name" in str(evaluate.nothing_measured([]))
    assert str(evaluate.nothing_measured(["excess_loss"])).startswith("metrics.names=[excess_loss] must be defined for")


def test_a_narrow_console_cuts_no_name() -> None:
    from rich.console import Console

    console = Console(width=70, record=True, file=io.StringIO())
    sets = {f"set {k}": [MetricResult("copying1k", 0.5, {}, "neither", "", interval=(0.4, 0.6))] for k in range(4)}
    console.print(evaluate._table(sets, [MetricResult("fd1k_own_mean_of_4", 1.0, {}, "lower", "")]))
    assert "fd1k_own_mean_of_4" in console.export_text()


def test_a_value_that_is_measured_otherwise_than_the_run_s_own_is_said_to_be() -> None:
    def line(name: str, **protocol: object) -> MetricResult:
        return MetricResult(name, 1.0, {"samples": 4, **protocol}, "lower", "")

    own = [line(name, solver="ddim-20-eta0").line(4) for name in ("fd4", "test_fd4")]
    before = [*own, line("fd4", solver="heun-9").line(4), {"step": 4, "name": "sparse"}, {"step": 4}]
    guided = [line(name, solver="ddim-50-eta0-guided1.5") for name in ("fd4", "test_fd4", "kid4", "sparse")]
    own_of = evaluate.shown(before, ["metrics/fd4", "metrics/test_fd4"])
    assert evaluate.other_protocols(own_of, guided) == [
        'the run\'s own fd4, test_fd4: solver "ddim-20-eta0", not "ddim-50-eta0-guided1.5"'
    ]
    assert evaluate.other_protocols(own_of, [line("fd4", solver="ddim-20-eta0")]) == []
    assert evaluate.other_protocols({}, guided) == []
    newest = evaluate.shown(before, [])  # of a metric that training did not measure
    assert evaluate.other_protocols(newest, [line("fd4", solver="heun-9")]) == []


def test_another_value_by_the_same_protocol_is_told() -> None:
    was = {"fd4": {"step": 4, "name": "fd4", "value": 127.6, "protocol": {"samples": 4}}}
    result = MetricResult("fd4", 0.5, {"samples": 4}, "lower", "")
    (said,) = evaluate.other_values(was, [result])
    assert said.startswith("the run's own fd4 is 127.6 by the same protocol, and is what reports show")
    assert evaluate.other_values({}, [result]) == []  # another checkpoint
    assert evaluate.other_values(was, [result._replace(protocol={"samples": 8})]) == []
    assert evaluate.other_values(was, [result._replace(value=127.7)]) == []  # as of another processor
