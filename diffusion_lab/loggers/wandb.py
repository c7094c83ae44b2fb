"""Weights & Biases as a copy of metrics.jsonl, with or without an account; its errors never stop training."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lightning.fabric.loggers.logger import _DummyExperiment as DummyExperiment
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from diffusion_lab.arguments import check_choice
from diffusion_lab.loggers.base import RunLogger

log = logging.getLogger(__name__)

MODES = ("auto", "online", "offline", "disabled")
STEP = "trainer/global_step"  # Lightning's name of the axis
_PROBE_SECONDS = 3.0
_INIT_SECONDS = 15.0


class WandbLogger(RunLogger):
    """Logs values, pictures and curves to a W&B run whose files are in `<directory>/wandb`.

    It never asks for a key. After any error, at the start or later, it prints one warning, and training continues
    without W&B. The axis of all values is the optimizer step; of `metrics/*` it is the number of images seen.

    Args:
        directory: the run folder. The W&B id is stored there, so that a resumed run continues the same W&B run.
        project: W&B project.
        group: runs that belong together, such as a sweep; None: none.
        job_type: what the process does, e.g. train or evaluate.
        tags: labels to filter by.
        name: name of the run on the web page; None: chosen by W&B.
        run_id: W&B id; None: the one stored in the folder, or a new random one.
        mode: auto: online with a key and a network, else offline with one line that says how to upload, unless the
            variable WANDB_MODE says otherwise. online: a missing key is an error before training. offline: files
            only. disabled: nothing at all.

    Raises:
        ValueError: an unknown mode or an empty project; from `experiment`, mode=online without a key.
    """

    def __init__(
        self,
        directory: str | Path,
        project: str = "diffusion-lab",
        group: str | None = None,
        job_type: str = "train",
        tags: Sequence[str] = (),
        name: str | None = None,
        run_id: str | None = None,
        mode: str = "auto",
    ) -> None:
        super().__init__(directory)
        if not project:
            raise ValueError(f"project={project!r} must not be empty; use diffusion-lab")
        self.project, self.group, self.job_type, self.tags = project, group, job_type, list(tags)
        self.run_name, self.run_id = name, run_id
        self.mode = check_choice("mode", mode, MODES, "use auto")
        self._run: Any = None
        self._off = mode == "disabled"

    # -- start --------------------------------------------------------------------------------------------------

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The `wandb.Run`, started at the first use; a stand-in that ignores every call while W&B is off."""
        if self._run is None and not self._off:
            self._run = self._start()
        return self._run if self._run is not None else DummyExperiment()

    def _start(self) -> Any:
        mode = self.mode
        try:
            import wandb

            # Before the first use of W&B: with silent, `login` skips a request that takes seconds offline.
            settings = wandb.Settings(console="off", silent=True, init_timeout=_INIT_SECONDS)
            wandb.setup(settings)
            if mode == "auto":
                mode = {"dryrun": "offline"}.get(os.environ.get("WANDB_MODE", ""), os.environ.get("WANDB_MODE", "auto"))
            if mode == "disabled":
                self._off = True
                return None
            keyless = mode in ("auto", "online") and not wandb.login(prompt=False, verify=False)
        except Exception as error:
            return self._fail("starting", error)
        if keyless and self.mode == "online":
            raise ValueError("mode=online must find an API key; run `wandb login`, set WANDB_API_KEY, or use mode=auto")
        return self._open(wandb, settings, mode, keyless)

    def _open(self, wandb: Any, settings: Any, mode: str, keyless: bool) -> Any:
        """Online if wanted and possible, else offline."""
        if keyless:
            log.info("W&B: no API key, so this run is kept on disk; to upload it: wandb login && %s", self._sync())
        elif mode != "offline":
            try:
                check_reachable(wandb.setup().settings.base_url)
                return self._init(wandb, settings, "online")
            except Exception as error:
                kept = "W&B: no connection (%s), so this run is kept on disk; to upload it: %s"
                log.warning(kept, _brief(error), self._sync())
        try:
            return self._init(wandb, settings, "offline")
        except Exception as error:
            return self._fail("starting", error)

    def _init(self, wandb: Any, settings: Any, mode: str) -> Any:
        self.directory.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            dir=str(self.directory),
            project=self.project,
            group=self.group,
            job_type=self.job_type,
            tags=self.tags,
            name=self.run_name,
            id=self._stable_id(),
            resume="allow" if mode == "online" else None,  # has no effect offline, where W&B warns about it
            mode=mode,
            settings=settings,
        )
        run.define_metric(STEP)
        run.define_metric("images")
        run.define_metric("*", step_metric=STEP)
        run.define_metric("metrics/*", step_metric="images")
        if mode == "online":
            log.info("W&B: %s", run.url)
        return run

    def _stable_id(self) -> str:
        """The argument, or the id stored in the run folder, or a new one, which is then stored."""
        path = self.directory / "wandb" / "run_id"
        kept = path.read_text().strip() if path.exists() else ""
        run_id = self.run_id or kept or secrets.token_hex(4)
        if run_id != kept:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(run_id)
        return run_id

    def _sync(self) -> str:
        return f"wandb sync {self.directory / 'wandb' / 'offline-run-*'}"

    # -- values -------------------------------------------------------------------------------------------------

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._log(lambda: metrics, step)

    def log_picture(self, key: str, path: Path, step: int) -> None:
        def picture() -> dict[str, Any]:
            import wandb

            return {key: wandb.Image(str(path))}

        self._log(picture, step)

    def log_curve(self, key: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], step: int) -> None:
        def panel() -> dict[str, Any]:
            import wandb

            ys = [list(y) for y in lines.values()]
            return {key: wandb.plot.line_series(list(x), ys, keys=list(lines), title=key, xname="x")}

        self._log(panel, step)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The run's configuration, a dict of plain values."""
        run = self.experiment
        if not self._off:
            try:
                # A resumed run may have changed keys, such as a larger max_steps.
                run.config.update(vars(params) if isinstance(params, Namespace) else params, allow_val_change=True)
            except Exception as error:
                self._fail("recording the configuration", error)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the run, as failed unless the status is success or finished; later values are ignored."""
        run, self._run, self._off = self._run, None, True
        if run is not None:
            try:
                run.finish(exit_code=0 if status in ("success", "finished") else 1)
            except Exception as error:
                self._fail("finishing", error)

    @rank_zero_only
    def _log(self, content: Callable[[], Mapping[str, Any]], step: int | None) -> None:
        run = self.experiment
        if self._off:
            return
        try:
            # W&B drops values with an earlier `step=`, so its own counter is used, and our step is logged as a value.
            run.log(dict(content()) | ({} if step is None else {STEP: step}))
        except Exception as error:
            self._fail("logging", error)

    def _fail(self, doing: str, error: Exception) -> None:
        self._run, self._off = None, True
        log.warning("W&B: off for the rest of this run, after an error while %s (%s)", doing, _brief(error))


def check_reachable(url: str) -> None:
    """Open and close a connection to the server, because `wandb.init` takes 100 s to notice a missing network.

    Nothing is tried behind a proxy.

    Raises:
        OSError: the server cannot be reached.
    """
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    socket.create_connection((parts.hostname or "", port), timeout=_PROBE_SECONDS).close()


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
