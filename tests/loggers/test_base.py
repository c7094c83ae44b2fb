"""What reaches which logger, in which form."""

import types

import pytest
from lightning.pytorch.loggers import Logger

from diffusion_lab.loggers import RunLogger, log_config, log_curve, log_image, log_values
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
