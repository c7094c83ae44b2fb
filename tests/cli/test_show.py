"""`diffusion-lab show`: its numbers against closed forms and a run's log, its text, its files, what it imports."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from diffusion_lab.cli.commands import show
from diffusion_lab.cli.main import main
from diffusion_lab.reports.timestep_numbers import TimestepNumbers, plot_lines
from tests.harness import command_child
from tests.reports.synthetic import write_run

IMPORTS = """
import sys
from diffusion_lab.cli.main import main
assert main(["show", "sampler=speed"]) == 0
sys.exit(" ".join(m for m in ("lightning", "matplotlib", "scipy", "sklearn") if m in sys.modules) or 0)
"""


def rows(text):
    lines = [line.split("  ") for line in text.splitlines() if not line.startswith("#") and line.count("  ") == 5]
    return {name: np.array([list(map(float, row[1:])) for row in lines if row[0] == name]) for name, *_ in lines}


def test_commas_put_methods_side_by_side(capsys):
    assert main(["show", "sampler=uniform,logit_normal", "weighting=unit,x0", "prediction=eps"]) == 0
    shown = rows(capsys.readouterr().out)
    assert list(shown) == ["uniform unit", "uniform x0", "logit_normal unit", "logit_normal x0"]
    for values in shown.values():
        assert values[:, 2].sum() == pytest.approx(1, abs=1e-5) and values[:, 4].sum() == pytest.approx(1, abs=1e-5)
    assert np.allclose(shown["uniform unit"][:, 2:5], [0.05, 1, 0.05])


def test_the_weight_follows_the_loss_that_is_asked_for(capsys):
    """eps-prediction, weight 1 on its own loss: SNR on the x0-loss."""
    setting = ["show", "prediction=eps", "weighting=unit", "schedule.num_timesteps=20"]
    main([*setting, "--loss", "x0"])
    (values,) = rows(capsys.readouterr().out).values()
    assert np.allclose(values[:, 3], np.exp(values[:, 1]), rtol=1e-4)  # 20 bins of one timestep


def test_the_density_per_nat_integrates_to_one():
    log_snr = np.linspace(9.0, -9.0, 201)
    one = TimestepNumbers("a", log_snr, np.full(201, 1 / 201), np.ones(201))
    assert np.allclose(one.p / one.nats, 1 / (201 * 0.09))
    bell = np.exp(-(log_snr**2) / 2)
    normal = TimestepNumbers("b", log_snr, bell / bell.sum(), np.ones(201))
    assert np.interp(0, log_snr[::-1], (normal.p / normal.nats)[::-1]) == pytest.approx(1 / math.sqrt(2 * math.pi))


def test_the_plot_has_80_columns_and_the_curves_their_height():
    log_snr = np.linspace(9.0, -9.0, 300)
    ramp = np.arange(1, 301) / np.arange(1, 301).sum()
    flat = TimestepNumbers("a name that is much too long", log_snr, np.full(300, 1 / 300), np.ones(300))
    lines = plot_lines([flat, TimestepNumbers("ramp", log_snr, ramp, np.ones(300))], "eps")
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("ramp"))[18:48]
    assert list(row) == sorted(row) and row[-1] == "█" and row[0] == "▁"  # the blocks' code points rise


def test_a_curriculum_is_shown_at_the_step_that_is_asked_for(capsys):
    main(["show", "base=ddpm", "sampler=clts"])
    start = rows(capsys.readouterr().out)["clts"]
    main(["show", "base=ddpm", "sampler=clts", "--step", "500"])
    later = rows(capsys.readouterr().out)["clts"]
    assert np.allclose(start[:, 2], 0.05)
    # The target: normal, mean 0.3 T and standard deviation T; the bins' middles are 0.025 T and 0.975 T.
    assert later[0, 2] / later[-1, 2] == pytest.approx(math.exp((0.675**2 - 0.275**2) / 2), rel=2e-3)


def test_a_sampler_that_learns_says_so(capsys):
    main(["show", "sampler=loss_second_moment,uniform"])
    said = capsys.readouterr().out
    learns = "p is the one before training: uniform until the sampler has learned from the losses"
    assert f"loss_second_moment: {learns}. Importance sampling by the recent losses" in said
    assert "\nuniform:" not in said


@pytest.mark.parametrize(("base", "learns"), [("uniform", False), ("gradient_variance", True)])
def test_a_wrapper_learns_if_its_base_does(base, learns, capsys):
    main(["show", "sampler=stratified", f"sampler@sampler.base={base}"])
    assert ("before training" in capsys.readouterr().out) == learns


def test_a_weight_that_is_not_the_whole_weight_says_so(capsys):
    main(["show", "base=ddpm", "weighting=unit,uncertainty,adaptive"])
    said = capsys.readouterr().out
    assert "uncertainty: w is the one before training, which the weighting learns" in said
    assert "adaptive: w leaves out what the weighting makes of each row's own loss" in said
    assert "\nunit:" not in said


def test_normalised_weights_have_mean_one(capsys):
    main(["show", "weighting=min_snr", "weighting.normalize=mean1_sampler", "sampler=logit_normal", "--loss", "native"])
    (values,) = rows(capsys.readouterr().out).values()
    # Of 20 bins of 50 timesteps the output has the sum of p and the mean of w, so the mean is 1 up to the bins' width.
    assert (values[:, 2] * values[:, 3]).sum() == pytest.approx(1, abs=0.01)


def test_written_and_read_again_it_is_the_same(tmp_path, capsys):
    path, again = tmp_path / "p.txt", tmp_path / "again.txt"
    assert main(["show", "sampler=speed", "--write", str(path)]) == 0
    assert main(["show", "sampler=from_file", f"sampler.path={path}", "--write", str(again)]) == 0
    assert path.read_text().splitlines()[1:] == again.read_text().splitlines()[1:]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sampler=spede"], "did you mean 'speed'"),
        (["sampler=from_file"], "sampler.path=None must be a file of T numbers, and it is not given"),
        (["sampler=uniform,speed", "--write", "p.txt"], "--write=p.txt must have one method, and there are 2"),
        (["--step", "-1"], "--step=-1 must be an integer >= 0"),
        (["sampler="], "sampler="),
        (["sampler=["], "sampler=[: it cannot be read; write key=value"),
        (["~weighting"], "must be a diffusion model, and it has no weighting"),
        (["task=gan"], "must be a diffusion model, and it has no prediction"),
        (["tests"], "run=tests must be the folder of a run"),
        (["run=tests"], "run=tests must be the folder of a run"),
        (["run=tests", "--step", "5"], "--step=5 must be left out with a run"),
    ],
)
def test_an_error_is_one_sentence(words, said, capsys):
    assert main(["show", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error and error.count("\n") == 1


@pytest.mark.slow
def test_the_figure_is_written(tmp_path):
    assert main(["show", "sampler=uniform,speed", "--figures", str(tmp_path / "new")]) == 0
    assert b"<svg" in (tmp_path / "new" / "show.svg").read_bytes()


def test_a_run_behind_figures_is_the_run_and_not_a_folder_for_pictures(tmp_path, monkeypatch):
    """The default method was shown, and its picture written into the run."""
    write_run(tmp_path / "run", "uniform", 0, steps=250)
    seen = []
    monkeypatch.setattr(show, "_answer", seen.append)
    for value in (str(tmp_path / "run"), "sampler=speed", str(tmp_path)):
        assert show.main(["--figures", value]) == 0
    assert [(one.figures, one.settings) for one in seen] == [
        ("figures", [f"run={tmp_path / 'run'}"]),
        ("figures", ["sampler=speed"]),
        (str(tmp_path), []),
    ]


@pytest.mark.slow
def test_lightning_and_matplotlib_are_not_imported():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_is_shown_is_what_a_run_logs(tmp_path, capsys):
    words = ["sampler=speed", "weighting=min_snr", "prediction=v", "schedule=cosine"]
    main(["show", *words])
    (shown,) = rows(capsys.readouterr().out).values()
    few = [
        "max_steps=2",
        "log_every=2",
        "snapshot_every=0",
        "batch_size=8",
        f"paths.root={tmp_path}",
        "metrics.names=[]",
    ]
    command_child(["train", *words, *few], tmp_path).succeed()
    logged = [json.loads(line) for file in tmp_path.rglob("metrics.jsonl") for line in file.read_text().splitlines()]
    (row,) = [row for row in logged if "sampler/p" in row]
    assert np.allclose(row["sampler/p"], shown[:, 2], rtol=1e-5)
    assert np.allclose(row["sampler/objective"], shown[:, 4], rtol=1e-5)


def test_a_sweep_of_which_one_method_is_shown_says_so(capsys):
    """`experiment=demo` has four samplers; two of them on the command line are a choice."""
    main(["show", "experiment=demo", "schedule.num_timesteps=20"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("show experiment=demo schedule.num_timesteps=20 sampler=uniform,logit_normal,mode,clts")
    main(["show", "experiment=demo", "schedule.num_timesteps=20", "sampler=uniform,mode"])
    assert "sweeps more" not in capsys.readouterr().out


def test_a_sweep_of_products_has_a_command_for_each(capsys):
    main(["show", "experiment=schedule_by_sampler", "schedule.num_timesteps=50"])
    said = capsys.readouterr().out.partition("sweeps more than is shown here:\n")[2].splitlines()
    flow = next(line for line in said if "schedule=rectified_flow" in line)
    assert "prediction=eps,x0,velocity sampler=" in flow and all("seed" not in line for line in said)
    assert sum("schedule=edm preconditioning=edm prediction=" in line for line in said) == 1
