"""Sections of what is logged; each kind of panel names what it misses."""

from __future__ import annotations

import pytest

from diffusion_lab.dashboards import Bars, Chart, Lines, Pictures, expected, logged_by, sections
from diffusion_lab.dashboards.logged import LISTS
from diffusion_lab.runs.find import read_run
from tests.reports.synthetic import write_run

FULL = expected({"fd1k_digits": "lower", "is1k_digits": "higher"})


def titles(logged, name):
    (section,) = [section for section in sections(logged) if section.name.startswith(name)]
    return [panel.title for panel in section.panels]


def test_every_view_of_the_issue_is_there():
    lines = [panel for section in sections(FULL) for panel in section.panels if isinstance(panel, Lines)]
    for key in ("metrics/fd1k_digits", "metrics/is1k_digits", "val/loss"):
        assert {panel.x for panel in lines if panel.y == (key,)} == {"images", "seconds"}
    charts = [panel for section in sections(FULL) for panel in section.panels if isinstance(panel, Chart)]
    assert {(c.key, c.over) for c in charts} >= {("val/loss_t", "timestep"), ("val/loss_t", "log_snr")}
    assert {c.key for c in charts} == set(LISTS)
    assert titles(FULL, "Quality")[:3] == ["fd1k_digits, lower is better"] * 2 + ["is1k_digits, higher is better"]
    assert titles(FULL, "Sample grids") == ["Samples"]
    assert len(titles(FULL, "Cost")) == 6


@pytest.mark.parametrize(
    ("panel", "missing"),
    [
        (Lines("a", "images", ("val/loss",), "x"), []),
        (Lines("a", "images", ("val/loss", "nobody/logs_this"), "x"), ["nobody/logs_this"]),
        (Lines("a", "epochs", ("val/loss",), "x"), ["epochs"]),
        (Lines("a", "images", ("val/loss_t",), "x"), ["val/loss_t"]),  # a list is no number
        (Chart("a", "val/loss_t", "log_snr"), []),
        (Chart("a", "val/loss_t", "noise_angle"), ["val/loss_t: noise_angle"]),
        (Chart("a", "val/loss", "timestep"), ["val/loss"]),
        (Pictures("a", "samples"), []),
        (Pictures("a", "grids"), ["grids"]),
        (Bars("a", "seconds"), []),
        (Bars("a", "gpu_hours"), ["gpu_hours"]),
    ],
)
def test_a_panel_names_what_was_not_logged(panel, missing):
    assert panel.missing(FULL) == missing


def test_panels_without_data_are_left_out():
    bare = FULL._replace(numbers=FULL.numbers - {"val/loss", "metrics/fd1k_digits"}, lists={}, pictures=frozenset())
    names = [section.name for section in sections(bare)]
    assert not [name for name in names if name.startswith(("Loss", "Density", "Sample", "Heads"))]
    assert titles(bare, "Quality") == ["is1k_digits, higher is better"] * 2


def test_what_the_files_of_a_run_have(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=250)
    logged = logged_by([read_run(tmp_path / "run")])
    assert {"train/loss", "metrics/fd1k_digits", "images", "seconds"} <= logged.numbers and "step" not in logged.numbers
    assert logged.lists["val/loss_t"] == ("timestep", "log_snr", "value")
    assert logged.better["fd1k_digits"] == "lower" and "samples" in logged.pictures
    assert logged_by([]).lists == {} and sections(logged_by([]))[0].name == "Cost"


def test_a_metric_of_which_neither_direction_is_better_says_so():
    assert titles(expected({"sample_variance1k": "neither"}), "Quality")[0] == (
        "sample_variance1k, neither direction is better"
    )
