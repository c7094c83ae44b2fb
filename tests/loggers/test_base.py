"""What reaches which logger, in which form."""

import types

import pytest
from lightning.pytorch.loggers import Logger

from diffusion_lab.loggers import (
    JsonlLogger,
    RunLogger,
    log_config,
    log_curve,
    log_directions,
    log_image,
    log_values,
    mirror_values,
    set_clock,
)
from diffusion_lab.loggers.base import flatten


class Foreign(Logger):
    """A logger of somebody else: scalars only."""

    name = version = ""

    def __init__(self):
        super().__init__()
        self.calls = []

    def log_metrics(self, metrics, step=None):
        self.calls.append((dict(metrics), step))

    def log_hyperparams(self, params, *args, **kwargs):
        self.calls.append(params)


class Own(RunLogger):
    def __init__(self):
        super().__init__("nowhere")
        self.calls = []

    def log_metrics(self, metrics, step=None):
        self.calls.append(("metrics", dict(metrics), step))

    def log_picture(self, key, path, step):
        self.calls.append(("picture", key, str(path), step))

    def log_curve(self, key, x, lines, step):
        self.calls.append(("curve", key, x, lines, step))

    def log_tags(self, tags):
        self.calls.append(("tags", list(tags)))

    def log_directions(self, better):
        self.calls.append(("better", dict(better)))


def test_lists_become_numbered_scalars_and_images_are_added(trainer):
    own, foreign = Own(), Foreign()
    log_values(trainer(own, foreign), {"val/loss": 0.5, "val/loss_t": [1.0, 2.0]})
    expected = {"images": 160, "val/loss": 0.5, "val/loss_t/00": 1.0, "val/loss_t/01": 2.0}
    assert own.calls == [("metrics", expected, 20)] and foreign.calls == [(expected, 20)]


def test_numbers_of_a_long_list_sort_as_names():
    names = list(flatten({"p": [0.0] * 101}))
    assert names == sorted(names) and names[0] == "p/000" and names[-1] == "p/100"


def test_images_need_a_data_module(trainer):
    own = Own()
    bare = trainer(own)
    bare.datamodule = None
    log_values(bare, {"a": 1.0})
    bare.datamodule = types.SimpleNamespace()
    log_values(bare, {"a": 1.0})
    assert own.calls == [("metrics", {"a": 1.0}, 20)] * 2


def test_pictures_curves_and_configuration(trainer):
    own, foreign = Own(), Foreign()
    both = trainer(own, foreign)
    log_image(both, "samples", "a.png")
    log_curve(both, "loss", [0, 1], {"run": [1.0, 2.0]})
    log_config(both, {"seed": 1})
    assert own.calls == [("picture", "samples", "a.png", 20), ("curve", "loss", [0, 1], {"run": [1.0, 2.0]}, 20)]
    assert foreign.calls == [{"seed": 1}]


def test_tags_and_directions_reach_our_loggers_alone(trainer):
    own, foreign = Own(), Foreign()
    log_config(trainer(own, foreign), {"seed": 1}, ["paper:x"])
    log_directions(trainer(own, foreign), {"val/loss": "lower"})
    assert own.calls == [("tags", ["paper:x"]), ("better", {"val/loss": "lower"})] and foreign.calls == [{"seed": 1}]


def test_mirrored_numbers_reach_all_but_the_record(trainer, tmp_path):
    own, foreign, record = Own(), Foreign(), JsonlLogger(tmp_path / "run")
    mirror_values(trainer(own, foreign, record), {"cost/memory_mb": 5.0})
    assert own.calls == [("metrics", {"images": 160, "cost/memory_mb": 5.0}, 20)]
    assert foreign.calls == [({"images": 160, "cost/memory_mb": 5.0}, 20)]
    assert not (tmp_path / "run").exists()
    mirror_values(trainer(own, is_global_zero=False), {"cost/memory_mb": 6.0})
    assert len(own.calls) == 1


def test_the_clock_is_given_to_our_loggers(trainer):
    own = Own()
    set_clock(trainer(own, Foreign()), lambda: 2.5)
    assert own.clock is not None and own.clock() == 2.5


def test_a_curve_has_one_value_for_each_x(trainer):
    with pytest.raises(ValueError, match=r"lines\['run'\] has 1 values and must have one for each of the 2"):
        log_curve(trainer(Own()), "loss", [0, 1], {"run": [1.0]})


def test_only_the_first_process_logs(trainer):
    own = Own()
    other = trainer(own, is_global_zero=False)
    log_values(other, {"a": 1.0})
    log_image(other, "samples", "a.png")
    log_curve(other, "loss", [0], {"run": [1.0]})
    assert own.calls == []
