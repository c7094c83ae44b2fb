"""What the network is told: labels, now and then withheld, and the task's images."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.data import Conditions, Digits, ImageDataModule, SuperResolution, to_float
from diffusion_lab.streams import Streams
from tests.data.fakes import Memory, first_batches, numbered


def labelled(n: int = 40, **kwargs) -> ImageDataModule:
    source = Memory(numbered(n), torch.arange(n) % 10, num_classes=10)
    return ImageDataModule(source, 20, conditional=True, **kwargs)


def test_labels_are_withheld_at_the_stated_rate_and_no_other_is_changed():
    kept, dropped = (first_batches(labelled(label_dropout=p), 400) for p in (0.0, 0.25))
    before, after = (torch.stack([batch["label"] for batch in batches]) for batches in (kept, dropped))
    null = after == 10
    deviation = (0.25 * 0.75 / null.numel()) ** 0.5
    assert abs(null.double().mean() - 0.25) < 4 * deviation
    assert torch.equal(after[~null], before[~null]) and not (before == 10).any()


def test_the_withheld_rows_do_not_depend_on_how_the_batch_is_split():
    conditions = labelled(label_dropout=0.3).conditions
    x0, label = torch.zeros(24, 1, 2, 2), torch.arange(24) % 10
    whole = conditions.of_batch(x0, label, Streams(3), step=5, row=0, total=24)["label"]
    parts = [conditions.of_batch(x0[i : i + 8], label[i : i + 8], Streams(3), 5, i, 24)["label"] for i in (0, 8, 16)]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(conditions.of_batch(x0, label, Streams(3), 6, 0, 24)["label"], whole)
    assert not torch.equal(conditions.of_batch(x0, label, Streams(4), 5, 0, 24)["label"], whole)


def test_the_null_label_counts_as_a_value_only_where_labels_are_withheld():
    for p, null, values in ((0.0, None, 10), (0.1, 10, 11)):
        conditions = labelled(label_dropout=p).conditions
        assert (conditions.null_label, conditions.num_labels, conditions.num_classes) == (null, values, 10)
    unconditional = Conditions(Digits())
    assert (unconditional.null_label, unconditional.num_labels, unconditional.num_classes) == (None, None, None)


def test_samples_are_asked_for_every_class_in_turn_and_no_label_of_validation_is_withheld():
    data = labelled(label_dropout=0.9)
    assert data.conditions.of_samples(range(8, 13))["label"].tolist() == [8, 9, 0, 1, 2]
    assert Conditions(Digits()).of_samples(range(5)) == {}
    (batch,) = data.val_batches(100)
    assert set(batch.cond) == {"label"} and (batch.cond["label"] < 10).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label_dropout": 0.1}, r"^label_dropout=0.1 must be 0 without labels; set conditional=true"),
        ({"conditional": True, "label_dropout": 1.0}, r"^label_dropout=1.0 must lie in \[0, 1\)"),
    ],
)
def test_a_dropout_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Conditions(Digits(), **arguments)


def test_low_resolution_is_the_mean_of_blocks():
    x0 = torch.arange(2 * 3 * 8 * 8.0).view(2, 3, 8, 8)
    low = SuperResolution(4).condition(x0)["low_res"]
    assert low.shape == (2, 3, 2, 2)
    assert torch.equal(low[1, 2, 0, 1], x0[1, 2, 0:4, 4:8].mean())
    area = torch.nn.functional.interpolate(x0, 2, mode="area")  # the call of guided-diffusion
    torch.testing.assert_close(low, area)
    shown = SuperResolution(4).shown(x0)
    assert shown.shape == x0.shape and (shown[1, 2, 0:4, 4:8] == low[1, 2, 0, 1]).all()


def test_a_factor_must_divide_the_images():
    with pytest.raises(ValueError, match=r"^factor=3 must divide the 8 pixels of the images; use 2"):
        SuperResolution(3).check((1, 8, 8))
    with pytest.raises(ValueError, match=r"^factor=1 must be an integer >= 2"):
        SuperResolution(1)
    with pytest.raises(ValueError, match=r"^task.factor=3"):
        ImageDataModule(Digits(), 8, task=SuperResolution(3)).check()


def test_the_condition_is_made_of_the_flipped_image():
    data = ImageDataModule(Memory(numbered(40)), 20, flip=True, task=SuperResolution(2))
    for batch in first_batches(data, 5):
        assert torch.equal(batch["low_res"], SuperResolution(2).condition(batch["image"])["low_res"])


def test_samples_of_a_paired_task_are_asked_for_by_test_images_and_compared_with_them():
    data = ImageDataModule(Digits(), 8, task=SuperResolution(2))
    ids = [0, 5, 3, 360]
    given, truth = data.conditions.given_and_truth(ids)
    low = data.conditions.of_samples(ids)["low_res"]
    torch.testing.assert_close(low, SuperResolution(2).condition(to_float(truth))["low_res"])
    assert torch.equal(truth[0], truth[3])  # 360 test images: sample 360 is the first's again
    assert torch.equal(given[:, :, ::2, ::2], given[:, :, 1::2, 1::2])
    known = {image.numpy().tobytes() for image in data.reference("test")}
    assert all(image.numpy().tobytes() in known for image in truth)
    everything = data.conditions.given_and_truth(range(360))[1]
    assert {image.numpy().tobytes() for image in everything} == known


def test_a_blank_batch_has_the_shape_of_a_real_one():
    data = ImageDataModule(Digits(), 8, conditional=True, task=SuperResolution(4))
    image, cond = data.conditions.blank(3, "meta")
    assert image.shape == (3, 1, 8, 8) and {k: v.shape for k, v in cond.items()} == {
        "label": (3,),
        "low_res": (3, 1, 2, 2),
    }
