"""`diffusion-lab compare` as a user meets it, on runs whose curves are given."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.cli.commands.compare import main
from diffusion_lab.cli.commands.report import main as report_main
from diffusion_lab.cli.main import main as command_line
from diffusion_lab.plotting import line_style
from diffusion_lab.reports.pair import page as pair_page
from tests.reports.curves import FD, STEPS, power_law, write_curves

LEVELS = (1.0, 1.1, 0.9)
SWEPT = {"uniform": (1.0, 0.1), "logit_normal": (2.5, 0.2)}  # factor of images, seconds per step


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """logit_normal needs 2.5 times fewer images than uniform, at twice the time per step; three seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    for method, (factor, seconds) in SWEPT.items():
        for seed, level in enumerate(LEVELS):
            metric = power_law(STEPS, factor, level)
            write_curves(folder / f"{method}-{seed}", method, seed, metric, step_seconds=seconds)
    return folder


@pytest.fixture(scope="module")
def compared(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the command prints, and its page. It imports no torch, and nothing heavy before it starts."""
    page = tmp_path_factory.mktemp("page") / "compare.html"
    words = ["compare", f"{folder}:uniform", f"{folder}:logit_normal", "--out", str(page)]
    code = (
        "import sys; from diffusion_lab.cli.main import main; light = set(sys.modules); "
        f"code = main({words!r}); "
        "assert not {'numpy', 'matplotlib', 'rich', 'jinja2'} & light, light; "
        "assert not {'torch', 'lightning', 'wandb', 'matplotlib.pyplot'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout, page.read_text()


def test_configuration_metrics_and_factors_are_those_of_the_runs(compared: tuple[str, str]) -> None:
    text, page = compared
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    assert ["sampler", "uniform", "logit_normal"] in lines
    last = power_law(STEPS[-1:])[0] * np.array(LEVELS)
    mean = {name: (last / factor**0.5).mean() for name, (factor, _) in SWEPT.items()}
    (line,) = [line for line in lines if line[0] == f"{FD} ↓"]
    assert line[1] == "3" and line[2].startswith(f"{mean['uniform']:.3f} [")
    assert line[3].startswith(f"{mean['logit_normal']:.3f} [")
    assert line[4] == "0.63 [0.63, 0.63] times" and line[5] == "better"  # 2.5^-0.5 in every seed
    assert "uniform needs 2.50 [2.50, 2.50] times as many images as logit_normal" in text
    assert "uniform needs 1.25 [1.25, 1.25] times as much training time as logit_normal" in text
    assert "smoothed" in text and "uniform needs 2.50" in page


def test_the_page_loads_nothing_and_has_curves_and_grids_of_both(compared: tuple[str, str]) -> None:
    page = compared[1]
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page) and "<script" not in page
    for title in ("Quality against images seen", "Quality against training time", "Samples from equal noise"):
        assert f"<h2>{title}</h2>" in page
    assert page.count('alt="samples of uniform') == page.count('alt="samples of logit_normal') == 3
    assert line_style(1).color in page
    # A figure keeps a width at which its text can be read, also on a phone.
    assert page.count('<figure class="plot"><div class="scroll">') == page.count('<figure class="plot">') > 0


@pytest.mark.usefixtures("without_figures")
def test_b_is_described_relative_to_a(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"{folder}:logit_normal", f"{folder}:uniform", "--out", str(tmp_path / "c.html")]
    assert main([*arguments, "--metric", "val/loss"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("uniform compared with logit_normal") and "val/loss does not decide" in text
    why = "uniform does not reach the final val/loss of logit_normal in 3 of 3 seeds"
    assert f"No speed-up can be given: {why}." in text and "to reach" not in text.lower().replace(why, "")


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep that was to decide over training: logit_normal begins at half of the distance and ends near it."""
    for seed, level in enumerate(LEVELS):
        write_curves(tmp_path / f"uniform-{seed}", "uniform", seed, power_law(STEPS, level=level))
        ratio = np.linspace(0.5, 0.97, len(STEPS)) * (1 + 0.05 * (seed - 1))
        write_curves(tmp_path / f"logit_normal-{seed}", "logit_normal", seed, ratio * power_law(STEPS, level=level))
    question = {"metric": FD, "estimand": "training", "margin": 1.05, "seeds": 3, "samples": 1000}
    (tmp_path / "sweep.json").write_text(json.dumps({"question": question, "commands": [], "jobs": []}))
    return tmp_path


@pytest.mark.usefixtures("without_figures")
def test_it_answers_the_recorded_question_as_report_does(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [f"{sweep}:uniform", f"{sweep}:logit_normal", "--out", str(sweep / "c.html")]

    def answers(*options: str) -> tuple[list[str], list[str]]:
        assert main([*sides, *options]) == report_main([str(sweep), "--baseline", "uniform", *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        said = [line for line in lines if line.startswith("At n = 3,")]
        return said, [line for line in lines if "to decide by" in line]

    (own, of_report), others = answers()
    assert own == of_report and own.startswith("At n = 3, logit_normal is better: it has 0.72 [0.63, 0.81] times the")
    assert "over training" in own and others == []
    (own, of_report), others = answers("--estimand", "end", "--margin", "1.2")
    assert own == of_report == "At n = 3, logit_normal is equal to uniform within 20 %."
    assert len(others) == 2 and others[0] == others[1] and others[0].endswith("which is another question.")
    assert "--estimand end --margin 1.2" in (sweep / "c.html").read_text()


@pytest.mark.usefixtures("without_figures")
def test_single_runs_of_a_sweep_answer_its_question(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(sweep / "uniform-1"), str(sweep / "logit_normal-1"), "--out", str(sweep / "c.html")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{FD} ")]
    assert re.split(r"\s{2,}", line)[4:6] == ["0.72 times", "no claim"]  # over training, and 0.97 at the end


@pytest.mark.usefixtures("without_figures")
def test_single_runs_are_compared_without_interval(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [str(folder / "uniform-0"), str(folder / "logit_normal-0")]
    assert main([*sides, "--out", str(tmp_path / "c.html")]) == 0
    text = capsys.readouterr().out
    assert "(n=1)" in text and "no claim" in text and "needs 2.50 times as many images" in text
    assert main([sides[0], str(folder / "logit_normal-1"), "--out", str(tmp_path / "c.html")]) == 0
    text = capsys.readouterr().out
    assert "n/a (no common seed)" in text and "No speed-up can be given: they have no finished run" in text


def test_what_is_wrong_with_an_option_is_found_without_a_figure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pair_page, "drawn", lambda pair: pytest.fail("a figure takes seconds"))
    assert main([f"{folder}:speed", f"{folder}:uniform"]) == 2
    assert "must end in the name of one of its 2 rows" in capsys.readouterr().err


@pytest.mark.usefixtures("without_figures")
def test_two_evaluations_make_one_sentence_and_no_speed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method, level in (("uniform", 1.0), ("logit_normal", 1.1)):
        write_curves(tmp_path / method, method, 0, power_law(STEPS, level=level))
        for name in ("metrics", "evaluations", "timing"):
            path = tmp_path / method / f"{name}.jsonl"
            path.write_text("".join(path.read_text().splitlines(keepends=True)[-2:]))
    sides = [str(tmp_path / "uniform"), str(tmp_path / "logit_normal")]
    assert main([*sides, "--out", str(tmp_path / "c.html")]) == 0
    text = capsys.readouterr().out
    assert (
        "No speed-up can be given: it needs a curve of 4 evaluations or more; train longer, or with metrics_every=0"
        in text
    )
    assert text.lower().count("speed-up") == 1 and "smoothed" not in text and "to reach" not in text.lower()


@pytest.mark.usefixtures("without_figures")
def test_a_method_that_passes_the_level_and_ends_worse_is_not_said_to_be_faster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_curves(tmp_path / "a", "uniform", 0, power_law(STEPS))
    write_curves(tmp_path / "b", "logit_normal", 0, 2.0 + np.arange(len(STEPS)) / 10)  # better at first, worse at last
    assert main([*(str(tmp_path / name) for name in "ab"), "--out", str(tmp_path / "c.html")]) == 0
    text = capsys.readouterr().out
    assert f"No speed-up can be given: logit_normal ends with a worse {FD} than uniform." in text
    assert "times as many" not in text


@pytest.mark.usefixtures("without_figures")
def test_another_protocol_is_refused_with_the_reason(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_curves(tmp_path / "b", "logit_normal", 0, power_law(STEPS), protocol={"samples": 5000})
    assert main([str(folder / "uniform-0"), str(tmp_path / "b"), "--out", str(tmp_path / "c.html")]) == 0
    text = capsys.readouterr().out
    assert "n/a, measured differently: samples 1000 and 5000" in text
    assert "No speed-up can be given: it was measured differently." in text
    write_curves(tmp_path / "d", "logit_normal", 0, power_law(STEPS), protocol={"seed": "the run's"})
    assert main([str(folder / "uniform-0"), str(tmp_path / "d"), "--out", str(tmp_path / "c.html")]) == 0
    assert "n/a, measured differently: latents 0 and the run's" in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_evaluations_at_other_steps_can_be_compared(folder: Path, tmp_path: Path, capsys) -> None:
    validation = {"_target_": "diffusion_lab.callbacks.Validation", "seed": 0}
    for name, method, every in (("a", "uniform", 250), ("b", "logit_normal", 500)):
        callbacks = {"validation": validation | {"every": every}}
        write_curves(tmp_path / name, method, 0, power_law(STEPS, 2.5 if name == "b" else 1.0), callbacks=callbacks)
    sides = [str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "c.html")]
    assert main([*sides, "--metric", "val/loss"]) == 0
    assert "needs 2.50 times as many images" in capsys.readouterr().out
    info = json.loads((tmp_path / "b" / "run.json").read_text())
    info["config"]["callbacks"]["validation"]["seed"] = 1
    (tmp_path / "b" / "run.json").write_text(json.dumps(info))
    assert main([*sides, "--metric", "val/loss"]) == 0
    assert "measured differently: validation.seed 0 and 1" in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_grids_of_other_solvers_are_not_shown(folder: Path, tmp_path: Path) -> None:
    solver = {"_target_": "diffusion_lab.solvers.DDPM"}
    write_curves(tmp_path / "b", "logit_normal", 0, power_law(STEPS), solver=solver)
    assert main([str(folder / "uniform-0"), str(tmp_path / "b"), "--out", str(tmp_path / "c.html")]) == 0
    page = (tmp_path / "c.html").read_text()
    assert 'alt="samples of' not in page and "the grids differ in the solver (ddim and ddpm)" in page
    assert "diffusion-lab sample run=" in page


def test_runs_without_training_time_have_no_speed_up_in_seconds(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_curves(tmp_path / "b", "logit_normal", 0, power_law(STEPS, 2.5), step_seconds=None)
    assert main([str(folder / "uniform-0"), str(tmp_path / "b"), "--out", str(tmp_path / "c.html")]) == 0
    assert "No speed-up in seconds: the runs have not recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("a", "b", "more", "says"),
    [
        ("{tmp}/nowhere", "{runs}:uniform", [], "A={tmp}/nowhere must be an existing folder"),
        ("{runs}:uniform", "{tmp}", [], "must hold runs"),
        ("{runs}", "{runs}:uniform", [], "A={runs} must hold runs that differ in their seed alone; use one of"),
        ("{runs}:speed", "{runs}:uniform", [], "use one of '{runs}:uniform', '{runs}:logit_normal'"),
        ("{runs}:uniform", "{runs}:uniform", [], "B must be another configuration than A"),
        ("{runs}/uniform-0", "{runs}/uniform-1", [], "B must be another configuration than A"),
        ("{runs}:uniform", "{other}", [], "B must have the dataset of A to be compared; they have digits and cifar10"),
        ("{runs}:uniform", "{failed}", [], "B must have a metric in common with A"),
        ("{runs}:uniform", "{runs}:logit_normal", ["--metric", "kid"], "metric=kid must be one that the runs have"),
        ("{runs}:uniform", "{runs}:logit_normal", ["--metric", "train/x"], "metric=train/x must be one"),
        ("{runs}:uniform", "{runs}:logit_normal", ["--margin", "1"], "margin=1 must be a ratio above 1"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(folder: Path, tmp_path: Path, capsys, a, b, more, says) -> None:
    empty, other, failed = tmp_path / "empty", tmp_path / "other", tmp_path / "failed"
    empty.mkdir()
    write_curves(other, "stratified", 0, power_law(STEPS))
    info = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps(info | {"dataset": {"_target_": "diffusion_lab.data.CIFAR10"}}))
    write_curves(failed, "stratified", 0, power_law(STEPS), result="failed")
    places = {"tmp": empty, "runs": folder, "other": other, "failed": failed}
    assert main([one.format(**places) for one in (a, b)] + more) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and says.format(**places) in shown.err


def test_help_and_a_missing_argument_return_their_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["compare", "--help"]) == 0 and command_line(["compare", "only"]) == 2
    assert "--metric" in capsys.readouterr().out
