"""A stand-in for the training command, whose jobs behave as the tests ask: done, failing, killed, sleeping, locked."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, JobsFailed, StoppedBySignal
from diffusion_lab.cli.hydra_version import behaviour
from diffusion_lab.runs.folder import RunLocked
from diffusion_lab.workers import JOBS

ENVIRONMENT = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LOCAL_RANK", JOBS)
CONF = """
defaults:
  - _self_
  - override hydra/launcher: diffusion_lab
seed: 0
how: done
max_steps: 1
name: sweep
objective: metrics/fd
hydra:
  searchpath: ["file://{conf}"]
  output_subdir: null
  job: {{name: train}}
  sweep:
    dir: runs/${{sweep_name:}}
    subdir: ${{how}}-s${{seed}}-${{run_hash:}}
"""


class App:
    """The attributes that the launcher knows of the real command, and a task without training."""

    def __init__(self, arguments: list[str]) -> None:
        self.command, self.arguments, self.typed = "train", arguments, ["train", *arguments]
        self.checked, self.error, self.sweep_folder = False, None, None

    def check(self, cfg: DictConfig) -> list[ConfigError]:
        return [ConfigError(f"seed={cfg.seed} must be >= 0; use 0")] if cfg.seed < 0 else []

    def __call__(self, cfg: DictConfig) -> float:
        folder = Path(HydraConfig.get().runtime.output_dir)
        facts = {
            "mode": HydraConfig.get().mode.name,
            "dir": HydraConfig.get().run.dir,
            "typed": self.typed,
            "checked": self.checked,
            "env": {name: os.environ.get(name) for name in ENVIRONMENT},
            "leader": os.getpgid(0) == os.getsid(0) == os.getpid(),
        }
        with (folder / "calls.jsonl").open("a") as file:
            file.write(json.dumps(facts) + "\n")
        with (folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunLocked("in use") from None
            self._behave(cfg.how, folder)
            text = json.dumps({"status": "done", "step": 1, "metrics": {"metrics/fd": float(cfg.seed)}})
            (folder / "result.json").write_text(text)
        return float(cfg.seed)

    def _behave(self, how: str, folder: Path) -> None:
        repaired = (folder.parent / "repaired").exists()
        if how == "raise" and not repaired:
            raise RuntimeError("the loss is not finite")
        if how == "kill" and not repaired:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "move":  # the whole sweep
            folder.parent.rename(folder.parent.with_name("moved"))
        if how == "rename":  # the folder of this job
            folder.rename(folder.parent.parent / "renamed")
        if how == "exit":
            sys.exit(7)
        if how.startswith("sys_exit_") and not repaired:  # what one may find in somebody's sampler
            sys.exit(int(how.rpartition("_")[2]))
        if how == "vanish" and not repaired:  # as sys.exit(0), but nothing of Python's runs any more
            os._exit(0)
        if how == "diverge" and not repaired:  # a run writes its own end
            text = json.dumps({"status": "failed", "step": 0, "error": {"type": "NotFinite", "message": "the loss"}})
            (folder / "result.json").write_text(text)
            raise FloatingPointError("the loss is not finite at step 3")
        if how == "config" and not repaired:
            raise ConfigError("dataset.source.root=data must be a folder; it was removed")
        if how == "late" and not repaired:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        if how == "short":
            time.sleep(0.3)
        if how == "sleep" and not repaired:
            self._sleep(folder)

    def _sleep(self, folder: Path) -> None:
        """Sleep until a signal comes, then leave a checkpoint as a training run does."""
        got: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: got.append(number))
        (folder / "sleeping").touch()
        for _ in range(3000):
            time.sleep(0.01)
            if got:
                (folder / "checkpoint").touch()
                raise StoppedBySignal(got[0])


def run(*arguments: str) -> int:
    """`diffusion-lab train ARGUMENTS` of the stand-in, in the working folder; returns the exit code."""
    register_resolvers()
    folder = Path("conf")
    folder.mkdir(exist_ok=True)
    (folder / "train.yaml").write_text(CONF.format(conf=conf_dir()))
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["train", *arguments]
    try:
        app = App(list(arguments))
        hydra.main(**behaviour(), config_path=str(folder.absolute()), config_name="train")(app)()
    except InvalidConfig as error:
        print(error)
        return 2
    except JobsFailed:
        return 1
    except StoppedBySignal as error:
        return 128 + error.signal_number
    return 0
