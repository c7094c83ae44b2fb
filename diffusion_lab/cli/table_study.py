"""A table at a scale with its runs' folder: trains what is not done, and analyses what is."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.failure import Failure
from diffusion_lab.runs.record import is_done, read_result
from diffusion_lab.runs.shell_commands import setting

if TYPE_CHECKING:
    from diffusion_lab.cli.table_jobs import Job, Jobs
    from diffusion_lab.cli.table_plan import Plan
    from diffusion_lab.tables import Table, TableScale

Analysed = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass
class Study:
    """A table at a scale, with its seeds and folders."""

    table: Table
    scale: TableScale
    root: Path  # folder of the runs of all tables at this scale
    seeds: Sequence[int]  # of the entries
    jobs: Jobs  # composes the jobs
    typed: list[str]  # the command's words
    launcher: Sequence[str]  # settings of Hydra's launcher
    _analysed: dict[Path, Analysed] = field(default_factory=dict)

    def train(self, plan: Plan) -> int:
        """Train what is not done, seed by seed in the order of `seeds`, also where an interruption has left some of a
        seed's jobs; returns the sweep's exit code."""
        from diffusion_lab.cli.app import App
        from diffusion_lab.files import write_whole

        if not plan.open:
            return 0
        file = self.root / f"{self.table.name.replace('/', '-')}.jobs"
        turns = sorted(plan.open, key=lambda job: self.seeds.index(job.seed))
        write_whole(file, "".join(shlex.join(job.words) + "\n" for job in turns).encode())
        words = ["hydra/sweeper=listed", setting("hydra.sweeper.file", file), setting("hydra.sweep.dir", self.root)]
        return App("train", [*self._own(), "-m", *words, *self.launcher], typed=self.typed).run()

    def _own(self) -> list[str]:
        return [f"--config-dir={folder}" for folder in self.jobs.config_dirs]

    def done(self, jobs: Sequence[Job]) -> list[Job]:
        """Those of the jobs that are done."""
        return [job for job in jobs if is_done(read_result(self.root / job.folder), job.config.max_steps)]

    def place(self, out: Path | None) -> Path:
        """Folder of the table's files: beside the runs, or in `out`."""
        if out is None:
            return self.root / "tables" / self.table.name
        paper, _, name = self.table.name.partition("/")
        return out / paper / "results" / self.scale.name / name

    def analyse(self, name: str, runs: Sequence[Any], words: Sequence[str]) -> Analysed:
        """The facts and the arrays of an analysis of runs, which is computed unless it is there; Failure, whose reason
        has been printed, if it cannot be."""
        from diffusion_lab.analyses.base import read_arrays
        from diffusion_lab.cli.app import App
        from diffusion_lab.files import read_object
        from diffusion_lab.runs.analyses import DATA, FACTS

        words = [*words, *self.scale.analysis.get(name, ())]
        key = hashlib.sha256(" ".join([*(run.folder.name for run in runs), *words]).encode()).hexdigest()[:8]
        place = self.root / "analyses" / f"{name}-{key}"
        if place in self._analysed:
            return self._analysed[place]
        folders = ",".join(setting("run", run.folder).removeprefix("run=") for run in runs)
        arguments = [*self._own(), f"analysis={name}", f"run=[{folders}]", setting("outdir", place), *words]
        with contextlib.redirect_stdout(io.StringIO()):
            code = App("analyze", arguments, typed=["analyze", *arguments]).run()
        if code:
            raise Failure(f"`diffusion-lab {shlex.join(['analyze', *arguments])}` ended with exit code {code}")
        self._analysed[place] = read_object(place / FACTS) or {}, read_arrays(place / DATA) or {}
        return self._analysed[place]
