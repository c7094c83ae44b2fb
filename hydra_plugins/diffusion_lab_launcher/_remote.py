"""A job of a sweep on another machine: the pickled task and its outcome."""

from __future__ import annotations

from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from hydra.types import HydraContext, TaskFunction

from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.errors import EXIT_LOCKED
from diffusion_lab.cli.processes import is_first
from diffusion_lab.runs.record import as_error, read_result, write_failure
from hydra_plugins.diffusion_lab_launcher._child import work, write_to_log
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome
from hydra_plugins.diffusion_lab_launcher._pool import ended, first_line


class Remote:
    """Runs a job in the process that unpickles this object.

    Args:
        task, context: as Hydra gives them to a launcher.
    """

    def __init__(self, task: TaskFunction, context: HydraContext) -> None:
        self.task, self.context, self.singletons = task, context, Singleton.get_state()

    def __call__(self, job: Job) -> tuple[int, dict[str, Any]]:
        """The exit code of the job as a command, and {"value": ...} or {"error": ...}.

        Raises:
            SystemExit: submitit has requeued the job.
        """
        Singleton.set_state(self.singletons)
        setup_globals()
        register_resolvers()
        if is_first():
            write_to_log(job)
        result = work(job, self.task, self.context)
        error = getattr(self.task, "error", None)
        if isinstance(error, SystemExit):
            raise error
        return result

    def checkpoint(self, job: Job) -> Any:
        """The task to requeue: the same, because the state is in the run folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job)


def outcome_of(job: Job, handle: Any) -> Outcome:
    """The outcome of a job that has ended according to submitit."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        code, sent = handle.results()[0]
    except (FailedJobError, UncompletedJobError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        write_failure(job.folder, as_error(type(error).__name__, lines[-1], str(error)))
        return Outcome(job, "failed", f"{lines[-1]}; see {handle.paths.stderr}")
    if code == 0:
        return ended(job, sent)
    if code == EXIT_LOCKED:
        return Outcome(job, "locked", "another process is training it")
    error = sent["error"]
    written = (read_result(job.folder).get("error") or {}).get("message")
    if written != error["message"] and error["type"] != "StoppedBySignal":
        write_failure(job.folder, error)
    return Outcome(job, "interrupted" if error["type"] == "StoppedBySignal" else "failed", first_line(error))
