"""The order in which the jobs of a sweep run, and what stays as it was asked for."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.table_study import Study
from hydra_plugins.diffusion_lab_launcher._jobs import Job, in_turns
from tests.cli.test_launcher import calls, jobs, sweep  # noqa: F401

cast_any = partial(cast, Any)


def job(index: int, method: str, seed: int | str | None) -> Job:
    return Job(index, [method], OmegaConf.create({} if seed is None else {"seed": seed}), Path(f"{method}-{seed}"))


def names(found: list[Job]) -> list[str]:
    return [one.folder.name for one in found]


def test_the_seed_is_the_outer_loop_whatever_the_order_of_the_words() -> None:
    wanted = ["a-2", "b-2", "c-2", "a-0", "b-0", "c-0"]
    inner = [job(i, method, seed) for i, (method, seed) in enumerate((m, s) for m in "abc" for s in (2, 0))]
    outer = [job(i, method, seed) for i, (method, seed) in enumerate((m, s) for s in (2, 0) for m in "abc")]
    assert names(in_turns(inner)) == names(in_turns(outer)) == wanted
    assert names(in_turns([job(0, "a", None), job(1, "b", None)])) == ["a-None", "b-None"]


def test_a_table_goes_on_with_its_first_seed_whichever_jobs_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first method's job of seed 2 is done, so that its job of seed 0 is the first of those that are left."""
    monkeypatch.setattr("diffusion_lab.cli.app.App", lambda *_, **how: SimpleNamespace(run=lambda: 0))
    table, composes = SimpleNamespace(name="paper/table"), SimpleNamespace(config_dirs=())
    study = Study(*map(cast_any, (table, None)), tmp_path, [2, 0], *map(cast_any, (composes, [], ())))
    left = [(method, seed) for method in "abc" for seed in (2, 0) if (method, seed) != ("a", 2)]
    jobs = [SimpleNamespace(words=(f"method={method}", f"seed={seed}"), seed=seed) for method, seed in left]
    assert study.train(cast_any(SimpleNamespace(open=jobs))) == 0
    lines = (tmp_path / "paper-table.jobs").read_text().split()
    asked = [f"{method[-1]}-{seed[-1]}" for method, seed in zip(lines[::2], lines[1::2], strict=True)]
    assert asked == ["b-2", "c-2", "a-0", "b-0", "c-0"]
    given = [job(i, *one.split("-")) for i, one in enumerate(asked)]
    assert names(in_turns(given)) == asked


def test_a_sweep_runs_in_turns_and_is_recorded_as_it_was_asked_for(sweep, tmp_path: Path) -> None:  # noqa: F811
    """`how` is the outer word and the seed the inner one; every job tells the second at which it was called."""
    assert sweep("how=done,short", "seed=0,1").wait() == 0
    found = jobs(tmp_path)
    started = sorted(found, key=lambda name: (found[name] / "calls.jsonl").stat().st_mtime_ns)
    assert started == ["done-s0", "short-s0", "done-s1", "short-s1"]
    assert all(len(calls(path)) == 1 for path in found.values())
    recorded = [one["overrides"] for one in json.loads((tmp_path / "runs/sweep/sweep.json").read_text())["jobs"]]
    assert recorded == [[f"how={how}", f"seed={seed}"] for how in ("done", "short") for seed in (0, 1)]


@pytest.mark.parametrize("seeds", ["2,0,1", "range(0,3)"])
def test_the_outcomes_are_those_of_the_jobs_asked_for(sweep, tmp_path: Path, seeds: str) -> None:  # noqa: F811
    assert sweep("how=raise,done", f"seed={seeds}").wait() == 1
    said = (tmp_path / "log").read_text()
    assert "3 of 6 jobs are not done" in said
    assert [line.strip() for line in said.splitlines() if line.startswith("    how=")] == [
        f"how=raise seed={seed}" for seed in ((2, 0, 1) if "," in seeds and "range" not in seeds else (0, 1, 2))
    ]
