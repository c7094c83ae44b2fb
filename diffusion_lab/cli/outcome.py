"""What `train` says of a run: which one it is before it starts, and its result at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from diffusion_lab.cli.config import beside_method, choices_of, method_name
from diffusion_lab.cli.options.defaults import overruled
from diffusion_lab.progress import duration
from diffusion_lab.runs.names import metric_key
from diffusion_lab.runs.shell_commands import command, setting

if TYPE_CHECKING:
    from diffusion_lab.runs.run import Run

MINUS = "\N{MINUS SIGN}"
_TEMPORARY: ContextVar[Path | None] = ContextVar("temporary", default=None)


@contextmanager
def temporary(folder: Path) -> Iterator[None]:
    """Inside, nothing that is said sends a person to a run in this folder, which will be removed."""
    token = _TEMPORARY.set(folder)
    try:
        yield
    finally:
        _TEMPORARY.reset(token)


def opening(cfg: DictConfig, folder: Path) -> str:
    """`digits · unet_tiny · uniform · seed 0 -> runs/digits-uniform-s0-1a2b3c4d`."""
    choices = choices_of(cfg)
    parts = [choices.get("dataset"), choices.get("network"), method_name(cfg), *beside_method(cfg)]
    return " · ".join([*filter(None, parts), f"seed {cfg.get('seed')}"]) + f" -> {from_here(folder)}"


def overruled_words(hydra: Any) -> str:
    """What an experiment sets in place of the method's own parts, and what to type for these; "" for nothing. `hydra`:
    Hydra's node of the job."""
    choices = hydra.runtime.choices
    if not (choices.get("experiment") and choices.get("method")):
        return ""
    found = overruled(hydra)
    if not found:
        return ""
    taken, stated = (" ".join(f"{group}={pair[which]}" for group, pair in found.items()) for which in (0, 1))
    return (
        f"experiment={choices['experiment']} sets {taken}, where method={choices['method']} has {stated}; type "
        f"{stated} to train the method as it states itself"
    )


def outcome(run: Run) -> list[str]:
    """Lines: metrics with the change since the evaluation before, validation loss, time, samples, the next command."""
    shown = [text for name in ("val/loss", *run.metric_names) if (text := _value(run, name))]
    lines = [f"done: step {run.step}" + (f", {duration(run.seconds)}" if run.seconds is not None else "")]
    width = max((len(name) for name, _ in shown), default=0)
    lines += [f"  {name:<{width}}  {text}" for name, text in shown]
    if _is_temporary(run.folder):
        return lines
    if grids := run.samples():
        lines.append(f"samples: {from_here(grids[max(grids)])}")
    return [*lines, f"next: {command('report', from_here(run.folder))}"]


def nothing_to_do(folder: Path, step: int, changes: str = "") -> str:
    """That a run is done, and how it is given more steps; or in what its data have changed since."""
    said = f"nothing to do: {from_here(folder)} is done at step {step}"
    if _is_temporary(folder):
        return said
    if changes:
        return f"{said}, with other data than there are now: {changes}; anew=true trains with these from step 0"
    return f"{said}; for more steps, e.g. twice as many: {longer(folder, 2 * max(step, 1))}"


def longer(folder: Path, steps: int) -> str:
    """The command that gives a run more steps."""
    return command("train", setting("resume", from_here(folder)), f"max_steps={steps}")


def from_here(path: Path) -> Path | str:
    """The path as a person in the working folder would type it."""
    if _is_temporary(path):
        return "a temporary folder"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _is_temporary(path: Path) -> bool:
    folder = _TEMPORARY.get()
    return folder is not None and path.is_relative_to(folder)


def _value(run: Run, name: str) -> tuple[str, str] | None:
    """Name and last value with its change; None if it was never measured."""
    last = run.last(name)
    if last is None:
        return (name, f"not finite (at step {run.step_of_last(name)})") if run.is_not_finite(name) else None
    curve = run.curve(metric_key(name))
    remarks, step = [], run.step_of_last(name)
    if ends := run.interval(name):
        remarks.append(f"95 % interval {ends[0]:.3g} to {ends[1]:.3g}")
    if step not in (None, run.step):  # it was evaluated before the run went on
        remarks.append(f"at step {step}")
    if len(curve.values) > 1:
        change = f"{last - float(curve.values[-2]):+.2g}".replace("-", MINUS)
        remarks.append(f"{change} since step {curve.steps[-2]}")
    return name, f"{last:.4g}" + (f"  ({', '.join(remarks)})" if remarks else "")
