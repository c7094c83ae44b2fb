"""`diffusion-lab train`: lock the run folder, find its newest checkpoint and train from there."""

from __future__ import annotations

import functools
import logging
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig, OmegaConf

from diffusion_lab import __version__
from diffusion_lab.cli.command_line import command_line
from diffusion_lab.cli.config import choices_of, config_folders, config_hash, group_hash, method_name, plain, run_name
from diffusion_lab.cli.errors import ConfigError, StoppedBySignal, describe
from diffusion_lab.cli.outcome import from_here, longer, nothing_to_do, outcome
from diffusion_lab.cli.processes import is_first, on_cpu, say, wait_for_the_first, world_size
from diffusion_lab.cli.resource_errors import no_memory
from diffusion_lab.cli.same_run import check_same_run, run_with_common_latents, shorter_run
from diffusion_lab.failure import Failure, OtherData
from diffusion_lab.files import read_object
from diffusion_lab.held_folder import FolderMoved, current
from diffusion_lab.progress import waiting
from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.folder import lock
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.record import ENDS, is_done, is_pruned, read_result

if TYPE_CHECKING:
    from diffusion_lab.cli.run_parts import RunParts
    from diffusion_lab.training import RunModule

WHEN_REPEATED = "goes on from the last checkpoint"  # the same command, after a signal
LIBRARIES = ("torch", "lightning", "hydra-core", "omegaconf", "torch-fidelity", "numpy")


class OutOfMemory(Failure):
    """The device or the machine has not enough memory."""


def run(cfg: DictConfig, parts: RunParts | None = None) -> float | None:
    """Train one run to `max_steps`; a finished run returns at once, an unfinished one continues.

    Args:
        cfg: the checked configuration.
        parts: the parts that were built to check it; by default they are built here.

    Returns:
        The last value of `cfg.objective` (a metric's name) for a sweeper, or None.

    Raises:
        InvalidConfig: the folder holds a run of another configuration.
        OtherData: its data have changed since it was trained with them.
        RunLocked: another process trains there.
        FolderMoved: the folder was moved or removed meanwhile.
        StoppedBySignal: a signal stopped it; a checkpoint is written.

    A run that `callbacks=pruned` ends early returns like a finished one.
    """
    folder = Path(cfg.paths.run_dir)
    with lock(folder) if is_first() else nullcontext():  # the other processes share the lock of the first
        result = read_result(folder)
        if is_done(result, cfg.max_steps) and not cfg.get("anew"):
            say(nothing_to_do(folder, result["step"], _other_data(folder, parts)))
        else:
            _fit(cfg, folder, parts)
            if not is_first():  # the first one writes the result, perhaps later than this
                return None
            place = current(folder)  # of the finished run, if the folder was moved
            result = read_result(place)
            if is_done(result, cfg.max_steps):
                say(*outcome(read_run(place)))
            elif is_pruned(result):
                cause = read_run(place).cause
                say(f"pruned at step {result['step']}: {cause}; without callbacks=pruned it goes on")
    if not (is_done(result, cfg.max_steps) or is_pruned(result)):
        raise RuntimeError(f"training ended before step {cfg.max_steps}; see {folder}")
    return result["metrics"].get(cfg.get("objective") or "")


def _other_data(folder: Path, parts: RunParts | None) -> str:
    """In what the data differ from those of a run that is done; empty if they do not, or cannot be compared."""
    from diffusion_lab.cli.same_data import data_changes

    with suppress(ConfigError, FileNotFoundError):
        return "" if parts is None else data_changes(folder, parts["dataset"])
    return ""


