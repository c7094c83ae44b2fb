"""Averages of a run: reconstructed against tracked, snapshots after a kill, and the command line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from diffusion_lab.averaging import drop_after, snapshots
from diffusion_lab.cli.averages import average_of
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.init_weights import read_init_weights
from diffusion_lab.cli.load import load_run
from diffusion_lab.cli.main import main
from diffusion_lab.runs.find import read_run
from diffusion_lab.training.checkpoint_io import load
from tests.harness import Child, configuration, differences, train_child, trained

pytestmark = pytest.mark.slow
STEPS = 80
POWER = [
    *("averaging=power_function", "averaging.snapshot_every=4", f"max_steps={STEPS}", "snapshot_every=0"),
    "checkpoint_every=13",  # not with a snapshot; a kill at 17 or 50 loses the snapshots behind steps 13 and 39
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 80 steps with 20 snapshots of two averages."""
    folder = tmp_path_factory.mktemp("averages") / "run"
    train_child(configuration(folder, *POWER, "keep_every=39")).succeed()
    return folder


def content(folder: Path) -> dict:
    return load(folder / "checkpoints" / "last.ckpt", map_location="cpu")


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.double().flatten() for _, value in sorted(tensors.items())])


def test_reconstructed_averages_equal_tracked_ones(run: Path, tmp_path: Path) -> None:
    stds = (0.05, 0.06, 0.07, 0.08, 0.09, 0.1)
    names = f"averaging.stds=[{','.join(map(str, stds))}]"
    train_child(configuration(tmp_path / "direct", *POWER, names, "averaging.snapshot_every=0")).succeed()
    mine, direct = content(run), content(tmp_path / "direct")
    assert differences(mine["state_dict"], direct["state_dict"]) == []  # one trajectory, averaged in two ways
    assert not snapshots(tmp_path / "direct") and len(snapshots(run)) == 2 * 20
    averages = direct["callbacks"]["EMA"]
    raw = flat({name: direct["state_dict"][f"denoiser.{name}"] for name in averages["std-0.05"]})
    for std in stds:
        wanted = flat(averages[f"std-{std:g}"])
        name, found = average_of(run, mine, f"std-{std:g}")
        miss, distance = (flat(found) - wanted).norm(), (wanted - raw).norm()
        assert name == f"std-{std:g}" and miss < 0.02 * distance
        other = average_of(run, mine, f"std-{std + 0.015:g}")[1]
        assert (flat(other) - wanted).norm() > 2 * miss + 0.02 * distance  # the control


def test_a_killed_run_has_the_same_averages_and_snapshots(run: Path, tmp_path: Path) -> None:
    straight, cfg = content(run), configuration(tmp_path / "killed", *POWER, "keep_every=39")
    trained(cfg, [17, 50])
    killed = content(tmp_path / "killed")
    assert differences(straight["callbacks"]["EMA"], killed["callbacks"]["EMA"]) == []
    files = [snapshot.path.relative_to(run) for snapshot in snapshots(run)]
    assert files == [snapshot.path.relative_to(tmp_path / "killed") for snapshot in snapshots(tmp_path / "killed")]
    assert all((run / file).read_bytes() == (tmp_path / "killed" / file).read_bytes() for file in files)


def test_every_width_can_be_loaded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last, early = load_run(run, weights="std-0.08"), load_run(run, "step-00000039", "std-0.08")
    assert last.identity()["weights"] == "ema std-0.08" and early.step == 39
    assert last.identity()["digest"] != early.identity()["digest"]
    source = read_init_weights(f"{run}:std-0.08")
    assert source.identity["weights"] == "ema std-0.08"
    kept = [read_init_weights(f"{run}:{word}std-0.08").identity["checksum"] for word in ("", "step-00000039:")]
    path = min((run / "averages" / "std-0.05").iterdir())
    later = path.with_name("step-00000999.safetensors")  # as if the run had gone on
    shutil.copy(path, later)
    now = [read_init_weights(f"{run}:{word}std-0.08").identity["checksum"] for word in ("", "step-00000039:")]
    later.unlink()
    assert now[1] == kept[1] and now[0] != kept[0]
    assert all(torch.equal(source.tensors[name], value) for name, value in last.module.state_dict().items())
    assert load_run(run).identity()["weights"] == "ema std-0.05"
    assert not capsys.readouterr().err
    load_run(run, weights="std-0.2")
    assert "warning: weights=std-0.2 lies outside the tracked 0.05 to 0.1" in capsys.readouterr().err


def test_wrong_widths_and_missing_snapshots(run: Path, tmp_path: Path) -> None:
    for weights in ("std-0.3", "std-0"):
        with pytest.raises(ConfigError, match=f"weights={weights}: std=.* must lie in"):
            load_run(run, weights=weights)
    with pytest.raises(ConfigError, match="weights=0.9 must be one of ema, raw, "):
        load_run(run, weights="0.9")
    shutil.copytree(run, tmp_path / "few")
    drop_after(tmp_path / "few", 3)
    with pytest.raises(ConfigError, match="must have at least two snapshots of its averages before step 80"):
        load_run(tmp_path / "few", weights="std-0.08")
    shutil.copytree(run, tmp_path / "damaged")
    snapshots(tmp_path / "damaged")[5].path.write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match="must be undamaged"):
        load_run(tmp_path / "damaged", weights="std-0.08")


def test_several_widths_are_evaluated_in_one_table(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    measure = [f"run={copy}", "metrics.num_samples=128", "metrics.names=[fid]", "solver=ddim", "solver.steps=2"]
    child = Child(lambda: sys.exit(main(["evaluate", *measure, "weights=[raw,std-0.07,std-0.05]"])), tmp_path / "log")
    child.succeed()
    lines = [json.loads(line) for line in (copy / "evaluations.jsonl").read_text().splitlines()]
    fids = {line["protocol"]["ema_decay"]: line["value"] for line in lines if line["name"].startswith("fd")}
    assert list(fids) == ["std-0.05", "std-0.07", None]
    assert read_run(copy).last("fd128_digits") == fids[None]  # of the weights that are named first
    row = next(line for line in child.log.read_text().splitlines() if " fd128_digits" in line)
    assert row.count("*") == 1 and f"{min(fids.values()):.4g} *" in row
    before = (copy / "evaluations.jsonl").read_bytes()
    child = Child(lambda: sys.exit(main(["evaluate", *measure, "weights=[raw,std-0.4]"])), tmp_path / "log")
    assert child.wait() == 2 and (copy / "evaluations.jsonl").read_bytes() == before
