"""`_target_` names a program: what is not on the list is refused, judged by the object that a name leads to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.config import plain
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.targets import own_folders, resolve
from diffusion_lab.cli.validate import check, check_read_back
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
    "diffusion_lab.data.images.torch.load",
    "diffusion_lab.cli.train.os.system",
    "diffusion_lab.cli.main.main",
    "diffusion_lab.__builtins__",
    "lightning.pytorch.LightningModule.load_from_checkpoint",
    "lightning.pytorch.callbacks.LambdaCallback",
]


@pytest.mark.parametrize("target", PAYLOADS)
def test_payloads_are_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="_target_=" + target.replace(".", r"\.")):
        resolve("sampler", target, own_folders([]))


def test_a_payload_in_a_configuration_is_refused_and_not_called(composed, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for where in ("sampler", "callbacks.x", "logger.x", "dataset.source"):
        cfg = composed(f"++{where}._target_=os.system", f"++{where}.command='touch {marker}'")
        errors = [str(error) for error in check(cfg)]
        assert len(errors) == 1 and errors[0].startswith(f"{where}._target_=os.system")
    assert not marker.exists()


@pytest.mark.parametrize("target", ["diffusion_lab.timesteps.Uniform", "torch.optim.Adam", "lightning.pytorch.Trainer"])
def test_what_the_yaml_files_name_is_allowed(target: str) -> None:
    assert resolve("x", target).__name__ == target.rpartition(".")[2]


@pytest.mark.parametrize("target", [3, "", "uniform", "diffusion_lab..x", "diffusion_lab.x y", None])
def test_what_is_no_dotted_name(target: object) -> None:
    with pytest.raises(ConfigError, match="dotted name"):
        resolve("sampler", target)


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
    assert issubclass(resolve("sampler", "mine_xyz.Mine", own_folders([])), Uniform)
    with pytest.raises(ConfigError, match="leads to subprocess.run"):
        resolve("sampler", "mine_xyz.run", own_folders([]))


def test_own_class_beside_a_config_dir(own_module: Path) -> None:
    resolve("sampler", "mine_xyz.Mine", own_folders([str(own_module / "my_conf")]))


def test_a_configuration_that_was_read_back_does_not_widen_the_list(own_module: Path) -> None:
    with pytest.raises(ConfigError, match="must be a class of diffusion_lab"):
        resolve("sampler", "mine_xyz.Mine")
    assert "mine_xyz" not in sys.modules  # it was not even imported


def test_parts_of_a_run_that_was_read_back(composed) -> None:
    saved = OmegaConf.create(plain(composed()))
    assert check_read_back(saved, ("dataset", "network", "schedule", "solver")) == []
    saved.solver["_target_"] = "os.system"
    saved.sampler["_target_"] = "mine.Mine"  # a sampler of the user's own is not built to evaluate its run
    errors = check_read_back(saved, ("dataset", "network", "schedule", "solver"))
    assert len(errors) == 1 and str(errors[0]).startswith("solver._target_=os.system")
