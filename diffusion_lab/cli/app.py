"""One Hydra command from its arguments to its exit code.

`App` is the task function that Hydra, or the launcher in a child process, calls with a composed configuration. In a
single run it does not raise, because Hydra would print its own error page; `run` reports the error instead. Under
another launcher it raises, because that launcher counts failures.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra._internal.hydra import Hydra  # Hydra offers no other way to say that the mode is known
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from diffusion_lab.cli.checks.run_arguments import check_run_arguments
from diffusion_lab.cli.checks.typed_keys import with_keys_to_type
from diffusion_lab.cli.command_line import KEYED, check_options, lists, options_first, resume_arguments
from diffusion_lab.cli.compose_errors import explain, is_compose_error
from diffusion_lab.cli.conf_folder import config_dirs
from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.errors import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_LOCKED,
    ConfigError,
    InvalidConfig,
    JobsFailed,
    StoppedBySignal,
    at,
    describe,
    refuse,
)
from diffusion_lab.cli.hydra_version import behaviour
from diffusion_lab.cli.imports import importing
from diffusion_lab.cli.moved_images import where_now
from diffusion_lab.cli.outcome import opening, overruled_words
from diffusion_lab.cli.output_folders import held_runs, unmade, write_hydra_folder
from diffusion_lab.cli.own_code import part_of
from diffusion_lab.cli.processes import end_with_the_first, is_first, srun_tasks, world_size
from diffusion_lab.cli.recorded_words import with_recorded_words, words_for_train
from diffusion_lab.cli.resource_errors import full_disk, no_access, no_memory
from diffusion_lab.cli.targets import beside, importable
from diffusion_lab.failure import Failure, MissingData, OtherData, WrongResult
from diffusion_lab.files_inside import NotInside
from diffusion_lab.held_folder import FolderMoved
from diffusion_lab.printable import logged_once, one_line, printable
from diffusion_lab.progress import status
from diffusion_lab.runs.folder import RunLocked, forget_run, forget_sweep, is_new, open_log
from diffusion_lab.runs.names import LOG
from diffusion_lab.runs.record import read_result
from diffusion_lab.runs.shell_commands import key_of

if TYPE_CHECKING:
    from diffusion_lab.cli.run_parts import RunParts

MAY_SET_THE_MODE = ("experiment", "hydra")  # groups and keys
RUN_FOLDER = "hydra.run.dir"  # which does not, and is that of a single run


class App:
    """A Hydra command.

    Args:
        command: one of `main.HYDRA_COMMANDS`; the task is `run(cfg)` of the module of that name, and the configuration
            is conf/<command>.yaml.
        arguments: words after the command.
        typed: words after `diffusion-lab`.
    """

    def __init__(self, command: str, arguments: list[str], typed: list[str]) -> None:
        self.command = command
        self.arguments = list(arguments)
        self.typed = list(typed)
        self.checked = False  # True in a job of a sweep: the launcher checks all jobs before job 0
        self.sweep_folder: Path | None = None  # set by the launcher
        self.searching: str | None = None  # the sweeper that needs a value of each job; also set by the launcher
        self.answer: Callable[[list[DictConfig], list[Path]], None] | None = None  # of a dry run of a sweep; its cost
        self.error: BaseException | None = None
        self.own = ""  # the part of the user's own that it comes from
        self.called = False  # whether Hydra has called the task; it makes the run folder before
        self._debug = bool(os.environ.get("DIFFUSION_LAB_TRACEBACK"))
        self.output: Path | None = None  # the run folder, once it is known
        self.made = False  # whether it was empty before this process, or not there
        self.cfg = DictConfig({})  # once it is composed
        self._passed: set[str] = set()  # valid configurations, without their seeds

    def run(self) -> int:
        """Compose and run; prints one sentence per error to standard error and returns the exit code."""
        return self.code_of(self.attempt())

    def code_of(self, error: BaseException | None) -> int:
        """Print what an error was; returns the exit code, 0 for none."""
        if isinstance(error, SystemExit):  # argparse, `--cfg` and the like have printed their message
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        return self._report(error) if error is not None else 0

    def attempt(self) -> BaseException | None:
        """Compose and run; returns what went wrong, which is in `error` as well."""
        argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would otherwise print
        end_with_the_first()
        try:
            check_options(self.arguments, get_args_parser())
            train = self.command == "train"
            words = words_for_train(self.arguments) if train else with_recorded_words(self.command, self.arguments)
            self.arguments = resume_arguments(words) if train else words
            importable(beside(config_dirs(self.arguments)))
            if self.command == "analyze":
                self.arguments = lists(self.arguments, ("run", "checkpoint"))
            register_resolvers()
            sys.argv = [argv[0], *options_first(self.arguments)]
            with composed_once(self.arguments):
                hydra.main(**behaviour(), config_path=str(conf_dir()), config_name=self.command)(self)()
        except BaseException as error:  # the one place where every error becomes a sentence
            self.error = error
        finally:
            sys.argv = argv
            os.environ.pop("HYDRA_FULL_ERROR")
            if full_error is not None:
                os.environ["HYDRA_FULL_ERROR"] = full_error
        return self.error

    def __call__(self, cfg: DictConfig) -> Any:
        """The task: check the configuration, then run the command."""
        self.called, self.cfg = True, cfg
        sys.argv = [sys.argv[0], *self.typed]
        hydra_cfg = HydraConfig.get()
        if hydra_cfg.mode == RunMode.MULTIRUN:  # under a launcher that sets nothing
            from diffusion_lab.cli.checks.sweeper import searching

            self.searching = searching(hydra_cfg)
        # The output_dir of the other commands is the working folder.
        self.output = Path(hydra_cfg.runtime.output_dir) if self.command == "train" else None
        self.made = self.output is not None and is_new(self.output)
        self._debug = self._debug or bool(hydra_cfg.runtime.choices.get("debug"))
        try:
            with logged_once() if cfg.get("dry_run") else nullcontext():
                return self._task(cfg, hydra_cfg)
        except BaseException as error:
            self.error, self.own = error, part_of(error, cfg)
            if hydra_cfg.mode == RunMode.MULTIRUN:
                raise
            return None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled in another process by another launcher; the yaml files need resolvers and the user's modules."""
        register_resolvers()
        self.__dict__.update(state)
        importable(beside(config_dirs(self.arguments)))

    def check(self, cfg: DictConfig, here: bool = True) -> list[ConfigError]:
        """All errors of a configuration that can be found without training; `here`: the run is on this machine."""
        return self._examine(cfg, here)[0]

    def _examine(self, cfg: DictConfig, here: bool = True) -> tuple[list[ConfigError], RunParts | None]:
        from diffusion_lab.cli.validate import check_command, examine

        folders = config_dirs(self.arguments)
        with importing():  # the first check imports the class of each part
            if self.command in KEYED:
                check_run_arguments(self.command, cfg)  # before torch is imported
            if self.command != "train":
                return check_command(self.command, cfg, folders), None
            return examine(cfg, folders, self._passed, here, self.searching)

    def _task(self, cfg: DictConfig, hydra_cfg: Any) -> Any:
        first, parts = is_first(), None  # only the process of rank 0 checks
        if first and not self.checked:
            words = opening(cfg, self.output) if self.output is not None and not cfg.dry_run else ""
            status(words)  # during the imports, which take seconds
            errors, parts = self._examine(cfg)
            if errors:
                raise InvalidConfig(errors)
            status("")
            for line in filter(None, (words, overruled_words(hydra_cfg) if self.output is not None else "")):
                print(line, flush=True)
            _check_processes(cfg, hydra_cfg.mode)
        gc.enable()  # off since the composition
        if self.output is not None and cfg.dry_run:
            from diffusion_lab.cli.dry_run import dry_run

            dry_run([cfg], [self.output])
            self._forget()
            return None
        if first and self.output is not None:
            write_hydra_folder(self.output, cfg, hydra_cfg)
        with importing():
            command = importlib.import_module(f"diffusion_lab.cli.commands.{self.command}")
        if self.command == "train":  # holds its folder with its lock
            return command.run(cfg) if parts is None else command.run(cfg, parts)
        with held_runs(cfg):
            return command.run(cfg)

    def _report(self, error: BaseException) -> int:
        """Print what happened to standard error; returns the exit code."""
        status("")
        if self._debug and not isinstance(error, JobsFailed):
            traceback.print_exception(error)
        if isinstance(error, JobsFailed):  # the launcher has listed them
            return EXIT_FAILED
        if isinstance(error, StoppedBySignal | KeyboardInterrupt):
            number = error.signal_number if isinstance(error, StoppedBySignal) else 2
            _say(f"stopped by signal {number}; the same command {self._when_repeated}")
            return 128 + number
        if isinstance(error, RunLocked):
            _say(f"in use: {error}")
            return EXIT_LOCKED
        part = f"{self.own}: " if self.own and isinstance(error, WrongResult) else ""
        said = f"{part}{error}" if isinstance(error, Failure) else self._exhausted(error)
        if said is not None:
            where = "" if isinstance(error, FolderMoved) or self.output is None else f"; folder {self.output}"
            _say(f"failed: {said}{where}")
            return EXIT_FAILED
        if errors := self.faults(error):
            for line in errors:
                refuse(line)
            return EXIT_CONFIG
        return self._report_failure(error)

    @property
    def _when_repeated(self) -> str:
        module = sys.modules.get(f"diffusion_lab.cli.commands.{self.command}")  # absent if it was not imported yet
        return getattr(module, "WHEN_REPEATED", "starts again")

    def _exhausted(self, error: BaseException) -> str | None:
        """The sentence for an error whose reason is the disk, the memory or a permission of the machine; else None."""
        if why := full_disk(error):
            return f"a file cannot be written ({why}); free some space, then the same command {self._when_repeated}"
        if why := no_memory(error):
            return f"the memory of this machine does not suffice ({why}); use a smaller model or batch"
        why = no_access(error)
        return f"{why}; change its permissions, or use another place" if why else None

    def faults(self, error: BaseException) -> list[str]:
        """The configuration errors that an exception reports, one sentence each; empty for any other exception. What
        was made for a run that cannot be is removed."""
        errors = [with_keys_to_type(self.cfg, fault) for fault in self._config_errors(error)]
        if errors:
            self._forget()
        return errors

    def _config_errors(self, error: BaseException) -> list[str]:
        if isinstance(error, MissingData):
            error = at("", error)
        if isinstance(error, InvalidConfig | ConfigError):
            faults = error.errors if isinstance(error, InvalidConfig) else [error]
            return [where_now(fault, self.arguments) for fault in faults]
        if isinstance(error, OtherData | NotInside):
            return [str(error)]
        if isinstance(error.__cause__, ConfigError):  # Hydra wraps what the launcher's constructor raises
            return [str(error.__cause__)]
        if isinstance(error, OSError) and error.filename is not None and self.command == "train" and not self.called:
            return [unmade(error, self.arguments)]
        return [explain(error, self.command, self.arguments)] if is_compose_error(error) else []

    def _forget(self) -> None:
        """Remove what was made for a run, or a sweep, that does not begin."""
        root = Path((self.cfg.get("paths") or {}).get("root") or "runs")
        if self.output is not None and self.made and not self.checked:
            forget_run(self.output, root)
        if self.sweep_folder is not None:
            forget_sweep(self.sweep_folder, root)

    def _report_failure(self, error: BaseException) -> int:
        lines = traceback.format_exception(error)
        own = self.own
        where = f"correct {own}" if own else "this is a fault of diffusion-lab, not of the configuration"
        if self.output is not None and self.output.is_dir():  # it is not made again if it was moved or removed
            done = read_result(self.output)
            mine = (done.get("error") or {}).get("message") == str(error)
            step = f" after step {done.get('step')}" if own and mine else ""
            where = f"{f'in {own}{step}; ' if own else ''}folder {self.output}, traceback in {self.output / LOG}"
            try:
                with open_log(self.output) as file:
                    file.writelines(map(printable, lines))
            except OSError as full:  # a full disk must not hide the error that is being reported
                where = f"folder {self.output}, whose {LOG} could not be written ({full})"
        if not self._debug:
            print("".join(lines[-4:]).rstrip(), file=sys.stderr)
        _say(f"failed: {describe(error)}; {where}")
        return EXIT_FAILED


