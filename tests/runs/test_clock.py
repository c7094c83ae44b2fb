"""Seconds by step: interpolated between the lines of timing.jsonl, from 0 at step 0."""

from __future__ import annotations

import numpy as np
import pytest

from diffusion_lab.runs.run import clock

LINES = [{"step": 10, "seconds": 5.0}, {"step": 30, "seconds": 45.0}]


def test_steps_before_between_and_after_the_lines():
    found = clock(LINES, "seconds")
    assert found is not None
    np.testing.assert_allclose(found.at(np.array([0, 4, 10, 20, 30, 40])), [0, 2, 5, 25, 45, 60])


def test_time_never_decreases_and_a_repeated_step_counts_once():
    found = clock([*LINES, {"step": 30, "seconds": 50.0}, {"step": 40, "seconds": 49.0}], "seconds")
    assert found is not None and found.seconds.tolist() == [5, 50, 50] and found.steps.tolist() == [10, 30, 40]


@pytest.mark.parametrize(
    "lines", [[], [{"step": 3}], [{"step": 0, "seconds": 1.0}], [*LINES, {"step": 40}], [{"step": 3, "seconds": "x"}]]
)
def test_without_the_time_there_is_no_clock(lines):
    assert clock(lines, "seconds") is None
