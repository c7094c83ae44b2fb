"""`diffusion-lab race SETTINGS`: a sweep over methods and seeds in which a method that has lost is trained no more."""

from __future__ import annotations

import difflib
import re

USAGE = """usage: diffusion-lab race [hours=H] [margin=M] [alpha=A] key=value,.. seed=0..9

A sweep over methods and seeds. All methods get two seeds, then those that are still in the race one more, and so on. A
method leaves when it is worse than another one, with an error of alpha in the whole race, or set aside, because it is
not better than another one by more than the margin. The race ends early when more seeds would hardly change the choice.
Where the methods stand is printed after each block and written to race.md beside the runs; the same command goes on
after an interruption.

  key=value   the sweep, as after `diffusion-lab train -m`
  seed=0..9   the seeds that a method gets if it stays, 0,1,2,3,4,5,6,7,8,9
  margin=M    1.1; null: only methods that are worse leave, and no early end
  alpha=A     0.05, from 0.02 to 0.2; fixed with the first command
  hours=H     of training, over all jobs; after two seeds of each, a block that would take more is not begun

examples
  diffusion-lab race sampler=uniform,logit_normal,mode,speed seed=0..9
  diffusion-lab race experiment=methods_digits seed=0..4 hours=6 hydra.launcher.n_jobs=2
"""
OWN = ("margin", "alpha", "hours")


def main(words: list[str]) -> int:
    """Run the race; returns its exit code."""
    if any(word in ("-h", "--help") for word in words):
        print(USAGE, end="")
        return 0
    from diffusion_lab.cli.app import App
    from diffusion_lab.cli.errors import refuse

    if fault := _fault(words):
        return refuse(fault)
    settings = [translated(word) for word in words if word not in ("-m", "--multirun")]
    return App("train", ["-m", "hydra/sweeper=race", *settings], typed=["race", *words]).run()


def _fault(words: list[str]) -> str | None:
    """Why a word cannot be one of a race; None if all can."""
    for word in words:
        key, sign, value = word.partition("=")
        if key in OWN and "," in value:
            return f"{word} must be one value, as the race is one; use e.g. {key}={value.partition(',')[0]}"
        if key in ("question.seeds", "question.stopping", "question.alpha"):
            return f"{word} must be left out, because a race sets it; use seed=0..9 and alpha=0.05"
        if key == "budget":
            return f"{word}: there is no setting budget; use hours=6, of training over all jobs"
        if sign and key not in OWN and (meant := difflib.get_close_matches(key, OWN, n=1, cutoff=0.75)):
            return (
                f"{key}: there is no setting {key} (did you mean '{meant[0]}'?); `diffusion-lab race --help` lists them"
            )
    return None


def translated(word: str) -> str:
    """A word as `train -m` has it: `seed=0..9` and the settings of the race."""
    key, sign, value = word.partition("=")
    if key == "seed" and (found := re.fullmatch(r"(\d{1,4})\.\.(\d{1,4})", value)):
        seeds = range(int(found[1]), int(found[2]) + 1)
        return f"seed={','.join(map(str, seeds))}" if seeds else word
    return f"hydra.sweeper.{word}" if sign and key in OWN else word
