"""Each command that reads a run reads those of every release, under the name and hash that they had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from diffusion_lab.cli.command_line import resume_arguments
from diffusion_lab.cli.config import compose_train, config_hash, group_hash, run_name
from diffusion_lab.cli.main import main
from diffusion_lab.cli.recorded_words import with_recorded_words
from diffusion_lab.cli.same_run import run_with_common_latents
from diffusion_lab.cli.untrusted_run import recorded_config
from tests.harness import Child
from tests.releases import HERE

RELEASES = sorted(path.parent for path in HERE.glob("*/run.json"))
COMMANDS = {
    "show": ["show", "{run}"],
    "report": ["report", "{run}", "--out", "report.html"],
    "sample": ["sample", "run={run}", "seeds=0-1"],
    "evaluate": ["evaluate", "run={run}", "metrics.names=[bits_per_dim]", "metrics.num_samples=2"],
    "analyze": ["analyze", "run={run}", "analysis=per_timestep", "analysis.images=2", "analysis.every=20"],
    "export": ["export", "run={run}"],
    "resume": ["train", "resume={run}", "max_steps=6"],
}


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the run of a release."""
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def test_there_is_one() -> None:
    assert "0.1.0" in [path.name for path in RELEASES]


def test_its_words_give_its_name_and_hash_and_its_record_gives_the_hash_as_well(run: Path) -> None:
    """Its metrics used the latents of seed 0 for all runs, which `metrics.seed=0` says today."""
    record = json.loads((run / "run.json").read_text())
    cfg = compose_train([*record["overrides"], "metrics.seed=0"], run)
    hashes = [record["config_hash"], record["group_hash"]]
    assert f"{run_name(cfg)}-{config_hash(cfg)[:8]}" == record["run_id"]
    assert [config_hash(cfg), group_hash(cfg)] == hashes
    assert config_hash(recorded_config(record["config"])) == hashes[0]


def test_with_the_latents_of_its_seed_it_is_another_run_which_is_said(run: Path, tmp_path: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    cfg = compose_train(record["overrides"], tmp_path / "new")
    assert config_hash(cfg) != record["config_hash"] and run_with_common_latents(cfg, tmp_path / "new") is None
    run.rename(tmp_path / record["run_id"])
    assert run_with_common_latents(cfg, tmp_path / "new") == tmp_path / record["run_id"]
    assert run_with_common_latents(compose_train(["metrics.seed=0"], tmp_path), tmp_path / "new") is None


def test_it_is_continued_and_evaluated_on_the_latents_that_it_had(run: Path) -> None:
    assert "metrics.seed=0" in resume_arguments([f"resume={run}"])
    assert "metrics.seed=0" in with_recorded_words("evaluate", [f"run={run}", "metrics=paper"])
    typed = [f"run={run}", "metrics.seed=null"]
    assert [word for word in with_recorded_words("evaluate", typed) if "seed" in word] == ["metrics.seed=null"]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_read(command: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.format(run=run) for word in COMMANDS[command]]

    def work() -> None:
        raise SystemExit(main(words))

    Child(work, log := tmp_path / "log").succeed()
    said = log.read_text()
    if command == "resume":
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert "continuing" in said and "from step 4 (last.ckpt)" in said
        assert sorted(set(steps)) == [1, 2, 3, 4, 5, 6]
        assert json.loads((run / "result.json").read_text())["status"] == "done"
    else:
        assert command != "evaluate" or json.loads(_last_line(run / "evaluations.jsonl"))["protocol"]["seed"] == 0
        assert {"show": "step 4: the last checkpoint of", "report": "1 done"}.get(command, "") in said


def _last_line(path: Path) -> str:
    return path.read_text().splitlines()[-1]
