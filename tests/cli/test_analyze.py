"""`diffusion-lab analyze` on a tiny trained run, from the command line."""

from __future__ import annotations

import html
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import diffusion_lab.analyses
from diffusion_lab.cli.command_line import lists
from diffusion_lab.cli.main import main
from diffusion_lab.testing import check_analysis
from tests.analyses.small import NAMES, composed, small_words
from tests.harness import Child

SMALL = (
    "scale=smoke",
    "max_steps=2",
    "checkpoint_every=1",
    "keep_every=1",
    "dataset=gaussian",
    "dataset.source.image_size=2",
    "dataset.source.num_images=64",
    "dataset.source.num_test_images=128",
    "batch_size=16",
    "solver.clip=false",
    "network.base_channels=4",
    "network.channel_multipliers=[1]",
    "schedule.num_timesteps=1000",
    "sampler=learned_beta",
    "sampler.every=1",
    "trainer.accelerator=cpu",
    "metrics=none",
)
UPDATE = ("checkpoint=step-00000001,last", "weights=raw")
QUICK = ("analysis=per_timestep", "analysis.images=4", "analysis.every=50")
OWN_PARTS = (Path(__file__).parents[2] / "docs" / "own-parts.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", OWN_PARTS, re.S))
OWN = {name: text for name, text in EXAMPLES.items() if "spread" in name}


def exit_with(words: list[str]) -> None:
    raise SystemExit(main(words))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs of two steps, `a` and `b`."""
    folder = tmp_path_factory.mktemp("trained") / "runs"
    for name, seed in (("a", 0), ("b", 1)):
        words = ["train", *SMALL, f"seed={seed}", f"hydra.run.dir={folder / name}"]
        Child(lambda words=words: exit_with(words), folder.parent / "log").succeed()
    return folder


@pytest.fixture
def here(runs: Path, in_folder: Path) -> Path:
    """A working folder with a copy of the runs in `runs`."""
    shutil.copytree(runs, in_folder / "runs")
    return in_folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cases() -> list[Any]:
    """One analysis of each package of `diffusion_lab.analyses`; the others, which the command treats alike, are second
    cases. The contract of each is tested in tests/contract."""
    seen, found = set[str](), list[Any]()
    for name in NAMES:
        kind = getattr(diffusion_lab.analyses, composed(name).analysis["_target_"].rpartition(".")[2])
        package = kind.__module__.split(".")[2]
        found.append(pytest.param(name, marks=[pytest.mark.exhaustive] * (package in seen)))
        seen.add(package)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", cases())
def test_an_analysis_of_a_trained_run(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It leaves its files and a section of the report; that its bytes are the same each time, also when it was stopped,
    is part of `check_analysis`."""
    assert main(["analyze", *small_words(name), *UPDATE, "run=runs/a"]) == 0
    said = capsys.readouterr().out
    assert main(["report", "runs"]) == 0
    found = files(here / "runs" / "a" / "analyses" / name)
    assert set(found) == {"data.npz", "figure.svg", "figure.png", "facts.json"}
    sentence = json.loads(found["facts.json"])["sentence"]
    assert sentence and f"{sentence}\ndata.npz" in said and f"in runs/a/analyses/{name}\n" in said
    page = (here / "runs" / "report.html").read_text()
    assert f"<h2>{name.replace('_', ' ').capitalize()}</h2>" in page and sentence in html.unescape(page)
    assert f"a, step 1, weights raw; a, step 2, weights raw; numbers and protocol in <code>a/analyses/{name}" in page


def kill_in_the_middle(words: list[str], folder: Path) -> None:
    """SIGKILL to the command once its first piece is finished."""
    child = Child(lambda: exit_with(words), Path("log"))
    while not list(folder.glob("pieces-*/*.npz")) and child.poll() is None:
        time.sleep(0.002)
    child.kill()
    assert list(folder.glob("pieces-*/*.npz")) and not (folder / "facts.json").exists(), Path("log").read_text()


@pytest.mark.slow
def test_killed_and_called_again_it_equals_one_that_was_not(here: Path) -> None:
    words = ["analyze", "analysis=per_timestep", "analysis.images=4", "run=runs/a"]
    folder = here / "runs" / "a" / "analyses" / "per_timestep"
    assert main(words) == 0
    straight = files(folder)
    shutil.rmtree(folder)
    kill_in_the_middle(words, folder)
    assert 0 < len(list(folder.glob("pieces-*/*.npz"))) < 16
    assert main(words) == 0 and files(folder) == straight


