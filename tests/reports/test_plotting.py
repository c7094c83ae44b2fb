"""Labels that do not overlap, and means over seeds."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from diffusion_lab import plotting, reports
from diffusion_lab.plotting import line_style, spread, style
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import over_seeds, seeds_text
from diffusion_lab.reports.figures.timesteps import TimeAxis, edges, relative
from diffusion_lab.runs.curve import Curve


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_spread_as_little_as_possible(seed):
    wanted, gap, lowest = np.random.default_rng(seed).uniform(0, 1, 6), 0.15, 0.1
    places = spread(wanted, gap, lowest)
    order = np.argsort(wanted)
    assert np.diff(places[order]).min() >= gap - 1e-12 and places.min() >= lowest

    apart = {"type": "ineq", "fun": lambda y: np.append(np.diff(y[order]) - gap, y.min() - lowest)}
    best = minimize(lambda y: ((y - wanted) ** 2).sum(), places + 0.01, constraints=[apart], tol=1e-12)
    assert ((places - wanted) ** 2).sum() <= best.fun + 1e-6


def test_text_of_a_figure_is_at_least_nine_pixels_high_on_a_phone():
    css = (Path(reports.__file__).parent / "pages" / "page.css").read_text()
    (rem,) = re.findall(r"figure\.plot \.scroll img { min-width: ([\d.]+)rem", css)
    assert plotting.SMALLEST / (72 * plotting.WIDTH) * 16 * float(rem) >= 9
    sources = [*Path(reports.__file__).parent.glob("figures/*.py"), Path(plotting.__file__)]
    sizes = [float(size) for path in sources for size in re.findall(r"\b(?:font)?size=(\d[\d.]*)", path.read_text())]
    assert sizes and min(sizes) >= plotting.SMALLEST


def test_no_axis_has_an_offset_that_is_added_to_its_ticks():
    with style():
        _, axes = plotting.panels(2)
        for axis in axes:
            axis.plot([10_000, 10_001], [0.9992, 1.0002])
            for one in (axis.xaxis, axis.yaxis):
                labels = [label.get_text() for label in one.get_majorticklabels()]
                assert one.get_major_formatter().get_offset() == "" and len(set(labels)) == len(labels), labels
        assert "1.0000" in [label.get_text() for label in axes[1].get_yticklabels()]


@pytest.mark.filterwarnings("ignore:Data has no positive values")
@pytest.mark.parametrize("values", [[np.nan, np.nan], [-1.0, np.nan], [0.0, 0.0]])
def test_a_logarithmic_axis_of_nothing_positive_is_drawn(values):
    figure, (axis,) = plotting.panels(1)
    axis.plot([1, 2], values)
    plotting.log_axis(axis)
    figure.canvas.draw()


def test_labels_with_room_stay_where_they_are():
    wanted = np.array([0.9, 0.1, 0.5])
    np.testing.assert_allclose(spread(wanted, 0.1), wanted, atol=1e-12)
    assert len(spread(np.array([]), 0.1)) == 0


def test_the_mean_is_taken_where_all_seeds_are():
    images = np.array([10, 20, 30])
    a = Curve(images, images, np.array([1.0, 2.0, 3.0]))
    b = Curve(images[:2], images[:2], np.array([3.0, 6.0]))
    mean = over_seeds([a, b])
    assert mean.images.tolist() == [10, 20] and mean.mean.tolist() == [2.0, 4.0]
    assert (mean.low.tolist(), mean.high.tolist()) == ([1.0, 2.0], [3.0, 6.0])
    assert over_seeds([]) is None


def test_seeds_are_told_shortly():
    def text(**counts):
        groups = [Group([], label=label) for label in counts]
        return seeds_text(groups, lambda group: range(counts[group.label])).partition(";")[0]

    assert text(a=1, b=1) == "1 seed each" and text(a=5, b=5) == "5 seeds each"
    assert text(a=5, b=5, c=4) == "5 seeds each but c 4"
    assert text(a=5, b=4) == "seeds: a 5, b 4"


class _Fake:
    config = {"schedule": {"num_timesteps": 10}}


def test_ranges_of_timesteps_are_those_of_the_log():
    t = np.arange(10)
    for bins in (1, 3, 4, 10):
        counted = np.bincount(t * bins // 10, minlength=bins)  # as TimestepLog bins
        np.testing.assert_array_equal(np.diff(edges(_Fake, bins)), counted)
        np.testing.assert_allclose(relative(_Fake, counted / 10), 1)  # the uniform law


class _Longer:
    config = {"schedule": {"num_timesteps": 40}}


def test_groups_with_other_numbers_of_timesteps_share_an_axis():
    both, one = TimeAxis.of([_Fake, _Longer]), TimeAxis.of([_Fake, _Fake])
    assert (both.label, one.label) == ("timestep t/T", "timestep t")
    np.testing.assert_allclose(both.edges(_Fake, 5), [0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_allclose(both.edges(_Longer, 5), both.edges(_Fake, 5))
    assert one.edges(_Fake, 5).tolist() == [0, 2, 4, 6, 8, 10]


def test_a_legend_has_the_names_of_all_panels():
    """A group that has only what the second panel shows was in none; without a name in the first it failed."""
    long = ["a" * 30, "b" * 30]
    for first in ([], long[:1]):
        with plotting.style():
            figure, axes = plotting.panels(2)
            for axis, names in zip(axes, (first, long), strict=True):
                for name in names:
                    axis.plot([0, 1], label=name, color=f"C{len(axis.lines) + 3 * (axis is axes[1])}")
            plotting.name_lines(figure, axes, [[(1.0, name, "red") for name in names] for names in (first, long)])
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == long
        first_panel = [*axes[0].lines, *axes[1].lines[len(first) :]]
        assert [line.get_color() for line in legend.get_lines()] == [line.get_color() for line in first_panel]


def test_a_quotation_mark_in_a_label_leaves_the_picture_whole():
    from xml.etree import ElementTree

    with plotting.style():
        figure, (axis,) = plotting.panels(1)
        axis.plot([0, 1])
        axis.set_title('5" disk')
        drawn = plotting.svg(figure)
    ElementTree.fromstring(drawn)
    assert b'<!-- 5" disk -->' in drawn


def test_no_two_groups_look_alike():
    styles = [line_style(i) for i in range(28)]
    assert len(set(styles)) == 28


@pytest.mark.parametrize(("low", "high"), [(0.83, 1.12), (0.21, 0.49), (1.0, 4.9), (3.0, 40.0), (1e-3, 10.0)])
def test_a_logarithmic_axis_has_two_labels_or_more(low, high):
    with plotting.style():
        figure, (axis,) = plotting.panels(1)
        axis.plot([0, 1], [low, high])
        plotting.log_axis(axis)
        figure.draw_without_rendering()
        labels = [label.get_text() for label in axis.get_yticklabels(which="both") if label.get_text()]
        low, high = axis.get_ylim()
        assert len([text for text in labels if low <= float(text) <= high]) >= 2
