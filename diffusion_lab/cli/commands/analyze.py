"""`diffusion-lab analyze analysis=NAME run=DIR`: run an analysis of trained models and print its conclusion."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from diffusion_lab import __version__
from diffusion_lab.cli.checks.run_arguments import listed
from diffusion_lab.cli.config import choices_of
from diffusion_lab.cli.errors import config_errors
from diffusion_lab.cli.output_folders import writable
from diffusion_lab.cli.run_parts import part
from diffusion_lab.printable import one_line
from diffusion_lab.runs.analyses import ANALYSES, DATA, FACTS, FIGURE, PICTURE
from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    import torch


FILES = (DATA, FIGURE, PICTURE, FACTS)
WHEN_REPEATED = "goes on from the last finished piece"  # the same command, after a signal


def run(cfg: DictConfig) -> None:
    """Compute what is missing, write data.npz, figure.svg, figure.png and facts.json, and print the sentence.

    An interrupted analysis continues where it was stopped; a complete one is not repeated.
    """
    from diffusion_lab.analyses import perform
    from diffusion_lab.cli.inference import load_several, ready, threads_of

    trained: list[Any] = load_several(cfg)  # of the class `Analysis.models`, which `check_kind` checks
    analysis = part(cfg, "analysis")
    for model in trained:
        with config_errors("dataset"):
            model.data.prepare_data()
    with config_errors(""):
        analysis.check_kind(trained)
        analysis.check(trained)
    common = common_folder(listed(cfg.run))
    if cfg.outdir:
        folder = writable("outdir", Path(cfg.outdir), files=FILES)
    else:
        folder = writable("run", common / ANALYSES / Path(choices_of(cfg)["analysis"]).name, common, FILES)
    with ExitStack() as stack:
        how = cfg.device, cfg.precision, threads_of(cfg, *trained)
        device = [stack.enter_context(ready(model.module, *how)) for model in trained][-1]
        sentence = perform(analysis, trained, folder, settings(cfg, device), cfg.seed, device, show=True)
    print(one_line(sentence))
    print(f"{DATA}, {FIGURE}, {PICTURE} and {FACTS} in {folder}")
    print(f"next: {command('report', common)}")


def settings(cfg: DictConfig, device: torch.device) -> dict[str, Any]:
    """The settings that affect the results, besides the models and the seed."""
    node = OmegaConf.to_container(cfg.analysis, resolve=True)
    versions = {"diffusion-lab": __version__} | {name: metadata.version(name) for name in ("torch", "numpy")}
    return {"analysis": node, "precision": cfg.precision, "device": device.type, "versions": versions}


def common_folder(runs: Sequence[str]) -> Path:
    """The given folder, or the common parent of several."""
    return Path(runs[0]) if len(runs) == 1 else Path(os.path.commonpath([Path(run).resolve() for run in runs]))