@pytest.mark.slow
def test_several_runs_by_name_by_their_folder_and_by_several_checkpoints(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their results go to the folder that holds them all, which is printed."""
    folder = here / "runs" / "analyses" / "per_timestep"
    assert main(["analyze", *QUICK, "run=runs/a,runs/b"]) == 0
    assert f"in {folder.resolve()}\n" in capsys.readouterr().out
    named = files(folder)
    facts = json.loads(named["facts.json"])
    assert [model["run"] for model in facts["protocol"]["models"]] == ["a", "b"]
    assert [(curve["name"], curve["members"]) for curve in facts["facts"]["curves"]] == [("", [0, 1])]  # two seeds
    shutil.rmtree(folder)
    (here / "runs" / "c").mkdir()
    (here / "runs" / "c" / "run.json").write_text("{}")  # a run that is not finished is left out
    assert main(["analyze", *QUICK, "run=runs"]) == 0 and files(folder) == named
    assert main(["analyze", *QUICK, "run=[runs/a]", *UPDATE, "outdir=elsewhere"]) == 0
    curves = json.loads((here / "elsewhere" / "facts.json").read_text())["facts"]["curves"]
    assert [curve["name"] for curve in curves] == ["step 1", "step 2"]
    assert main(["report", "runs"]) == 0
    assert "numbers and protocol in <code>analyses/per_timestep" in (here / "runs" / "report.html").read_text()


def mine(here: Path) -> list[str]:
    for name, text in OWN.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    return ["--config-dir", "my_conf"]


def test_the_example_is_about_twenty_lines_and_keeps_the_contract() -> None:
    assert set(OWN) == {"spread.py", "my_conf/analysis/spread.yaml"}
    assert len([line for line in OWN["spread.py"].splitlines() if line]) <= 25
    names: dict[str, Any] = {}
    exec(OWN["spread.py"], names)
    check_analysis(lambda: names["Spread"]([0, 500, 999], images=4))


@pytest.mark.slow
def test_an_analysis_of_ones_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That of docs/own-parts.md: one .py and one .yaml outside the package."""
    own = mine(here)

    def code(*words: str) -> int:
        return Child(lambda: exit_with(["analyze", *words]), Path("log")).wait()

    assert code(*own, "analysis=spread", "run=runs/a") == 0, Path("log").read_text()
    found = files(here / "runs" / "a" / "analyses" / "spread")
    assert set(found) == {"data.npz", "figure.svg", "figure.png", "facts.json"}
    assert main(["report", "runs"]) == 0
    assert "<h2>Spread</h2>" in (here / "runs" / "report.html").read_text()
    capsys.readouterr()
    assert code("analysis=spread", "run=runs/a") == 2  # without --config-dir there is no such option
    assert code(*own, "analysis=spread", "run=runs/a", "+analysis.typo=3") == 2
    assert "analysis.typo=3: Spread has no argument typo" in Path("log").read_text()


FAULTS: dict[str, tuple[list[str], str]] = {
    "none": ([], "analysis=null must be one of batch_noise, consistency, "),
    "unknown": (["analysis=per_timestop"], r"analysis=per_timestop must be one of .*did you mean 'per_timestep'"),
    "no run": ([*QUICK], "run=null must be one or several run folders"),
    "empty": ([*QUICK, "run=[]"], "must each name something"),
    "twice": ([*QUICK, "run=runs/a,runs/a"], "and each once"),
    "missing": ([*QUICK, "run=nowhere"], "run=nowhere must be the folder of a run"),
    "no finished run": ([*QUICK, "run=begun"], "run=begun must hold finished runs, and has 1 lost"),
    "checkpoint": ([*QUICK, "run=runs/a", "checkpoint=step-7"], "checkpoint=step-7 must be one of"),
    "number": ([*QUICK, "run=runs/a", "checkpoint=5"], "checkpoint=5 must be text"),
    "weights": ([*QUICK, "run=runs/a", "weights=0.5"], "weights=0.5 must be one of ema, raw, "),
    "device": ([*QUICK, "run=runs/a", "device=gpux"], "device=gpux must be auto, cpu"),
    "precision": ([*QUICK, "run=runs/a", "precision=64"], "precision=64 must be one of 32-true"),
    "seed": ([*QUICK, "run=runs/a", "seed=-1"], "seed=-1 must be an integer >= 0"),
    "argument": (["analysis=per_timestep", "analysis.images=1", "run=runs/a"], "analysis.images=1 must be an integer"),
    "type": (["analysis=per_timestep", "analysis.images=a", "run=runs/a"], "analysis.images=a must be an integer"),
    "no update": (["analysis=reward_variance", "run=runs/a"], "checkpoint=a:2 must be one run before and after"),
    "another kind": ([*QUICK, "analysis._target_=diffusion_lab.solvers.DDIM", "run=runs/a"], "must be a Analysis"),
    "payload": ([*QUICK, "analysis._target_=os.system", "run=runs/a"], r"analysis._target_=os.system must be"),
    "a link": ([*QUICK, "run=runs/a,runs/b"], "runs must hold its own files"),
    "a link in a run": ([*QUICK, "run=runs/b"], "runs/b must hold its own files"),
}


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.slow
def test_a_fault_is_one_line_and_nothing_is_written(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "begun" / "x").mkdir(parents=True)
    (here / "begun" / "x" / "run.json").write_text("{}")
    (here / "outside").mkdir()
    (here / "runs" / "analyses").symlink_to(here / "outside")
    (here / "runs" / "b" / "analyses").symlink_to(here / "outside") if case == "a link in a run" else None
    before = sorted(here.rglob("*"))
    words, line = FAULTS[case]
    assert main(["analyze", *words]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("config error: ") and error.count("\n") == 0, error
    assert re.search(line.replace("[]", r"\[\]") if "(" not in line else line, error), error
    assert sorted(here.rglob("*")) == before


def test_a_class_in_the_working_folder_is_not_imported(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be a stranger's folder; --config-dir says that it is one's own."""
    Path("evil.py").write_text("open('marker', 'w')\nclass Evil: pass\n")
    assert main(["analyze", "+analysis._target_=evil.Evil", "run=x"]) == 2
    assert capsys.readouterr().err.startswith("config error: ") and not Path("marker").exists()


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("run=a,b", "run=[a,b]"),
        ("run=a", "run=a"),
        ("run=[a,b]", "run=[a,b]"),
        ("run='a,b'", "run='a,b'"),
        ("run=", "run="),
        ("seed=1,2", "seed=1,2"),
        ("--config-dir", "--config-dir"),
    ],
)
def test_lists_without_brackets(typed: str, given: str) -> None:
    assert lists([typed], ("run", "checkpoint")) == [given]
