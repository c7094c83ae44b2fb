"""The text of `--help`, made from the yaml files without importing Hydra or torch."""

from __future__ import annotations

from pathlib import Path

from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.defaults import defaults

COMMANDS = {
    "train": "train one model, or with -m a sweep over several settings",
    "plan": "before a sweep: which ratio how many seeds and samples decide, and in how many hours",
    "race": "a sweep over methods and seeds in which a method that has lost is trained no more",
    "evaluate": "FID, KID, inception score, precision and recall of a trained run",
    "sample": "images from a trained run, by seed",
    "analyze": "a measurement of trained runs with a figure and a sentence, such as the loss at every timestep",
    "export": "a trained model as files for other programs, with a model card",
    "verify": "run a run again and say whether it is equal to the bit",
    "encode": "the latents of images, to train in the space of an autoencoder",
    "reproduce": "a table of a paper: its runs, then measured and published numbers",
    "compare": "in what one run, or the runs of one method, differs from another",
    "list": "what can be chosen: samplers, weightings, networks, .., with formula, paper, use and keys",
    "show": "which timesteps would be trained on, with which weight, before training",
    "dashboard": "a Weights & Biases workspace and sweeps for a paper or a folder of runs",
    "doctor": "what this machine has, and whether training, resuming and sampling work on it",
    "report": "table and one HTML page for a folder of runs, finished or not",
}
TOP = """diffusion-lab: training of diffusion models with an exchangeable distribution of timesteps

usage: diffusion-lab COMMAND [key=value ...]

{commands}

first steps
  diffusion-lab train                                      digits, a few minutes on a CPU, then a sample grid
  diffusion-lab train dry_run=true                         its cost, without training
  diffusion-lab train -m sampler=uniform,logit_normal seed=0,1
  diffusion-lab plan sampler=uniform,logit_normal          how many seeds and samples it takes
  diffusion-lab report runs/sweep-digits                   the comparison, as a table and a web page

`diffusion-lab list` shows what can be chosen, `diffusion-lab list sampler=mode` one option with its formula and keys.
`diffusion-lab COMMAND --help` lists what can be set. Exit codes: 0 done, 1 failed, 2 bad configuration,
3 the run folder is in use, 128 + signal stopped by a signal (the same command goes on from there).
"""
LISTED = """Parts: one option of each group, `group=option`; its arguments, `group.argument=value`.
{groups}

Settings and their defaults:
{settings}
"""
TRAIN = """usage: diffusion-lab train [-m] [--config-dir DIR] [--cfg job] [key=value ...]

{listed}
examples
  diffusion-lab train sampler=loss_second_moment sampler.uniform=0.01
  diffusion-lab train dataset=fashion_mnist network=unet_small max_steps=20000
  diffusion-lab train -m sampler=uniform,stratified seed=0,1,2 hydra.launcher.n_jobs=2
  diffusion-lab train resume=runs/digits-uniform-s0-1a2b3c4d     (so does the same command again)
  diffusion-lab train --config-dir ./my_conf sampler=mine        your own class, see docs/own-parts.md
  diffusion-lab train sampler=stratified --cfg job               the composed configuration

A sweep skips finished jobs and continues after a failed one; run the same command again for the missing jobs.
Tab completion: eval "$(diffusion-lab train -sc install=bash)"
"""


def top() -> str:
    """Text of `diffusion-lab --help`."""
    return TOP.format(commands="\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items()))


def command(name: str, folders: list[Path]) -> str:
    """Text of `diffusion-lab NAME --help`; `folders` are searched for the groups, the first has the main yaml."""
    path = folders[0] / f"{name}.yaml"
    settings = "\n".join(f"  {one.name + '=' + one.default:<25} {one.comment}".rstrip() for one in files.settings(path))
    listed = LISTED.format(groups=_groups(path, folders), settings=settings)
    if name == "train":
        return TRAIN.format(listed=listed)
    return f"usage: diffusion-lab {name} [key=value ...]\n\n{COMMANDS[name]}\n\n{listed}"


def _groups(path: Path, folders: list[Path]) -> str:
    """One line for each group of a command's yaml file, with its options, the default in brackets.

    A folder in a group is itself a group, `prediction/space=x0`, and is described in the yaml files that use it.
    """
    lines = []
    for entry in defaults(path):
        if not entry.overrides and entry.option is not None:
            names = (f"[{name}]" if name == entry.option else name for name in files.options(entry.group, folders))
            lines.append(f"  {entry.group:<16}{' '.join(names) or '-'}")
    return "\n".join(lines)
