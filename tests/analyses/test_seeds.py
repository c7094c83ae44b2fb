"""Groups of runs that differ in their seed, and the intervals over seeds."""

import math
from dataclasses import replace

import numpy as np
import pytest

from diffusion_lab.analyses.seeds import groups_of, over_seeds
from diffusion_lab.intervals import mean_interval
from tests.analyses.models import Constant, source, trained


def model(folder, config, **given):
    return replace(trained(Constant(), source(), folder=folder, **given), config=config)


def pairs(runs):
    return [(group["name"], group["members"]) for group in groups_of(runs)]


def test_runs_that_differ_in_the_seed_alone_are_one_group():
    runs = [
        model(f"/r/digits-{method}-s{seed}-0a1b2c3{seed}", {"sampler": method, "seed": seed})
        for seed in (0, 1)
        for method in ("uniform", "clts")
    ]
    assert pairs(runs) == [("uniform", [0, 2]), ("clts", [1, 3])]
    assert pairs(runs[::2]) == [("", [0, 1])]


def test_steps_and_weights_are_groups_of_their_own():
    config = {"sampler": "uniform", "seed": 0}
    one = [model("/r/a-s0", config, step=step, decay=decay) for step, decay in ((1, None), (2, None), (2, 0.9))]
    assert pairs(one) == [
        ("step 1, raw weights", [0]),
        ("step 2, raw weights", [1]),
        ("step 2, EMA 0.9", [2]),
    ]


def test_two_configurations_of_one_name():
    """The setting that tells them apart, classes first; only what is not said by the folders' names."""
    runs = [model("/r/a-s0", {"optimizer": {"lr": lr}, "steps": 9}) for lr in (1, 2)]
    assert [name for name, _ in pairs(runs)] == ["lr=1", "lr=2"]
    runs = [
        model(f"/r/digits-s{seed}", {"seed": seed, "prediction": {"_target_": f"x.{kind}"}, "depth": depth})
        for seed, (kind, depth) in enumerate([("X0", 1), ("Epsilon", 1), ("Epsilon", 2)])
    ]
    assert [name for name, _ in pairs(runs[:2])] == ["prediction X0", "prediction Epsilon"]
    assert [name for name, _ in pairs(runs)] == [
        "prediction X0 depth=1",
        "prediction Epsilon depth=1",
        "prediction Epsilon depth=2",
    ]
    runs = [model("/r/a-s0", {"sizes": sizes}, config_hash=sign * 64) for sizes, sign in (([1], "b"), ([2], "c"))]
    assert [name for name, _ in pairs(runs)] == ["sizes=[1]", "sizes=[2]"]


def test_only_those_of_one_name_are_told_apart():
    """Two networks of one method, which the folders do not name, beside another method with other weights."""
    runs = [model("/r/digits-uniform-s0", {"network": {"_target_": f"x.{kind}"}}) for kind in ("UNet", "UViT")]
    runs.append(model("/r/digits-gan-s0", {"network": {"_target_": "x.DCGAN"}}, decay=0.9))
    assert [name for name, _ in pairs(runs)] == ["uniform, network UNet", "uniform, network UViT", "gan"]


def test_the_default_beside_others_is_named_by_its_setting():
    """ "uniform" beside "uniform-x0" would not say which prediction it has."""
    kinds = [("digits-uniform", "Epsilon"), ("digits-uniform-x0", "X0")]
    runs = [model(f"/r/{slug}-s0", {"prediction": {"_target_": f"x.{kind}"}}) for slug, kind in kinds]
    assert [name for name, _ in pairs(runs)] == ["prediction Epsilon", "x0"]
    later = [replace(run, step=2) for run in runs]
    names = [name for name, _ in pairs([*runs, *later])]
    assert names == ["prediction Epsilon, step 1", "x0, step 1", "prediction Epsilon, step 2", "x0, step 2"]
    other = model("/r/digits-clts-s0", {"sampler": "clts"})
    assert [name for name, _ in pairs([*runs, other])] == ["uniform", "uniform-x0", "clts"]


def test_the_mean_over_seeds_and_its_interval():
    values = np.array([[1.0, 10.0], [5.0, 0.0], [2.0, 12.0], [3.0, 17.0]])
    mean, half = over_seeds(values, [0, 2, 3])
    for k in range(2):
        expected = mean_interval(values[[0, 2, 3], k].tolist())
        assert mean[k] == pytest.approx(expected.mean) and half[k] == pytest.approx(expected.half_width)
    assert mean[0] == 2 and half[0] == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # t(0.95, 2), s = 1
    alone, none = over_seeds(values, [1])
    assert np.array_equal(alone, [5.0, 0.0]) and np.isnan(none).all()


def test_what_repeats_the_seed_or_the_folder_is_no_difference():
    """A configuration read back is resolved: dataset.seed is the run's seed, and callbacks name its folder."""

    def run(seed, crops, lr=1):
        folder = f"/r/photos-uniform-s{seed}-0a1b2c3{seed}"
        config = {
            "seed": seed,
            "paths": {"run_dir": folder},
            "dataset": {"seed": seed, "source": {"seed": crops}},
            "callbacks": {"checkpoint": {"directory": f"{folder}/checkpoints"}},
            "optimizer": {"lr": lr},
        }
        return model(folder, config)

    assert [members for _, members in pairs([run(0, 0), run(1, 0), run(2, 0)])] == [[0, 1, 2]]
    assert [members for _, members in pairs([run(0, 5), run(1, 0), run(1, 5)])] == [[0, 2], [1]]
    assert [members for _, members in pairs([run(0, 0), run(1, 0, lr=2)])] == [[0], [1]]
