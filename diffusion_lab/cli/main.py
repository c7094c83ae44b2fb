"""`diffusion-lab COMMAND ...`: select the command, run it, and turn errors into one sentence and an exit code.

`train`, `evaluate`, `sample`, `analyze`, `encode` and `export` are Hydra applications; the others parse their own
arguments. Heavy packages are imported only when a command starts.

Lightning starts the other processes of a distributed run by executing `sys.argv` again. The command's name is therefore
removed from `sys.argv` only while Hydra parses it, and restored before the task runs.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
from pathlib import Path

from diffusion_lab.cache_folder import home_folder
from diffusion_lab.cli import help as help_text
from diffusion_lab.cli.command_line import KEYED, PLACED, check_words, run_folders_named
from diffusion_lab.cli.conf_folder import conf_dir, config_dirs
from diffusion_lab.cli.errors import EXIT_FAILED, ConfigError, InvalidConfig, nearest, refuse
from diffusion_lab.cli.own_yaml import check_encoding
from diffusion_lab.cli.resource_errors import full_disk, no_access, no_memory
from diffusion_lab.cli.standard_streams import replace_what_cannot_be_encoded, survive_closed_output
from diffusion_lab.cli.targets import beside, importable
from diffusion_lab.matplotlibrc import ignore_working_folder
from diffusion_lab.printable import escaped_output
from diffusion_lab.progress import status

HYDRA_COMMANDS = ("train", "evaluate", "sample", "analyze", "encode", "export")
OF_TRAIN = ("plan", "race")  # commands whose settings are those of `train`
WATCHED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH")  # set by tools that write their result in the C library's exit
RUN_READERS = {*KEYED, *PLACED} - {"show"}  # show also composes


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Without `argv` it is that of the process, which ends with it."""
    survive_closed_output()
    replace_what_cannot_be_encoded()
    home_folder()
    ignore_working_folder()
    with escaped_output():
        code = _run(list(sys.argv[1:] if argv is None else argv))
    return leave(code) if argv is None else code


def _run(words: list[str]) -> int:
    if words and words[0] in ("-sc", "--shell-completion"):
        return _complete(words)
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text.top(), end="")
        return 0
    if words[0] == "--version":
        from diffusion_lab import __version__

        print(f"diffusion-lab {__version__}")
        return 0
    command, rest = words[0], words[1:]
    status("starting")
    if command not in help_text.COMMANDS:
        choices = ", ".join(help_text.COMMANDS)
        hint = nearest(command, help_text.COMMANDS)
        return refuse(f"command={command} must be one of {choices}{hint}")
    try:
        check_words(rest)
        rest = run_folders_named(command, rest)
        check_encoding(rest)
    except ConfigError as error:
        return refuse(error)
    if _own_classes(command, rest) and "" not in sys.path and os.getcwd() not in sys.path:
        # As `python -m` does, so that a yaml can name a class in the working folder; last, so that it shadows nothing.
        sys.path.append(os.getcwd())
    importable(beside(config_dirs(rest)))
    if command not in HYDRA_COMMANDS:
        try:
            return importlib.import_module(f"diffusion_lab.cli.commands.{command}").main(rest)
        except SystemExit as end:
            if isinstance(end.code, str):  # not argparse, which has printed the help or the error
                raise
            return end.code or 0
        except (ConfigError, InvalidConfig) as error:
            return refuse(error)
        except (OSError, MemoryError) as error:
            if why := no_access(error):
                return refuse(f"{why}; change its permissions, or use another place")
            why = full_disk(error) or no_memory(error)
            if why is None:
                raise
            print(f"failed: {why}; free some space or memory, then repeat the command", file=sys.stderr)
            return EXIT_FAILED
    if {"-h", "--help"}.intersection(rest):
        print(help_text.command(command, [conf_dir(), *map(Path, config_dirs(rest))]), end="")
        return 0
    from diffusion_lab.cli.app import App

    return App(command, rest, typed=[command, *rest]).run()


def _own_classes(command: str, rest: list[str]) -> bool:
    """Whether modules in the working folder may be imported. A command that reads a run may be started in an untrusted
    folder, so it needs --config-dir or `allow`."""
    shows_a_run = command == "show" and any(os.path.isdir(word) for word in rest)
    reads_a_run = command in RUN_READERS or shows_a_run or any(word.startswith("resume=") for word in rest)
    return not reads_a_run or bool(config_dirs(rest)) or any(word.startswith("allow=") for word in rest)


def _complete(words: list[str]) -> int:
    """Hydra's completion calls `diffusion-lab -sc query=SHELL`; the command is in COMP_LINE."""
    program, *line = os.environ.get("COMP_LINE", "diffusion-lab train ").split(" ")
    if any(word.startswith("query=") for word in words):
        from diffusion_lab.cli.completion import suggestions

        if (found := suggestions(line, (*HYDRA_COMMANDS, *OF_TRAIN))) is not None:
            print(" ".join(found))
            return 0
        os.environ["COMP_LINE"] = " ".join([program, *line[1:]])
    from diffusion_lab.cli.app import App

    return App("train" if line[0] in OF_TRAIN else line[0], words, typed=words).run()


def leave(code: int) -> int:
    """End the process with an exit code, as Python does up to its last step: wait for the threads that are no daemons,
    call the functions of `atexit` (W&B, logging, temporary folders, worker processes), and write out the standard
    streams. Then end, where Python would first clear all modules: after an import of torch and Lightning 2 s of CPU, in
    which nothing is written.

    Returns the code instead, for Python to end as usual, if somebody wants to see the end: a profiler, a debugger, a
    coverage tool, `python -i`, `python -X dev` or a tool in `WATCHED`.
    """
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    tools = monitoring is not None and any(map(monitoring.get_tool, range(6)))
    flags = sys.flags.interactive or sys.flags.dev_mode
    if sys.gettrace() or sys.getprofile() or tools or flags:
        return code
    if any(map(os.environ.get, WATCHED)):
        return code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # Python has an exit code for it
        return code
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