def _check_processes(cfg: DictConfig, mode: RunMode) -> None:
    """The processes of the run are started by srun, as many as the run needs, or by Lightning.

    Under a launcher that runs jobs in its own process, those that Lightning starts would repeat the whole sweep.
    """
    if "trainer" not in cfg or world_size(cfg) == 1:
        return
    devices, nodes, tasks = cfg.trainer.devices, cfg.trainer.get("num_nodes", 1), srun_tasks()
    if tasks and tasks != world_size(cfg):
        raise ConfigError(
            f"trainer.devices={devices} on trainer.num_nodes={nodes} must be as many processes as the {tasks} tasks of "
            f"this SLURM job; use `srun --nodes={nodes} --ntasks-per-node={devices}`, or unset SLURM_NTASKS on one node"
        )
    if mode == RunMode.MULTIRUN and not tasks:
        raise ConfigError(
            f"trainer.devices={devices} must be 1 under this launcher; use hydra/launcher=diffusion_lab, or on a "
            "cluster hydra/launcher=diffusion_lab_slurm"
        )


def _say(line: str) -> None:
    print(one_line(line), file=sys.stderr, flush=True)


@contextmanager
def composed_once(words: list[str]) -> Iterator[None]:
    """Leave out Hydra's first composition and the garbage collector if `words` are those of a single run.

    Hydra composes a configuration first to learn `hydra.mode` and again to run it. Among the package's yaml files only
    experiments set the mode, so where the words choose no experiment and no folder of the user's, the first composition
    would find none. Measured on `diffusion-lab train max_steps=abc`: 0.11 of 0.70 s of CPU, and 0.08 s for the
    collector, which traverses what a composition makes and finds no garbage.

    Whoever trains inside must turn the collector on again (`gc.enable`).
    """
    if not is_single_run(words):
        yield
        return
    composing = Hydra.get_mode
    Hydra.get_mode = lambda *_, **__: None  # as without `hydra.mode` in the configuration
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        Hydra.get_mode = composing


def is_single_run(words: list[str]) -> bool:
    """Whether the words are settings alone, none of which can set `hydra.mode`."""
    return not any(key.startswith(("-", *MAY_SET_THE_MODE)) for key in {*map(key_of, words)} - {RUN_FOLDER})
