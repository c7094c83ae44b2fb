"""All figures over ln SNR have the same direction: noise grows to the right, as it does along t."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from diffusion_lab.plotting import LOG_SNR
from diffusion_lab.reports import timestep_numbers
from diffusion_lab.reports.figures.losses import loss_by_log_snr
from experiments import option_figures
from experiments.crossed import EDGES
from tests.reports.figures.test_loss_over_noise import groups

ROOT = Path(__file__).parents[3]


def falling(figure: Figure) -> list[bool]:
    """Whether ln SNR falls from left to right, for each axis over it."""
    axes = [axis for axis in figure.axes if axis.get_xlabel() == LOG_SNR]
    return [axis.get_xlim()[0] > axis.get_xlim()[1] for axis in axes]


def method(name: str) -> timestep_numbers.TimestepNumbers:
    t = np.linspace(0, 1, 50)
    return timestep_numbers.TimestepNumbers(name, 9 - 18 * t, np.full(50, 0.02), 1 + t, "")


def test_what_show_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(timestep_numbers, "svg", lambda figure: drawn.append(figure) or b"")
    timestep_numbers.write_figure(tmp_path, [method("uniform")], "eps")
    assert falling(drawn[0]) == [True] * 3


@pytest.mark.parametrize("count", [1, 8])
def test_the_loss_of_a_report(count: int, tmp_path: Path, drawn: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As lines in one panel, and in a panel for each of many groups."""
    monkeypatch.setattr("diffusion_lab.reports.figures.losses.many", lambda _: count > 1)
    assert loss_by_log_snr(groups(tmp_path, [9.0, -9.0], [5.0, -5.0])) is not None
    found = falling(drawn[0])
    assert found and all(found)


def test_the_pages_of_options() -> None:
    assert falling(option_figures._known("sampler", [[method("linear")], [method("cosine")]])) == [True]
    share = {"linear": np.full(len(EDGES) - 1, 1 / 24)}
    assert falling(option_figures._averaged(share, share)) == [True]


def test_what_changes_with_the_step_is_drawn_after_its_changes_too() -> None:
    """The figure of fdm_warmup was that of min_snr, its weight at step 0."""
    (first, late), (one,) = (option_figures._shown("weighting", name, "linear") for name in ("fdm_warmup", "min_snr"))
    assert first.name == "linear, step 0" and late.name == "linear, after all changes"
    np.testing.assert_array_equal(first.weight, one.weight)
    np.testing.assert_allclose(late.weight, 1.0)


def test_no_figure_has_an_axis_of_its_own() -> None:
    """The function is the only place that labels this axis; the notebook, which stands alone, has the same label."""
    paths = [path for folder in ("diffusion_lab", "experiments") for path in (ROOT / folder).rglob("*.py")]
    own = re.compile(r"set_xlabel\([^)]*SNR \(|xlabel=[^,]*SNR")
    assert [path.name for path in paths if own.search(path.read_text(encoding="utf-8"))] == []
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    labels = re.findall(r'xlabel="(ln SNR[^"]*)".*xlim=\((.*?), (.*?)\)', "".join("".join(c["source"]) for c in cells))
    assert [(label, float(left) > float(right)) for label, left, right in labels] == [(LOG_SNR, True)]
