"""Weights & Biases as a copy of metrics.jsonl, with or without an account; its errors never stop training."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import _DummyExperiment as DummyExperiment
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from diffusion_lab.arguments import WrittenPath, check_choice
from diffusion_lab.files import write_whole
from diffusion_lab.files_inside import read_inside
from diffusion_lab.loggers.base import Axes, RunLogger, Values
from diffusion_lab.loggers.wandb_service import LoggedList, SentRecord, ThinnedLists, brief, chart, check_reachable
from diffusion_lab.progress import waiting
from diffusion_lab.runs.wandb_names import IMAGES, PROJECT, SECONDS, STEP, check_name, check_project

log = logging.getLogger(__name__)

MODES = ("auto", "online", "offline", "disabled")
FOLDER = "wandb"  # in the run folder
AXES = (STEP, IMAGES, SECONDS)
_INIT_SECONDS = 15.0
_ID_BYTES = 200


class WandbLogger(RunLogger):
    """Logs values, pictures and curves to a W&B run whose files are in `<directory>/wandb`.

    It never asks for a key. After any error, at the start or later, it prints one warning, and training continues
    without W&B. The axis of all values is the optimizer step; of `metrics/*` it is the number of images seen. The
    training time is logged with every value. A list is one chart, a line over the first coordinate of its entries, with
    the others in its table; only some of a run's charts are logged (`ThinnedLists`).

    Args:
        directory: the run folder. The W&B id is stored there, so that a resumed run continues the same W&B run.
        project: W&B project.
        group: runs that belong together, such as those of a sweep; None: none.
        job_type: what the process does, e.g. train or evaluate.
        tags: labels to filter by, beside those of the run: paper, experiment, method, dataset, schedule and scale.
        name: name of the run on the web page; None: chosen by W&B.
        run_id: W&B id; None: the one stored in the folder, or a new random one.
        mode: auto: online with a key and a network, else offline with one line that says how to upload, unless the
            variable WANDB_MODE says otherwise. online: a missing key is an error before training. offline: files
            only. disabled: nothing at all.

    Raises:
        ValueError: an unknown mode, or a name that W&B does not accept; from `experiment`, mode=online without a key.
    """

    def __init__(
        self,
        directory: WrittenPath,
        project: str = PROJECT,
        group: str | None = None,
        job_type: str = "train",
        tags: Sequence[str] = (),
        name: str | None = None,
        run_id: str | None = None,
        mode: str = "auto",
    ) -> None:
        super().__init__(directory)
        check_project("project", project)
        named = {
            "group": group,
            "job_type": job_type,
            "name": name,
            **{f"tags[{i}]": tag for i, tag in enumerate(tags)},
        }
        for key, value in named.items():
            check_name(key, str(value))
        if run_id is not None:
            check_project("run_id", run_id)
        self.project, self.group, self.job_type, self.tags = project, group, job_type, list(tags)
        self.run_name, self.run_id = name, run_id
        self.mode = check_choice("mode", mode, MODES, "use auto")
        self._run: Any = None
        self._off = mode == "disabled"
        self._curves = ThinnedLists()
        self._better: dict[str, str] = {}  # directions of metrics that W&B has been given
        self._given = SentRecord(self.directory, f"{FOLDER}/given.jsonl")

    # -- start --------------------------------------------------------------------------------------------------

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The `wandb.Run`, started at the first use; a stand-in that ignores every call while W&B is off."""
        if self._run is None and not self._off:
            with waiting("starting W&B"):
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
                if self.mode == "auto":
                    log.info("W&B: disabled by the variable WANDB_MODE, so nothing is logged there")
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
        elif mode == "offline":
            log.info("W&B: offline, so this run is kept on disk; to upload it: %s", self._sync())
        else:
            try:
                check_reachable(wandb.setup().settings.base_url)
                return self._init(wandb, settings, "online")
            except Exception as error:
                kept = "W&B: no connection (%s), so this run is kept on disk; to upload it: %s"
                log.warning(kept, brief(error), self._sync())
        try:
            return self._init(wandb, settings, "offline")
        except Exception as error:
            return self._fail("starting", error)

    def _init(self, wandb: Any, settings: Any, mode: str) -> Any:
        self.directory.mkdir(parents=True, exist_ok=True)
        with waiting("waiting for W&B to open the run"):  # named again: a line about W&B may have been printed since
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
        for axis in AXES:
            run.define_metric(axis)
        run.define_metric("*", step_metric=STEP)
        run.define_metric("metrics/*", step_metric=IMAGES)
        if mode == "online":
            log.info("W&B: %s", run.url)
        return run

    def _stable_id(self) -> str:
        """The argument, or the id stored in the run folder, or a new one, which is then stored: that of the agent in a
        W&B sweep."""
        path = self.directory / FOLDER / "run_id"
        try:
            kept = read_inside(path, self.directory, _ID_BYTES).decode(errors="replace").strip()
        except OSError:  # there is none
            kept = ""
        given = os.environ.get("WANDB_RUN_ID", "") if os.environ.get("WANDB_SWEEP_ID") else ""
        run_id = self.run_id or kept or given or secrets.token_hex(4)
        if run_id != kept:
            write_whole(path, run_id.encode())
        return run_id

    def _sync(self) -> str:
        """The command that uploads the offline runs of this folder; the star is for the shell."""
        return f"wandb sync {shlex.quote(str(self.directory / FOLDER))}/offline-run-*"

    # -- values -------------------------------------------------------------------------------------------------

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._log(lambda: metrics, step)

    def log_values(self, values: Values, step: int, axes: Mapping[str, Axes] | None = None) -> None:
        lists = {key: value for key, value in values.items() if isinstance(value, Sequence)}
        now = self._curves.add(
            {key: LoggedList(value, (axes or {}).get(key, {}), step) for key, value in lists.items()}
        )
        numbers = {key: value for key, value in values.items() if key not in lists}
        self._log(lambda: numbers | {key: chart(key, curve) for key, curve in now.items()}, step)

    @rank_zero_only
    def log_directions(self, better: Mapping[str, str]) -> None:
        """The best value so far is part of the summary, beside the last."""
        new = {key: word for key, word in better.items() if self._better.get(key) != word}
        self._better |= new
        for key, word in new.items():
            kept = {"summary": {"lower": "last,min", "higher": "last,max"}.get(word, "last")}
            kept |= {"step_metric": IMAGES if key.startswith("metrics/") else STEP}
            self._do("stating a direction", lambda run, key=key, kept=kept: run.define_metric(key, **kept))

    @rank_zero_only
    def log_tags(self, tags: Iterable[str]) -> None:
        self._do("adding tags", lambda run: setattr(run, "tags", list(dict.fromkeys([*(run.tags or ()), *tags]))))

    def log_picture(self, key: str, path: Path, step: int) -> None:
        def picture() -> dict[str, Any]:
            import wandb

            return {key: wandb.Image(str(path))}

        self._log(picture, step)

    def log_curve(self, key: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], step: int) -> None:
        """A chart of the lines; nothing if `key` is a list among the values, which has a chart of its own."""

        def panel() -> dict[str, Any]:
            import wandb

            ys = [list(y) for y in lines.values()]
            return {key: wandb.plot.line_series(list(x), ys, keys=list(lines), title=key, xname="x")}

        if key not in self._curves:
            self._log(panel, step)

    @rank_zero_only
    def log_summary(
        self, values: Mapping[str, float | str], tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]]
    ) -> None:
        """Set entries of the run's summary, and log tables, key -> columns and rows of text."""

        def give(run: Any) -> None:
            import wandb

            run.summary.update(dict(values))
            made = {key: wandb.Table(columns=list(columns), data=list(rows)) for key, (columns, rows) in tables.items()}
            run.log(made)

        self._do("logging a summary", give)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The run's configuration, a dict of plain values."""
        values = vars(params) if isinstance(params, Namespace) else params
        # A resumed run may have changed keys, such as a larger max_steps.
        self._do("recording the configuration", lambda run: run.config.update(values, allow_val_change=True))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Log the last charts and close the run, as failed unless the status is success or finished; later values are
        ignored."""
        if self._run is not None:
            for key, curve in self._curves.rest().items():
                self._log(lambda k=key, c=curve: {k: chart(k, c)}, curve.step)
        run, self._run, self._off = self._run, None, True
        if run is not None:
            try:
                run.finish(exit_code=0 if status in ("success", "finished") else 1)
            except Exception as error:
                self._fail("finishing", error)

    @rank_zero_only
    def cut(self, step: int) -> None:
        """Values from this step on that W&B has been given, which it cannot drop, are not given again."""
        self._curves.go_on(self._given.cut(step))

    @rank_zero_only
    def _log(self, content: Callable[[], Mapping[str, Any]], step: int | None) -> None:
        # W&B drops values with an earlier `step=`, so its own counter is used, and our step is logged as a value.
        axes: dict[str, float] = {} if step is None else {STEP: step}
        if self.clock is not None:
            axes[SECONDS] = round(self.clock(), 3)

        def give(run: Any) -> None:
            values = dict(content())
            keys = [key for key in values if key not in AXES]
            new = keys if step is None else self._given.new(step, keys)
            if new or not keys:
                run.log({key: value for key, value in values.items() if key in new or key in AXES} | axes)

        self._do("logging", give)

    def _do(self, doing: str, act: Callable[[Any], object]) -> None:
        """Call `act` with the run, unless W&B is off; an error turns it off."""
        run = self.experiment
        if self._off:
            return
        try:
            act(run)
        except Exception as error:
            self._fail(doing, error)

    def _fail(self, doing: str, error: Exception) -> None:
        self._run, self._off = None, True
        log.warning("W&B: off for the rest of this run, after an error while %s (%s)", doing, brief(error))