def _fit(cfg: DictConfig, folder: Path, parts: RunParts | None) -> None:
    import torch

    from diffusion_lab.cli.bfloat16 import faster_bfloat16, slow_bfloat16
    from diffusion_lab.cli.build import build_run
    from diffusion_lab.cli.compute import keep_freed_memory
    from diffusion_lab.cli.init_from import load_start, source_of, with_start
    from diffusion_lab.cli.metric_files import with_metrics
    from diffusion_lab.cli.own_run import own_parts
    from diffusion_lab.cli.run_parts import RunParts
    from diffusion_lab.cli.same_data import check_same_data
    from diffusion_lab.cli.validate import trust_of
    from diffusion_lab.training import VerifiedCheckpointIO

    quiet_libraries()
    if cfg.get("threads"):
        torch.set_num_threads(cfg.threads)
    if on_cpu(cfg.trainer):
        keep_freed_memory()
    trust = trust_of(cfg, config_folders())
    complete = with_metrics(cfg)
    own = own_parts(complete, trust)  # before `anew` moves the record of a run that is resumed
    cfg, start, ends = _continued(cfg, folder)
    path = None if start is None else start[0]
    if warning := slow_bfloat16(cfg):
        say(warning)
    parts = parts or RunParts(complete if path is None else with_metrics(cfg), trust)
    if path is not None or cfg.get("resume") is not None:
        check_same_data(cfg, folder, parts["dataset"])
    initial = None
    if isinstance(cfg.get("init_from"), str):
        recorded, initial = source_of(cfg, parts)
        cfg = with_start(cfg, recorded)
    with memory_named(cfg, "to build the run"), waiting("building the run"):
        run = build_run(cfg, facts(cfg) | own | ({ENDS: ends} if ends else {}), parts=parts)
    cast(VerifiedCheckpointIO, run.trainer.strategy.checkpoint_io).read, start = start, None
    if path is None and (hint := faster_bfloat16(parts, run.module.network)):
        say(hint)
    if initial is not None:
        say("; ".join(filter(None, [f"starting from {cfg.init_from.source}", initial.sentence])))
        load_start(run.module, initial.loaded)
        initial = None  # as much memory as the weights
    with _ends_reported(run.module, path), memory_named(cfg):
        run.trainer.fit(run.module, datamodule=run.data, ckpt_path=path, weights_only=True)


def _continued(cfg: DictConfig, folder: Path) -> tuple[DictConfig, tuple[Path, dict[str, Any]] | None, list[Any]]:
    """The configuration with the recorded start of the run, the checkpoint that it continues with its content, and its
    former ends; the configuration itself and None for a new run."""
    from diffusion_lab.cli.init_from import recorded_start, with_start
    from diffusion_lab.cli.resume_checkpoint import find_resume_checkpoint, former_ends

    if (start := find_resume_checkpoint(cfg, folder)) is not None:
        path, content = start
        saved, record = content["callbacks"]["RunRecord"]["config"], read_object(folder / RECORD)
        check_same_run(cfg, saved, content["global_step"], record)
        say(f"continuing {from_here(folder)} from step {content['global_step']} ({path.name})")
        return with_start(cfg, recorded_start(saved)), start, former_ends(record, content, cfg.max_steps)
    if cfg.get("resume") is None and is_first() and (other := shorter_run(cfg, folder)) is not None:
        instead = longer(other, cfg.max_steps)
        say(f"{from_here(other)} is this run with fewer steps; to go on from its end instead: {instead}")
    if cfg.get("resume") is None and is_first() and (former := run_with_common_latents(cfg, folder)) is not None:
        say(
            f"{from_here(former)} is this run with metrics.seed=0, the latents of seed 0 for all runs, as in version "
            "0.1.0; add metrics.seed=0 to the command to go on with such runs: reports compare no values of both rules"
        )
    return cfg, None, []


@contextmanager
def _ends_reported(module: RunModule, path: Path | None) -> Iterator[None]:
    """Turn the ways in which training ends before its last step into what the command reports.

    Raises:
        FolderMoved: the folder was moved or removed meanwhile.
        StoppedBySignal: a signal stopped it; a checkpoint is written.
        ConfigError: the state of the checkpoint cannot be restored.
    """
    from diffusion_lab.callbacks import Interrupted, Pruned

    try:
        yield
    except FolderMoved:
        wait_for_the_first()
        raise
    except Interrupted as stop:
        forward_signal(stop.number)
        wait_for_the_first()
        raise StoppedBySignal(stop.number) from stop
    except Pruned:  # the result says so
        wait_for_the_first()
    except SystemExit as end:  # Lightning's answer to Ctrl-C, until `Checkpoint` listens
        if isinstance(end.__context__, KeyboardInterrupt):
            raise StoppedBySignal(signal.SIGINT) from end
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if not module.restoring or no_memory(error) or isinstance(error, ConfigError | Failure | OtherData):
            raise
        raise ConfigError(
            f"{path}: must hold the state of this run's parts, and it cannot be restored ({describe(error)}); use an "
            "earlier checkpoint, or add anew=true to start at step 0, which keeps these files beside"
        ) from error


