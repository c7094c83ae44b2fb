"""Every command of the README and the guides other than `train` is run, shortened; their trainings are checked in
`test_guides.py` and the first of the README runs here as the sweep that the commands after it are about.

What a command works on is made once: `DIR` is a run of the kind that its page is about.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.data.latent.autoencoders import save_autoencoder, save_images
from tests.harness import Child
from tests.programs.test_guides import PAGES, ROOT, commands

pytestmark = pytest.mark.pages
QUICK = """max_steps=4 snapshot_every=2 checkpoint_every=2 log_every=2 batch_size=16 threads=1
    dataset.val_images=32 trainer.accelerator=cpu""".split()
SMALL = (
    """network.base_channels=8 network.channel_multipliers=[1,2] schedule.num_timesteps=40 keep_every=2
    metrics.num_samples=128 solver.steps=2""".split()
    + QUICK
)
SWEEP = "runs/sweep-digits"
UNIFORM = f"{SWEEP}/digits-uniform-v-min_snr-s0-*"
RUNS = {  # the training of the run that DIR is, by page; elsewhere it is UNIFORM
    "averages.md": ["averaging=power_function", "averaging.snapshot_every=1", *SMALL],
    "images.md": ["dataset.conditional=true", "dataset.label_dropout=0.1", *SMALL],
    "gan.md": ["task=gan", "metrics=none", *QUICK],
    "own-parts.md": ["--config-dir", "./my_conf", "sampler=late", *SMALL],
}
SHORTER = [  # the same command about less
    (r"num_samples=\d+", "num_samples=128"),
    (r"seeds=0-63", "seeds=0-3"),
    (r"seed=0\.\.9", "seed=0..2"),
    (r"source\.image_size=256", "source.image_size=16"),
    (r"analysis=NAME", "analysis=per_timestep"),
    (r"run=A,B", f"run={SWEEP}"),
    (r"step-00000100|step-00001000", "step-00000002"),
    (r"DIR_OF_RUNS|runs/sweep-image_folder", SWEEP),  # tests/cli/test_own_features.py reports a folder's
    (r"--steps 200", "--steps 2"),
    (r"solver=(guided|autoguided)", r"solver=\1 solver.base.steps=2 metrics.num_samples=128"),
    (r"contrast1k", "fd128_digits"),  # the runs that are there have no contrast
]
MORE = {  # by command, what keeps it small or in the house
    "encode": ["autoencoder.weights=kl", "device=cpu"],
    "dashboard": ["--offline"],
    "reproduce": ["--dry-run"],
    "analyze": ["analysis.images=16"],
    "race": ["name=race", "metrics.names=[fid]", *SMALL],
    "doctor": ["--only", "python"],  # the whole takes a minute; tests/cli/doctor/test_whole.py
}
REFUSED = "features.weights=FILE"  # weights of 1.2 GB that the reader brings
ELSEWHERE = (
    "analysis=spread",  # whose timesteps these runs lack; tests/cli/test_analyze.py
    "pilot=runs/pilot",  # which measured as many samples as the plan asks for; tests/cli/test_plan.py
    "dashboard adaptive_beta",  # half a minute; tests/cli/test_dashboard.py
)


def other_commands() -> list[tuple[str, str]]:
    """(page, command) of all but `train`; the page only where its run matters."""
    pages = [page for page in PAGES if "options" not in page.parts]
    found = {(one.strip(), page.name if "DIR" in one else "") for page in pages for one in commands(page)}
    left = ("diffusion-lab train", *ELSEWHERE)
    return sorted((page, one) for one, page in found if not any(words in one for words in left))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages show, images, an autoencoder, and the sweep of the README."""
    folder = tmp_path_factory.mktemp("workplace")
    for page in ("own-parts.md", "metrics.md"):
        text = (ROOT / "docs" / page).read_text()
        for name, content in re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", text, re.S):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    save_images(folder / "photos", 30)
    save_autoencoder(folder / "kl", "kl", 0)
    (sweep,) = {one for one in commands(ROOT / "README.md") if " train -m " in one}
    run(folder, [*shlex.split(sweep)[1:], *SMALL])
    return folder


@pytest.fixture(scope="module")
def run_of(workplace: Path) -> Callable[[str], str]:
    """The run that DIR is on a page."""
    made: dict[str, str] = {}

    def find(page: str) -> str:
        if page not in RUNS:
            return str(next(workplace.glob(UNIFORM)).relative_to(workplace))
        if page not in made:
            made[page] = f"runs/for-{page}"
            run(workplace, ["train", *RUNS[page], f"hydra.run.dir={made[page]}"])
        return made[page]

    return find


def run(folder: Path, words: list[str], wanted: int = 0) -> str:
    """What the command says in the folder, in a process of its own, which ends with the wanted exit code."""

    def work() -> None:
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        warnings.resetwarnings()  # pytest makes errors of those of libraries
        raise SystemExit(main(words))

    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    code = Child(work, log).wait(300)
    assert code == wanted, f"{' '.join(words)}: exit code {code}\n{log.read_text()[-3000:]}"
    return log.read_text()


@pytest.mark.parametrize(("page", "command"), other_commands(), ids=lambda value: value)
def test_a_command_of_a_page_runs(page: str, command: str, workplace: Path, run_of: Callable[[str], str]) -> None:
    if REFUSED in command:
        words = shlex.split(command.replace("DIR", run_of(page)))[1:]
        assert "there is no file FILE" in run(workplace, words, wanted=2)
        return
    for long, short in SHORTER:
        command = re.sub(long, short, command)
    words = shlex.split(re.sub(r"\bDIR\b", lambda _: run_of(page), command))[1:]
    run(workplace, [*words, *MORE.get(words[0], [])])
