"""What evaluations with several seeds give together, and `diffusion-lab evaluate seeds=`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.cli.main import main
from diffusion_lab.metrics import MetricResult, over_seeds
from tests.harness import Child


def result(name: str, value: float, seed: int | None, better: str = "lower") -> MetricResult:
    return MetricResult(name, value, {"samples": 5} | ({} if seed is None else {"seed": seed}), better, "")


def test_mean_and_least_of_what_lower_is_better() -> None:
    values = {4: 3.0, 5: 1.0, 7: 2.0}
    measured = [[result("fid50k", v, s), result("recall50k", -v, s, "higher")] for s, v in values.items()]
    mean, least, recall = over_seeds(measured)
    assert (mean.name, mean.value) == ("fid50k_mean_of_3", 2.0)
    assert (least.name, least.value) == ("fid50k_least_of_3", 1.0)
    assert (recall.name, recall.value) == ("recall50k_mean_of_3", -2.0)  # EDM takes the least of FID alone
    assert least.protocol == {"samples": 5, "seed": [4, 5, 7]}
    assert least.line(60)["values"] == [3.0, 1.0, 2.0] and "values" not in measured[0][0].line(60)


def test_what_depends_on_no_samples_is_left_out() -> None:
    measured = [
        [result("fid5", 1.0, 0), result("loss", 1.0, None), result("bits_per_dim5", 1.0, 0)],
        [result("fid5", 1, 1)],
    ]
    assert [one.name for one in over_seeds(measured)] == ["fid5_mean_of_2", "fid5_least_of_2"]


def in_process(words: list[str], log: Path) -> Child:
    def work() -> None:
        os.chdir(log.parent)
        raise SystemExit(main(words))

    return Child(work, log)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_evaluate_measures_the_latents_of_each_seed(tmp_path: Path) -> None:
    """Sets of the run's latents, of which 0 is its own; or, if `metrics.seed` is a number, those of these seeds."""
    short = """max_steps=5 batch_size=16 snapshot_every=0 threads=1 metrics=none solver=ddim solver.steps=2
        dataset.val_images=32 trainer.accelerator=cpu network.base_channels=8""".split()
    run = tmp_path / "runs" / "one"
    in_process(["train", f"hydra.run.dir={run}", *short], tmp_path / "train.log").succeed()
    measure = ["evaluate", f"run={run}", "metrics.names=[fid]", "metrics.num_samples=130", "device=cpu"]
    for k, words in enumerate((["metrics.seed=3"], ["metrics.seed=9", "seeds=[3,0]"], [], ["seeds=[1,0]"])):
        in_process([*measure, *words], tmp_path / f"evaluate{k}.log").succeed()
    before = lines(run)
    refused = in_process([*measure, "metrics.names=[excess_loss]", "seeds=[0,1]"], tmp_path / "refused.log")
    assert refused.wait() == 2 and "seeds must be null for excess_loss" in refused.log.read_text()
    assert lines(run) == before
    of_fid = (line for line in lines(run) if line["name"].startswith("fd"))
    three, first, mean, least, own, set_1, mean_of_sets, _ = of_fid
    assert [row["name"] for row in (first, mean, least)] == [
        "fd130_digits",
        "fd130_digits_mean_of_2",
        "fd130_digits_least_of_2",
    ]
    assert first == three and three["value"] == mean["values"][0] != mean["values"][1]
    assert mean["values"] == least["values"] and least["value"] == min(least["values"])
    assert mean["protocol"]["seed"] == [3, 0] and own["protocol"]["seed"] == "the run's"
    assert own["value"] == mean["values"][1]  # the run's seed is 0
    assert mean_of_sets["values"] == [set_1["value"], own["value"]] and set_1["value"] != own["value"]
    assert mean_of_sets["protocol"]["seed"] == ["the run's, set 1", "the run's"]
    in_process(["report", str(tmp_path / "runs")], tmp_path / "report.log").succeed()
    assert "fd130_digits_least_of_2" in (tmp_path / "runs" / "report.html").read_text()


@pytest.mark.parametrize("words", ["seeds=3", "seeds=[3]", "seeds=[0,0]", "seeds=[0,a]", "seeds=[0,-1]"])
def test_what_is_no_list_of_seeds_is_refused(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", f"run={tmp_path}", words]) == 2
    assert "must be at least two different integers >= 0; use seeds=[0,1,2]" in capsys.readouterr().err
