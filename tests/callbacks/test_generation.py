"""When the samples of a snapshot are measured."""

import pytest

from diffusion_lab.callbacks.generation import Generation, measured


@pytest.mark.parametrize(
    ("every", "metrics_every", "last", "wanted"),
    [
        (500, 2000, 2000, [2000]),  # the default run
        (500, 2000, 6200, [2000, 4000, 6000, 6200]),
        (500, 0, 1600, [500, 1000, 1500, 1600]),
        (500, 500, 1500, [500, 1000, 1500]),
        (4000, 2000, 20000, [4000, 8000, 12000, 16000, 20000]),  # scale=small: every snapshot
        (26042, 2000, 60000, [26042, 52084, 60000]),
        (300, 1000, 2500, [1200, 2100, 2500]),  # the first snapshot from each thousandth step on
    ],
)
def test_the_snapshots_with_metrics(every, metrics_every, last, wanted):
    snapshots = [*range(every, last, every), last]
    assert [step for step in snapshots if measured(step, every, metrics_every, last)] == wanted


def test_an_interval_below_zero_is_refused():
    with pytest.raises(ValueError, match="^metrics_every=-1 must be an integer >= 0"):
        Generation("run", None, None, metrics_every=-1)