@contextmanager
def memory_named(cfg: DictConfig, purpose: str = "") -> Iterator[None]:
    """Report exhausted memory in one sentence.

    Args:
        cfg: the configuration.
        purpose: what the memory does not suffice for; by default the images of the batch.

    Raises:
        OutOfMemory: the device or the machine is out of memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        why = no_memory(error)
        if why is None or isinstance(error, Failure):
            raise
        cure = "; use a smaller network, or a machine with more of it"
        sentence = f"the memory does not suffice {purpose}: {why}{cure}" if purpose else memory_sentence(cfg, error)
        raise OutOfMemory(sentence) from error


def memory_sentence(cfg: DictConfig, error: BaseException) -> str:
    """The message for exhausted memory, with what to change."""
    rows = cfg.batch_size // (world_size(cfg) * cfg.accumulate)
    fewer = f"images_per_device={max(1, rows // 2)}" if rows > 1 else "a smaller network, or trainer=fsdp"
    said = str(error).splitlines()[0] if str(error) else "an allocation failed"
    return (
        f"the memory does not suffice for {rows} images at a time on each device (images_per_device={rows}): {said}. "
        f"Use {fewer}, which leaves the batch of {cfg.batch_size} as it is; the same command then goes on from the "
        "last checkpoint"
    )


def forward_signal(number: int) -> None:
    """Call the signal handler that was installed before training, now that the checkpoint is written.

    submitit's handler for the signal that a cluster sends before it ends a job puts the job back into the queue and
    exits, so calling it earlier would lose the steps since the last checkpoint.
    """
    handler = signal.getsignal(number)
    if callable(handler) and handler is not signal.default_int_handler:
        handler(number, None)


def facts(cfg: DictConfig) -> dict[str, Any]:
    """The content of run.json before the run starts; plain values only.

    `labels` and `tags` are those of W&B, by which runs are grouped and selected. `seed_group` is the run's name without
    its seed, equal for runs that differ in the seed alone; the prefix of a tag distinguishes a paper from a method of
    the same name.
    """
    overrides, command = command_line()
    digest, group, name, method = config_hash(cfg), group_hash(cfg), run_name(cfg), method_name(cfg)
    options = {key: option for key, option in choices_of(cfg).items() if not key.startswith("hydra/")}
    preset = str(options.get("experiment") or "")
    tagged = {"paper": preset.rpartition("/")[0], "experiment": preset, "method": method}
    tagged |= {key: options.get(key) for key in ("dataset", "schedule", "scale")}
    source = OmegaConf.select(cfg, "dataset.source", default=None)
    return {
        "run_id": f"{name}-{digest[:8]}",
        "name": cfg.get("name"),
        "method": method,
        "choices": options,
        "labels": {
            "method": method,
            "options": options,
            "seed_group": f"{name.removesuffix(f'-s{cfg.seed}')}-{group[:8]}",
        },
        "tags": [f"{key}:{value}" for key, value in tagged.items() if value],
        "seed": cfg.seed,
        "config": plain(cfg),
        "config_hash": digest,
        "group_hash": group,
        "overrides": overrides,
        "command": command,
        "dataset": OmegaConf.to_container(source, resolve=True) if source is not None else None,
        "bins": {key: node["bins"] for key, node in cfg.callbacks.items() if node and "bins" in node},
        "versions": dict(versions()),
        "git": git_revision(),
    }


@functools.cache
def versions() -> dict[str, str]:
    """Library -> version."""
    own = {"diffusion-lab": __version__, "python": sys.version.split()[0]}
    return own | {name: metadata.version(name) for name in LIBRARIES}


@functools.cache
def git_revision() -> str | None:
    """Commit of the checkout that contains the package, with `+` if it is modified; None outside a checkout. It is
    asked for once, because the code of a process, and of those that are forked from it, does not change."""
    import subprocess

    here = Path(__file__).resolve().parent
    try:
        git = ["git", "-C", str(here)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        dirty = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def quiet_libraries() -> None:
    """Turn off messages of Lightning that do not apply here."""
    for name in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",  # the images are resident
        ".*resuming from a checkpoint that ended before the epoch ended.*",  # the order starts at the step
        ".*`isinstance.treespec, LeafSpec.` is deprecated.*",
        ".*Found .* module.* in eval mode at the start of training.*",
        ".*GPU available but not used.*",
        ".*Checkpoint directory .* exists and is not empty.*",
        ".*passed in a `val_dataloader` but have no `validation_step`.*",  # of a GAN
        ".*`srun` command is available on your system but is not used.*",  # the jobs of a sweep inside an allocation
    ):
        warnings.filterwarnings("ignore", message)
