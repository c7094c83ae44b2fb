"""Whatever a run was logged to, its folder can be used afterwards: each logger with each command that reads a run.

A logger is a file of conf/logger. Other programs keep files of their own in a run folder, links among them.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from diffusion_lab.cli.conf_folder import conf_dir, yaml_file
from diffusion_lab.cli.load import load_run
from diffusion_lab.cli.main import main
from tests.harness import Child, wait_for_step
from tests.loggers.wandb_file import records

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style:DeprecationWarning")  # of wandb-workspaces' import

SMALL = ("scale=smoke", "metrics=none", "network.base_channels=8", "trainer.accelerator=cpu", "log_every=1")
TWO = ("max_steps=2", "checkpoint_every=1")
FEW = ("solver=ddim", "solver.steps=2")
MEASURED = ("metrics.names=[sample_variance]", "metrics.num_samples=4", "metrics.batch_size=4")
FILES = {path.stem: yaml_file(path) for path in sorted((conf_dir() / "logger").glob("*.yaml"))}
LOGGERS = [name for name, content in FILES.items() if content != {"defaults": ["default"]}]  # else another name for it
COMMANDS = {
    "sample": ["sample", "run=run", "seeds=0-1", *FEW],
    "evaluate": ["evaluate", "run=run", *MEASURED, *FEW],
    "export": ["export", "run=run"],
    "analyze": ["analyze", "analysis=per_timestep", "analysis.images=2", "analysis.every=500", "run=run"],
    "show": ["show", "run"],
    "verify": ["verify", "run", "--steps", "1"],
    "report": ["report", "run"],
    "compare": ["compare", "run", "other"],
    "dashboard": ["dashboard", "run", "--offline"],
    "init_from": ["train", *SMALL, "max_steps=1", "init_from=run", "hydra.run.dir=after"],
    "resume": ["train", "resume=run", "max_steps=3"],
}


def exit_with(words: list[str]) -> None:
    raise SystemExit(main(words))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a finished run of two steps for each logger, and `other`, of other settings."""
    place = tmp_path_factory.mktemp("runs")
    os.environ["WANDB_MODE"] = "offline"
    try:
        children = [train(place, name, f"logger={name}") for name in LOGGERS]
        for child in [*children, train(place, "other", "logger=none", "optimizer.lr=0.001")]:
            child.succeed()
        yield place
    finally:
        del os.environ["WANDB_MODE"]


def train(place: Path, name: str, *words: str) -> Child:
    arguments = ["train", *SMALL, *TWO, *words, f"hydra.run.dir={place / name}"]
    return Child(lambda: exit_with(arguments), place / f"{name}.log")


def test_wandb_leaves_a_link_that_leads_out(runs: Path) -> None:
    """Else the matrix below would show nothing."""
    links = [path for path in (runs / "wandb").rglob("*") if path.is_symlink()]
    assert [path for path in links if not path.resolve().is_relative_to(runs / "wandb")]


PARTS_OF_MANY = ("tensorboard", "wandb")  # each is one of those of `many`, and a second case


@pytest.mark.parametrize(
    ("logger", "command"),
    [
        pytest.param(logger, command, marks=[pytest.mark.exhaustive] * (logger in PARTS_OF_MANY))
        for logger, command in itertools.product(LOGGERS, COMMANDS)
    ],
)
def test_a_logged_run_can_be_used(
    logger: str, command: str, runs: Path, in_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / logger, "run", symlinks=True)
    (in_folder / "other").symlink_to(runs / "other")  # the link is the user's own
    words = COMMANDS[command]
    if words[0] in ("train", "verify"):  # it trains
        Child(lambda: exit_with(words), Path("log")).succeed()
    else:
        assert main(words) == 0, capfd.readouterr()


@pytest.mark.parametrize("logger", LOGGERS)
def test_a_logged_run_can_be_loaded(logger: str, runs: Path) -> None:
    assert load_run(runs / logger).step == 2


@pytest.mark.slow
def test_a_killed_run_goes_on_and_wandb_has_each_value_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    words = ["train", *SMALL, "logger=many", "max_steps=20", "checkpoint_every=8", f"hydra.run.dir={tmp_path / 'run'}"]
    child = Child(lambda: exit_with(words), tmp_path / "log")
    wait_for_step(child, tmp_path / "run", 11)
    child.kill()
    Child(lambda: exit_with(words), tmp_path / "log").succeed()
    given = values_of(tmp_path / "run")
    assert max(step for step, _ in given) == 20
    assert len(set(given)) == len(given)


def values_of(folder: Path) -> list[tuple[int, str]]:
    """Step and key of each value in the .wandb files of a run; a killed process may leave an incomplete last record."""
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    found = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for payload in records(path):
            record = proto.Record()
            try:
                record.ParseFromString(payload)
            except Exception:
                continue
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if step := items.get("trainer/global_step"):
                found += [(int(step), key) for key in items if "/" in key and key != "trainer/global_step"]
    return found


def test_every_logger_is_in_the_matrix() -> None:
    assert {"default", "many", "wandb", "tensorboard"} <= set(LOGGERS) and "none" not in LOGGERS
