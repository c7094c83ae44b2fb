"""Runs as they lie on the disk: every status, torn files, moved folders."""

import fcntl
import json

import numpy as np
import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.reports import read_run, read_runs
from tests.reports.synthetic import BATCH, write_run


def test_each_status_is_recognised(sweep):
    found = {run.name: run.status for run in read_runs(sweep).runs}
    assert list(found.values()).count("done") == 8
    assert found["digits-uniform-s9-fail"] == "failed"
    assert found["digits-stratified-s9-run"] == "running"
    assert found["digits-logit_normal-s9-lost"] == "lost"
    assert found["digits-loss_second_moment-s9-pend"] == "pending"


def test_reading_leaves_the_lock_free(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=100, result=None)
    path = tmp_path / "run" / ".lock"
    path.touch()
    assert read_run(tmp_path / "run").status == "lost"
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the reader still held it
        assert read_run(tmp_path / "run").status == "running"


def test_a_step_that_is_no_number_is_none(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=100)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": true, "train/loss": 1.0}\n')
    assert read_run(tmp_path / "run").step == 100


def test_a_resumed_run_is_running_whatever_its_old_result_says(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=100, result="failed", error={"type": "killed", "message": ""})
    assert read_run(tmp_path / "run").status == "failed"
    with open(tmp_path / "run" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_run(tmp_path / "run").status == "running"


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_half_written_last_line_costs_only_itself(tmp_path, cut):
    write_run(tmp_path / "run", "uniform", 0, steps=500, result=None)
    path = tmp_path / "run" / "metrics.jsonl"
    whole = read_run(tmp_path / "run").curve("train/loss")
    row = json.dumps({"step": 550, "images": 550 * BATCH, "train/loss": 0.5, "train/loss_t": [0.1] * 50})
    path.write_bytes(path.read_bytes() + row.encode()[:cut])
    torn = read_run(tmp_path / "run").curve("train/loss")
    np.testing.assert_array_equal(torn.values, whole.values)
    np.testing.assert_array_equal(torn.steps, np.arange(50, 501, 50))


def test_bytes_that_are_no_text_and_nulls_do_no_harm(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=100, result=None)
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 150, "val/loss_t": [1.0, null]}\n\xff\xfe\n[1]\n{"step": 200, "train/loss": NaN}\n')
    run = read_run(tmp_path / "run")
    np.testing.assert_array_equal(run.curve("val/loss_t").values, [[1.0, np.nan]])
    assert run.last("train/loss") is None  # not a number is not a result
    assert run.step == 200


def test_a_torn_json_file_is_named(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=100)
    (tmp_path / "run" / "result.json").write_text('{"status": "done", "st')
    run = read_run(tmp_path / "run")
    assert run.status == "damaged" and run.cause.startswith("result.json is not a JSON object; ")


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("run.json", "overrides", 5, "overrides=5, which must be a list"),
        ("run.json", "config", [1], "config=[1], which must be an object"),
        ("run.json", "versions", "x", 'versions="x", which must be an object'),
        ("run.json", "seed", True, "seed=true, which must be an integer"),
        ("run.json", "started", {}, "started={}, which must be text"),
        ("result.json", "error", "boom", 'error="boom", which must be an object'),
        ("result.json", "evaluations", 5, "evaluations=5, which must be a list"),
        ("result.json", "step", "x", 'step="x", which must be a number'),
    ],
)
def test_a_damaged_run_is_named_and_the_others_are_reported(tmp_path, capsys, name, key, value, words):
    for seed in range(3):
        write_run(tmp_path / f"run{seed}", "uniform", seed, steps=100)
    path = tmp_path / "run1" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    assert main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert ": 2 done, 1 damaged" in said and "n=2" in said
    assert "damaged     run1  " in said and f"{name} has {words}" in said
    assert words.partition("=")[0] in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("content", [{"jobs": 5}, {"commands": 5, "jobs": [5, {"dir": "run0", "overrides": 5}]}])
def test_a_damaged_sweep_is_read_as_far_as_it_goes(tmp_path, content):
    write_run(tmp_path / "run0", "uniform", 0, steps=100)
    (tmp_path / "sweep.json").write_text(json.dumps(content))
    assert [run.status for run in read_runs(tmp_path).runs] == ["done"]


def test_the_later_of_two_lines_with_one_step_counts(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=100, result=None)
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"step": 100, "images": 6400, "train/loss": 7.0}\n')
    assert read_run(tmp_path / "run").curve("train/loss").values.tolist()[-1] == 7.0


def test_a_moved_sweep_keeps_its_jobs(sweep, tmp_path):
    content = json.loads((sweep / "sweep.json").read_text())
    content["jobs"] = [job | {"dir": f"/elsewhere/sweep-digits/{job['dir']}"} for job in content["jobs"]]
    write_run(tmp_path / "digits-uniform-s0-aaaa", "uniform", 0)
    (tmp_path / "sweep.json").write_text(json.dumps(content))
    runs = read_runs(tmp_path).runs
    assert len(runs) == 12 and [run.status for run in runs].count("done") == 1


def test_a_job_that_failed_before_it_described_itself_keeps_its_overrides(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "result.json").write_text(
        '{"status": "failed", "error": {"type": "killed", "message": "by 9"}}'
    )
    job = {"dir": "job", "overrides": ["sampler=uniform"], "config_hash": "x"}
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "s", "commands": ["diffusion-lab train"], "jobs": [job]}))
    (run,) = read_runs(tmp_path).runs
    assert (run.status, run.overrides, run.cause) == ("failed", ("sampler=uniform",), "killed: by 9")


def test_runs_are_found_at_any_depth_and_alone(tmp_path):
    write_run(tmp_path / "a" / "b" / "run", "uniform", 0, steps=100)
    assert [run.name for run in read_runs(tmp_path).runs] == ["run"]
    assert [run.name for run in read_runs(tmp_path / "a" / "b" / "run").runs] == ["run"]


def test_a_missing_and_an_empty_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder=.*nowhere must be an existing folder"):
        read_runs(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="folder=.* must hold runs"):
        read_runs(tmp_path)
