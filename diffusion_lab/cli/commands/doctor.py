"""The command: options, the order of the checks, what is printed, the exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from diffusion_lab.cli.command_line import parsed
from diffusion_lab.cli.doctor.check import CPU, DIFFERS, IMPOSSIBLE, OK, Check, Finding, checks_of
from diffusion_lab.cli.doctor.checks import generation, machine, resume, training
from diffusion_lab.cli.doctor.checks.machine import devices
from diffusion_lab.cli.doctor.report import markdown
from diffusion_lab.cli.doctor.workers import examined
from diffusion_lab.cli.errors import EXIT_FAILED, ConfigError, StoppedBySignal, nearest
from diffusion_lab.files import write_whole
from diffusion_lab.printable import one_line
from diffusion_lab.progress import duration, status

OF_THE_MACHINE = (machine,)
OF_A_DEVICE = (training, generation, resume)
WIDTH = 26  # of the names
INTRODUCTION = "What this machine has, and what holds on it: about a minute without a GPU, three with one."


def main(argv: list[str]) -> int:
    """Run the checks; returns 0 if nothing differs, 1 if something does, 2 for wrong options."""
    options = parsed(_parser(), argv)
    chosen, report = _chosen(options.only), _report_file(options.report)
    output = Output()
    before = signal.signal(signal.SIGTERM, _stop)  # as Ctrl-C, so that the folder of the runs is removed
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as work:
            _examine(Path(work), chosen, options.device, output)
    except (KeyboardInterrupt, StoppedBySignal) as stop:
        number = getattr(stop, "signal_number", 2)
        status("")
        print(f"stopped by signal {number}", file=sys.stderr)
        return 128 + number
    finally:
        signal.signal(signal.SIGTERM, before)
    output.end()
    if report is not None:
        write_whole(report, markdown(output.lines).encode())
        print(f"{report} holds these lines without names, paths and keys")
    return EXIT_FAILED if output.counts[DIFFERS] else 0


def _stop(number: int, frame: object) -> None:
    raise StoppedBySignal(number)


class Output:
    """What is printed: a line per check, which begins with its name when the check begins."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self._start, self._named = time.monotonic(), ""
        self.say(INTRODUCTION)

    def say(self, line: str) -> None:
        """A line that is none of a check."""
        self.lines.append(line)
        print(line, flush=True)

    def title(self, text: str) -> None:
        """Above the checks of a device."""
        status("")
        self.say("")
        self.say(text)

    def waiting(self, check: Check, seconds: float) -> None:
        """A check is at work: on a terminal its time goes on, elsewhere its name stands there."""
        if sys.stderr.isatty():
            status(f"  {check.name:<{WIDTH}}{duration(seconds)}")
        elif self._named != str(check):
            self._named = str(check)
            print(_begin(check), end="", flush=True)

    def found(self, check: Check, finding: Finding) -> None:
        """The line of a check."""
        status("")
        line = _begin(check) + _rest(finding)
        self.lines.append(line)
        self.counts[finding.status] += 1
        print(line.removeprefix(_begin(check)) if self._named == str(check) else line, flush=True)

    def end(self) -> None:
        """The last line: how many of each kind there are."""
        words = {OK: OK, DIFFERS: "differ", IMPOSSIBLE: IMPOSSIBLE}
        counts = ", ".join(f"{self.counts[kind]} {word}" for kind, word in words.items())
        self.say("")
        self.say(f"{counts}; {duration(time.monotonic() - self._start)}")


def _begin(check: Check) -> str:
    return f"  {check.name:<{WIDTH}}"


def _rest(finding: Finding) -> str:
    """ "words  ok", "differs (words)", "not possible here (words)"; in one line of printable characters."""
    words = one_line(" ".join(finding.words.split()))
    if finding.status == OK:
        return f"{words}  {OK}" if words else OK
    return f"{finding.status} ({words})"


