"""A misspelt option or key of Hydra's is answered with the one that was meant, by every command."""

from __future__ import annotations

import pytest
from hydra._internal.utils import get_args_parser

from diffusion_lab.cli.command_line import check_options
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main

ANSWERED = {
    "train --configdir x": "--config-dir",
    "train --configdir=x": "--config-dir",
    "evaluate run=x --multirrun": "--multirun",
    "sample --configdir x": "--config-dir",
    "analyze --configdir x": "--config-dir",
    "encode --configdir x": "--config-dir",
    "export --configdir x": "--config-dir",
    "show --los eps --figgures": "--figures",
    "list --configdir x": "--config-dir",
    "report runs --mertic x": "--metric",
    "compare a b --mertic x": "--metric",
    "dashboard x --oot y": "--out",
    "reproduce --dryrun": "--dry-run",
    "verify runs/x --stpes 3": "--steps",
    "verify runs/x --configdir y": "--config-dir",
    "doctor --onyl x": "--only",
}


@pytest.mark.parametrize("words", ANSWERED)
def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"must be an option of this command (did you mean '{ANSWERED[words]}'?); --help lists them")


def test_what_argparse_knows_is_left_to_it() -> None:
    for words in (["--config-d", "x"], ["--multirun"], ["a=--b", "-m"], ["--", "--nothing"], ["-cd", "x"]):
        check_options(words, get_args_parser())
    with pytest.raises(ConfigError, match=r"^--nothing must be an option of this command; --help"):
        check_options(["a=1", "--nothing"], get_args_parser())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hydra.launcher.njobs=2", "(did you mean 'hydra.launcher.n_jobs'?); hydra.launcher has n_jobs, "),
        ("hydra.sweeper.parms=1", "(did you mean 'hydra.sweeper.params'?); hydra.sweeper has "),
        (
            "hydra/launcher=diffusion_lab_slurm hydra.launcher.clustr=x",
            "(did you mean 'hydra.launcher.cluster'?); hydra/launcher=diffusion_lab_slurm has cluster, ",
        ),
        ("hydra.jobb=1", "(did you mean 'hydra.job'?); `diffusion-lab train --hydra-help` lists them"),
    ],
)
def test_a_misspelt_key_of_hydra_is_answered_with_those_of_the_chosen_launcher_or_sweeper(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
