"""A Hydra application whose jobs behave as the tests ask: done, raising, killed, hanging, interrupted.

usage: python sweep_app.py FOLDER_WITH_train.yaml [hydra arguments]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig

from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.errors import ConfigError, Interrupted, InvalidConfig, JobsFailed, RunLocked


class App:
    """Stands in for diffusion_lab.cli.app.App: same attributes, a task without training."""

    command, arguments, typed, checked, error = "train", [], ["train", *sys.argv[2:]], False, None

    def check(self, cfg):
        """Rejects `bad: -1`."""
        return [ConfigError(f"bad={cfg.bad} must be >= 0; use 0")] if cfg.bad == -1 else []

    def __call__(self, cfg):
        folder = Path(HydraConfig.get().runtime.output_dir)
        with (folder / "calls.txt").open("a") as file:
            file.write(
                f"{os.getpid()} {HydraConfig.get().mode.name} {os.environ.get('OMP_NUM_THREADS')} "
                f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {os.environ.get('LOCAL_RANK')}\n"
            )
        if cfg.how == "raise" and not (folder / "repaired").exists():
            raise RuntimeError("the loss is not finite")
        if cfg.how == "kill" and not (folder / "repaired").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if cfg.how == "exit":
            sys.exit(7)
        if cfg.how == "locked":
            raise RunLocked("in use")
        if cfg.how == "sleep":
            self._sleep(folder)
        (folder / "result.json").write_text(
            json.dumps({"status": "done", "step": 1, "metrics": {"metrics/fd": float(cfg.seed)}})
        )
        return float(cfg.seed)

    def _sleep(self, folder: Path) -> None:
        """Sleeps until a signal, then stops as a training run does."""
        got = []
        signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
        signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
        (folder / "sleeping").touch()
        for _ in range(1000):
            time.sleep(0.02)
            if got:
                (folder / "checkpoint").touch()
                raise Interrupted(got[0])


if __name__ == "__main__":
    folder = sys.argv.pop(1)
    register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"
    app = App()
    try:
        hydra.main(version_base="1.3", config_path=folder, config_name="train")(app)()
    except InvalidConfig as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except JobsFailed:
        sys.exit(1)
    except Interrupted as error:
        sys.exit(128 + error.signal_number)
