"""`_target_` names a program: what is not on the list is refused, judged by the object that a name leads to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.checks.recorded_config import checked_config
from diffusion_lab.cli.config import plain
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.targets import PACKAGE_ONLY, Trust, resolve
from diffusion_lab.cli.validate import check
from diffusion_lab.timesteps import Uniform

PAYLOADS = [
    "os.system",
    "posix.system",
    "subprocess.run",
    "subprocess.Popen",
    "builtins.eval",
    "builtins.exec",
    "shutil.rmtree",
    "pickle.loads",
    "torch.load",
    "numpy.load",
    "functools.partial",
    "importlib.import_module",
    "hydra.utils.get_method",
    "logging.os.system",
    "torch.os.system",
    "torch.optim.lr_scheduler.partial",
    "torch.optim.adam.torch.load",
    "diffusion_lab.streams.blake2b",
    "diffusion_lab.data.datamodule.torch.load",
    "diffusion_lab.cli.commands.train.os.system",
    "diffusion_lab.cli.main.main",
    "diffusion_lab.__builtins__",
    "lightning.pytorch.LightningModule.load_from_checkpoint",
    "lightning.pytorch.callbacks.LambdaCallback",
]


@pytest.mark.parametrize("target", PAYLOADS)
def test_payloads_are_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="_target_=" + target.replace(".", r"\.")):
        resolve("sampler", target, Trust.typed([]))


def test_a_payload_in_a_configuration_is_refused_and_not_called(composed, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for where in ("sampler", "callbacks.x", "logger.x", "dataset.source"):
        cfg = composed(f"++{where}._target_=os.system", f"++{where}.command='touch {marker}'")
        errors = [str(error) for error in check(cfg)]
        assert len(errors) == 1 and errors[0].startswith(f"{where}._target_=os.system")
    assert not marker.exists()


@pytest.mark.parametrize("target", ["diffusion_lab.timesteps.Uniform", "torch.optim.Adam", "lightning.pytorch.Trainer"])
def test_what_the_yaml_files_name_is_allowed(target: str) -> None:
    assert resolve("x", target, PACKAGE_ONLY).__name__ == target.rpartition(".")[2]


@pytest.mark.parametrize("target", [3, "", "uniform", "diffusion_lab..x", "diffusion_lab.x y", None])
def test_what_is_no_dotted_name(target: object) -> None:
    with pytest.raises(ConfigError, match="dotted name"):
        resolve("sampler", target, PACKAGE_ONLY)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `mine_xyz` of the user's, importable, in tmp_path."""
    (tmp_path / "mine_xyz.py").write_text(
        "from subprocess import run\nfrom diffusion_lab.timesteps import Uniform\nclass Mine(Uniform): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("mine_xyz", None)


def test_own_class_in_the_working_folder(own_module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own_module)
    assert issubclass(resolve("sampler", "mine_xyz.Mine", Trust.typed([])), Uniform)
    with pytest.raises(ConfigError, match="leads to subprocess.run"):
        resolve("sampler", "mine_xyz.run", Trust.typed([]))


def test_own_class_beside_a_config_dir(own_module: Path) -> None:
    resolve("sampler", "mine_xyz.Mine", Trust.typed([str(own_module / "my_conf")]))


def test_a_configuration_that_was_read_back_does_not_widen_the_list(own_module: Path) -> None:
    with pytest.raises(ConfigError, match="must be a class of diffusion_lab"):
        resolve("sampler", "mine_xyz.Mine", PACKAGE_ONLY)
    assert "mine_xyz" not in sys.modules  # it was not even imported


def test_a_class_that_was_read_back_is_allowed_by_its_name_or_its_folder(own_module: Path) -> None:
    for trust in (Trust.read([], "mine_xyz.Mine"), Trust.read([], ["a.B", "mine_xyz.Mine"])):
        resolve("sampler", "mine_xyz.Mine", trust)
    resolve("sampler", "mine_xyz.Mine", Trust.read([str(own_module / "my_conf")]))
    with pytest.raises(ConfigError, match="leads to subprocess.run"):
        resolve("sampler", "mine_xyz.run", Trust.read([], "mine_xyz.run"))


@pytest.mark.parametrize("allow", [3, "late", ["late.Late", 3], {"a": "b"}])
def test_what_is_no_name_to_allow(allow: object) -> None:
    with pytest.raises(ConfigError, match="must be names of classes of your own"):
        Trust.read([], allow)


PARTS = ("dataset", "network", "schedule", "solver")


def faults_of_record(saved: dict[str, Any]) -> list[ConfigError]:
    try:
        checked_config(saved, PARTS, PACKAGE_ONLY, "")
    except InvalidConfig as error:
        return error.errors
    return []


def test_a_run_that_was_read_back_is_checked_as_a_whole(composed) -> None:
    saved = plain(composed())
    assert faults_of_record(saved) == []
    saved["solver"]["_target_"] = "os.system"
    saved["sampler"]["_target_"] = "mine.Mine"  # not built to evaluate its run, and yet
    (fault,) = map(str, faults_of_record(saved))
    keys, cure = fault.split(" must be a class of diffusion_lab ")
    assert set(keys.split(", ")) == {"solver._target_=os.system", "sampler._target_=mine.Mine"}
    assert "or add 'allow=[" in cure and "mine.Mine" in cure


# Each is a class or function of ours, or allowed somewhere; none is a part for that place.
MISPLACED = [
    ("sampler", "diffusion_lab.solvers.DDIM"),
    ("sampler", "torch.optim.Adam"),
    ("sampler", "diffusion_lab.timesteps.TimestepSampler"),
    ("sampler", "diffusion_lab.callbacks.method.sampler_of"),  # a function that returns one, and may do more
    ("network", "diffusion_lab.timesteps.Uniform"),
    ("network", "diffusion_lab.diffusion.Denoiser"),
    ("optimizer", "torch.optim.lr_scheduler.StepLR"),
    ("schedule", "diffusion_lab.diffusion.bound_weights"),
    ("solver", "diffusion_lab.training.checkpoint_io.save"),
    ("dataset.features", "diffusion_lab.training.checkpoint_io.save"),
    ("dataset.source", "diffusion_lab.metrics.ClassifierFeatures"),
    ("dataset.batch_size", "diffusion_lab.data.Digits"),
    ("callbacks.evil", "diffusion_lab.training.checkpoint_io.load"),
    ("callbacks.evil", "diffusion_lab.timesteps.Uniform"),
    ("logger.evil", "diffusion_lab.callbacks.Guard"),
    ("trainer.strategy", "diffusion_lab.files.write_json"),
    ("trainer.strategy", "diffusion_lab.runs.folder.put_aside"),
    ("metrics", "diffusion_lab.metrics.save_grid"),
    ("seed", "diffusion_lab.data.Digits"),
    ("evil", "diffusion_lab.data.Digits"),
]


@pytest.mark.parametrize(("place", "target"), MISPLACED)
def test_only_parts_of_its_own_kind_stand_in_a_place(composed, place: str, target: str) -> None:
    cfg = composed()
    OmegaConf.update(cfg, place, {"_target_": target}, force_add=True)
    typed, read = check(cfg), faults_of_record(plain(cfg))
    for errors in (typed, read):
        assert any(str(error).startswith(f"{place}._target_={target} must ") for error in errors), errors