def _examine(work: Path, chosen: set[str], device: str | None, output: Output) -> None:
    """Print the findings of the machine and of each device; ConfigError if it does not have the device."""
    sections = {"this machine": _checks(OF_THE_MACHINE, CPU, chosen and {*chosen, "accelerators"})}
    if device in (None, CPU):
        sections[CPU] = _checks(OF_A_DEVICE, CPU, chosen)
    _run(sections, work, 1, output)
    found = devices(work)
    if device not in (None, CPU, *found):
        there = ", ".join([CPU, *found])
        raise ConfigError(f"--device={device} must be one of {there}{nearest(str(device), [CPU, *found])}")
    seen = set[str]()
    for name, words in found.items():
        if device in (None, name):
            # Of several GPUs of one kind the first has all checks, and the others one.
            wanted = chosen or ({"float32"} if words in seen else set())
            alike = sum(one.partition(":")[0] == name.partition(":")[0] for one in found)
            _run({f"{name}, {words}": _checks(OF_A_DEVICE, name, wanted)}, work, alike, output)
            seen.add(words)


def _run(sections: dict[str, list[Check]], work: Path, alike: int, output: Output) -> None:
    """Run the checks of one device, under a title each; `alike` is the number of devices of its kind."""
    titles = {checks[0]: title for title, checks in sections.items() if checks}
    checks = [check for several in sections.values() for check in several]

    def begun(check: Check, seconds: float) -> None:
        if check in titles:
            output.title(titles.pop(check))
        output.waiting(check, seconds)

    for check, finding in examined(checks, work, alike, begun):
        output.found(check, finding)


def _checks(modules: Sequence[ModuleType], device: str, chosen: set[str]) -> list[Check]:
    """The chosen checks of some modules; all if none is named."""
    found = [check for module in modules for check in checks_of(module, device)]
    return [check for check in found if not chosen or check.function in chosen]


def _described(modules: Sequence[ModuleType]) -> Iterator[str]:
    """Each check's name and what it claims, a line each, from its docstring."""
    for check in _checks(modules, CPU, set()):
        yield f"  {check.function:<{WIDTH}}{check.claim}"


def _chosen(only: str | None) -> set[str]:
    """The functions of the checks that `--only` names; empty for all."""
    names = {check.function for check in _checks((*OF_THE_MACHINE, *OF_A_DEVICE), CPU, set())}
    words = [word.strip().replace(" ", "_") for word in (only or "").split(",") if word.strip()]
    for word in words:
        if word not in names:
            raise ConfigError(f"--only={word} must be a check{nearest(word, names)}; `doctor --help` lists them")
    return set(words)


def _report_file(name: str | None) -> Path | None:
    """The file of the report; ConfigError if it cannot be written to."""
    if name is None:
        return None
    path = Path(name)
    try:
        if not path.exists():
            write_whole(path, b"")
            path.unlink()
        elif not path.is_file() or not os.access(path, os.W_OK):
            raise OSError(0, "it is none")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"--report={name} must be a file that can be written to: {why}") from error
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab doctor",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Versions, devices and what is around them; then the project's claims on this machine: thirty\n"
        "steps in every precision, layout and number of processes beside float32 on the CPU, a kill and\n"
        "resume, samples and features. Each line ends in ok, differs (by how much) or not possible here\n"
        "(why). Exit codes: 0 nothing differs, 1 something does, 2 wrong options.",
        epilog="\n".join(
            ["of the machine:", *_described(OF_THE_MACHINE), "", "of each device:", *_described(OF_A_DEVICE)]
        ),
    )
    parser.add_argument("--report", metavar="FILE", help="write the lines, without names, paths and keys, as Markdown")
    parser.add_argument("--only", metavar="NAME,..", help="these checks, e.g. bfloat16,kill_and_resume")
    parser.add_argument("--device", metavar="NAME", help="cpu or e.g. cuda:0 alone; default: all that are there")
    return parser
