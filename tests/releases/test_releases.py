"""Each command that reads a run reads those of every release, under the name and hash that they had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from diffusion_lab.cli.config import compose_train, config_hash, group_hash, run_name
from diffusion_lab.cli.main import main
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
    record = json.loads((run / "run.json").read_text())
    cfg = compose_train(record["overrides"], run)
    hashes = [record["config_hash"], record["group_hash"]]
    assert f"{run_name(cfg)}-{config_hash(cfg)[:8]}" == record["run_id"]
    assert [config_hash(cfg), group_hash(cfg)] == hashes
    assert config_hash(recorded_config(record["config"])) == hashes[0]


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
        assert {"show": "step 4: the last checkpoint of", "report": "1 done"}.get(command, "") in said
