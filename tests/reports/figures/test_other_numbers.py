"""The figure of numbers that no other figure shows."""

import base64

import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.figures import other_numbers
from tests.reports.synthetic import log, write_run


@pytest.fixture
def runs(tmp_path):
    """Two runs, the first of which has logged numbers and a list of its own."""
    for name in ("uniform", "stratified"):
        write_run(tmp_path / name, name, 0, steps=50)
    for step in (60, 70):
        log(tmp_path / "uniform", step, own__norm=float(step), optim__beta2=0.9, own__list=[1.0, 2.0])
        log(tmp_path / "uniform", step, **{"own__$x$": 1.0})  # formulas of Matplotlib are no titles
    return tmp_path


def test_it_shows_every_number_of_ones_own_and_no_list(runs):
    figure = other_numbers(group_runs(read_runs(runs).runs))
    assert figure is not None and figure.title == "Other numbers against images seen"
    drawing = base64.b64decode(figure.image.partition("base64,")[2]).decode()
    assert all(text in drawing for text in ("own/norm", "optim/beta2", "uniform"))
    assert "own/list" not in drawing and "x$" not in drawing


def test_it_names_those_that_have_no_panel_and_gives_a_direction_only_where_one_is_known(runs, drawn):
    for step in (80, 90):
        own = {f"own__n{k}": 1.0 for k in range(4)}
        log(runs / "uniform", step, **own, step_size=0.1 * step, train__loss_mine=2.0, val__loss_mine=1.0)
    log(runs / "uniform", 90, **{f"a__point{k}": 1.0 for k in range(4)})
    figure = other_numbers(group_runs(read_runs(runs).runs))
    titles = [axis.get_title(loc="left") for axis in drawn[0].axes]
    assert titles == ["optim/beta2", "own/n0", "own/n1", "own/n2"]  # what has one point comes last
    rest = ["own/n3", "own/norm", "step_size", "train/loss_mine", "val/loss_mine", *(f"a/point{k}" for k in range(4))]
    assert figure is not None and figure.caption.endswith(f"Also logged: {', '.join(rest)}.")


def test_what_is_not_drawn_is_named_however_many_there_are(runs):
    log(runs / "uniform", 70, own__point=1.0)
    figure = other_numbers(group_runs(read_runs(runs).runs))
    assert figure is not None and figure.caption.endswith(" Also logged: own/point.")


def test_runs_of_the_package_have_no_such_figure(sweep):
    assert other_numbers(group_runs(read_runs(sweep).runs)) is None
