from __future__ import annotations

import math

import pytest
import torch
from PIL import Image

from diffusion_lab.data import (
    ArrayImages,
    Curriculum,
    Digits,
    ImageDataModule,
    ImageFolder,
    ImageSet,
    to_float,
    to_uint8,
)
from tests.data.fakes import Memory, first_batches, numbered, trainer


def module(n: int = 40, batch_size: int = 8, **kwargs) -> ImageDataModule:
    return ImageDataModule(Memory(numbered(n)), batch_size, **kwargs)


def ids_of(image: torch.Tensor) -> torch.Tensor:
    """The image numbers, read from the pixels of possibly flipped images."""
    return to_uint8(image)[:, 0, 0].min(1).values.long()


def test_bytes_become_numbers_exactly():
    u = torch.arange(256, dtype=torch.uint8)
    x = to_float(u)
    assert x.dtype == torch.float32 and x[0] == -1 and x[255] == 1
    torch.testing.assert_close(x.double(), u.double() / 127.5 - 1, rtol=0, atol=2**-24)
    assert torch.equal(x, -x.flip(0)) or (x + x.flip(0)).abs().max() < 1e-7  # symmetric about grey
    assert torch.equal(to_uint8(x), u)
    assert to_uint8(torch.tensor([-3.0, 3.0])).tolist() == [0, 255]


def test_a_batch_is_what_the_order_says():
    data = module()
    for step, batch in enumerate(first_batches(data, 7)):
        assert set(batch) == {"image", "index"} and batch["image"].dtype == torch.float32
        assert torch.equal(ids_of(batch["image"]), data.order.indices(step))
        assert torch.equal(ids_of(batch["image"]), batch["index"])
        assert torch.equal(batch["image"], to_float(numbered()[data.order.indices(step)]))


def test_labels_only_when_conditional():
    source = Memory(numbered(), torch.arange(40) % 10, num_classes=10)
    data = ImageDataModule(source, 8, conditional=True)
    batch = first_batches(data, 1)[0]
    assert set(batch) == {"image", "index", "label"} and data.num_classes == 10
    assert torch.equal(batch["label"], ids_of(batch["image"]) % 10)
    data = ImageDataModule(source, 8)
    assert set(first_batches(data, 1)[0]) == {"image", "index"} and data.num_classes is None


def mirrored(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(b,) bool, seen in the pixels; image numbers stay below the 200 of the other column."""
    return batch["image"][:, 0, 0, 0] > batch["image"][:, 0, 0, 1]


def test_half_of_the_images_are_flipped_and_no_image_is_otherwise_changed():
    data = module(batch_size=40, flip=True)
    batches = first_batches(data, 100)
    flips = torch.stack([mirrored(batch) for batch in batches])
    assert abs(flips.double().mean() - 0.5) < 4 * 0.5 / math.sqrt(flips.numel())
    assert (flips.double().mean(0) - 0.5).abs().max() < 5 * 0.5 / math.sqrt(len(batches))  # of every row
    for step, (batch, flip) in enumerate(zip(batches, flips, strict=True)):
        back = torch.where(flip.view(-1, 1, 1, 1), batch["image"].flip(-1), batch["image"])
        assert torch.equal(to_uint8(back), numbered()[data.order.indices(step)])


def pixels_by_row(world_size: int, accumulate: int, steps: int, start: int = 0, **kwargs) -> torch.Tensor:
    """(steps, G, 1, 2, 2): the images of whole global batches, put together from ranks and microbatches."""
    whole = torch.empty(steps, 8, 1, 2, 2)
    for rank in range(world_size):
        data = module(accumulate=accumulate, flip=True, **kwargs)
        data.trainer = trainer(rank, world_size, start)
        for i, batch in enumerate(first_batches(data, steps * accumulate)):
            b = len(batch["image"])
            row = (i % accumulate * world_size + rank) * b
            assert torch.equal(ids_of(batch["image"]), batch["index"])
            whole[i // accumulate, row : row + b] = batch["image"]
    return whole


ORDERS = pytest.mark.parametrize("order", [None, Curriculum(steps=8)], ids=["shuffled", "curriculum"])


@ORDERS
@pytest.mark.parametrize(("world_size", "accumulate"), [(2, 1), (1, 2), (2, 4)])
def test_flips_and_order_do_not_depend_on_ranks_or_accumulation(world_size, accumulate, order):
    whole = pixels_by_row(1, 1, 12, order=order)
    assert torch.equal(pixels_by_row(world_size, accumulate, 12, order=order), whole)
    usual = pixels_by_row(1, 1, 12)
    assert [torch.equal(*pair) for pair in zip(whole, usual, strict=True)] == [order is None] * 8 + [True] * 4


def test_flips_and_order_do_not_depend_on_workers():
    assert torch.equal(pixels_by_row(1, 2, 6, num_workers=2), pixels_by_row(1, 1, 6))


@ORDERS
def test_a_run_goes_on_at_the_trainers_step(order):
    assert torch.equal(pixels_by_row(1, 1, 5, start=4, order=order), pixels_by_row(1, 1, 9, order=order)[4:])


def test_another_seed_flips_and_orders_differently():
    assert not torch.equal(pixels_by_row(1, 1, 5, seed=1), pixels_by_row(1, 1, 5))


def test_the_loader_does_not_touch_the_global_generator():
    data = module(num_workers=1)
    before = torch.get_rng_state()
    first_batches(data, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_references_are_the_same_for_every_seed():
    data = module(seed=0)
    assert torch.equal(data.reference("train"), numbered())
    some = data.reference("test", 10)
    assert torch.equal(some, module(seed=9).reference("test", 10)) and some.dtype == torch.uint8
    assert not torch.equal(some, numbered(10))  # not simply the first
    assert len(some[:, 0, 0, 0].unique()) == 10
    with pytest.raises(ValueError, match=r"n=41 must lie in 1..40"):
        data.reference("train", 41)
    with pytest.raises(ValueError, match="split=val must be train or test"):
        data.reference("val")


@pytest.mark.parametrize("val_images", [None, 11])
def test_validation_images_are_divided_among_ranks_without_padding(val_images):
    source = Memory(numbered(), torch.arange(40) % 3, num_classes=3)
    data = ImageDataModule(source, 8, conditional=True, val_images=val_images, flip=True)
    alone = list(data.val_batches(100))
    assert len(alone) == 1 and torch.equal(alone[0].ids, torch.arange(data.num_val_images))
    assert data.num_val_images == (val_images or 40)
    seen = {}
    for rank in range(3):
        for batch in data.val_batches(4, rank, 3):
            assert len(batch.ids) <= 4 and not set(batch.ids.tolist()) & set(seen)
            seen |= {int(i): (x, y) for i, x, y in zip(batch.ids, batch.image, batch.cond["label"], strict=True)}
    assert sorted(seen) == list(range(data.num_val_images))
    assert all(torch.equal(seen[i][0], alone[0].image[i]) for i in seen)
    assert torch.equal(ids_of(alone[0].image) % 3, alone[0].cond["label"])


def test_the_fingerprint_follows_the_images():
    changed = numbered()
    changed[39, 0, 1, 1] += 1
    assert module().fingerprint() == module(seed=3, batch_size=4).fingerprint()
    assert module().fingerprint() != ImageDataModule(Memory(changed), 8).fingerprint()
    assert len(module().fingerprint()) == 12
    record = module().describe()
    assert (record.name, record.shape, record.train.images, record.test.images) == ("memory", (1, 2, 2), 40, 40)
    assert record.train.fingerprint == module().fingerprint()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(batch_size=0), "batch_size=0 must be an integer >= 1"),
        (dict(batch_size=-8), "batch_size=-8 must be an integer >= 1"),
        (dict(batch_size=6, accumulate=4), "batch_size=6 must be a multiple of .* = 4; use 4 or 8"),
        (dict(num_workers=-1), "num_workers=-1 must be an integer >= 0"),
        (dict(val_images=0), "val_images=0 must be an integer >= 1"),
        (dict(seed=-1), "seed=-1 must be an integer >= 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        module(**arguments)


def test_what_check_finds():
    with pytest.raises(ValueError, match="batch_size=10 must be a multiple of 4 processes x 1 .*use 8 or 12"):
        module(batch_size=10).check(world_size=4)
    with pytest.raises(ValueError, match="batch_size=64 must not exceed the 40 training images of memory; use at most"):
        module(batch_size=64).check()
    with pytest.raises(ValueError, match="conditional=true must have labels, and memory has none"):
        module(conditional=True).check()
    module(batch_size=40).check(world_size=4)


def test_a_label_beyond_the_classes_is_named_before_training():
    labels = torch.arange(40) % 10
    labels[17] = 12
    data = ImageDataModule(Memory(numbered(), labels, num_classes=10), 8, conditional=True)
    with pytest.raises(ValueError, match=r"labels in 0..9, but training image 17 has 12 \(1 such"):
        data.setup("fit")


def test_the_images_must_lie_in_the_declared_range():
    too_small = ImageDataModule(Memory((numbered() > 100).to(torch.uint8)), 8)
    with pytest.raises(ValueError, match=r"must give bytes 0..255, but all images lie in 0..1; multiply"):
        too_small.setup("fit")
    in_bytes = ImageDataModule(Memory(numbered().float()), 8)
    with pytest.raises(ValueError, match=r"must give values in \[-1.0, 1.0\], but the images lie in \["):
        in_bytes.setup("fit")
    right = ImageDataModule(Memory(to_float(numbered())), 8)
    right.setup("fit")
    assert torch.equal(first_batches(right, 1)[0]["image"], to_float(numbered())[right.order.indices(0)])


@pytest.mark.parametrize("value", [0, 1, 255])
def test_constant_images_are_accepted(value):
    ImageDataModule(Memory(torch.full((40, 1, 2, 2), value, dtype=torch.uint8)), 8).setup("fit")


def test_sparse_images_are_accepted_whichever_batch_comes_first_and_wherever_a_run_goes_on():
    images = torch.zeros(40, 1, 2, 2, dtype=torch.uint8)
    images[::10] = 200
    images[5] = 1  # noise of an almost black photograph
    for step in range(20):
        data = ImageDataModule(Memory(images), 8, seed=3)
        data.setup("fit")
        data.trainer = trainer(step=step)
        assert first_batches(data, 1)[0]["image"].min() == -1
    dark = torch.zeros(40, 1, 2, 2, dtype=torch.uint8)
    dark[::2] = 1
    source = Memory(dark)
    source._loaded["test"] = ArrayImages(images)  # one bright image anywhere is enough
    source.check_values()


class Lazy(ImageSet):
    """Images whose extremes are not known."""

    labels = None

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def take(self, ids):
        return self.images[torch.as_tensor(ids)]

    def fingerprint(self):
        return "0" * 12


@pytest.mark.parametrize("known", [True, False])
def test_floats_that_were_not_scaled_are_said(known, caplog):
    def source(images):
        made = Memory(images)
        made.load = lambda split: ArrayImages(images) if known else Lazy(images)
        return made

    random = torch.rand(100, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(
        ValueError, match=r"images lie in \[.*\]; give x / 127.5 - 1, or bytes 0..255, or declare another"
    ):
        ImageDataModule(source(random * 255), 8).setup("fit")
    for images, said in (
        (random, "give x * 2 - 1, or bytes 0..255"),
        (random * 2 - 1, ""),
        (random.mul(255).byte(), ""),
    ):
        caplog.clear()
        data = ImageDataModule(source(images), 8)
        data.setup("fit"), data.setup("fit")
        assert len(caplog.messages) == bool(said) and said in "".join(caplog.messages)
    unbounded = source(random * 255)
    unbounded.value_range = None
    ImageDataModule(unbounded, 8).setup("fit")


@pytest.mark.parametrize("conditional", [True, False])
def test_a_class_without_a_training_image_is_said(conditional, caplog):
    """A conditional model would make samples of it; the split of a folder with few images may leave one out."""

    source = Memory(numbered(20), torch.arange(20) % 2, num_classes=3)
    ImageDataModule(source, 8, conditional=conditional).setup("fit")
    said = f"1 of the 3 classes of {source.name} have no training image (2), and samples are made of all: leave these"
    assert [text.startswith(said) for text in caplog.messages if "no training image" in text] == [True] * conditional


def test_images_that_are_all_equal_are_said_once(tmp_path, caplog):
    for i in range(20):
        Image.new("RGB", (8, 8), (0, 0, 0)).save(tmp_path / f"{i}.png")
    one = numbered(2)[1:].repeat(40, 1, 1, 1)
    folder = {
        memory: ImageFolder(tmp_path, 8, memory_mb=memory, cache_dir=tmp_path / "cache") for memory in (0.0001, 9)
    }
    for source, number in ((Memory(one), 40), *((source, 18) for source in folder.values())):
        caplog.clear()
        data = ImageDataModule(source, 8)
        data.setup("fit"), data.setup("validate")
        (said,) = [text for text in caplog.messages if "equal" in text]
        assert said == f"all {number} training images of {source.name} are equal; check the files"
    one[-1, 0, 0, 0] += 1
    caplog.clear()
    ImageDataModule(Memory(one), 8).setup("fit")
    assert caplog.messages == []


def test_float_images_must_be_finite():
    images = torch.randn(20, 1, 4, 4)
    images[7, 0, 1, 2] = math.nan
    images[9, 0, 0, 0] = math.inf
    with pytest.raises(ValueError, match=r"images=2 of 20 must not contain NaN or infinity, the first are \[7, 9\]"):
        ArrayImages(images)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(3, 1, 4, 5, dtype=torch.uint8), None, "must have the shape"),
        (torch.zeros(0, 1, 4, 4, dtype=torch.uint8), None, "must have the shape"),
        (torch.zeros(3, 1, 4, 4, dtype=torch.int32), None, "must be uint8"),
        (torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.zeros(2), "labels=.* one per image"),
    ],
)
def test_arrays_of_another_shape_or_type(images, labels, message):
    with pytest.raises(ValueError, match=message):
        ArrayImages(images, labels)


def test_errors_of_the_source_are_named_from_the_data_module(monkeypatch):
    source = Digits()
    monkeypatch.setattr(source, "check", lambda: (_ for _ in ()).throw(FileNotFoundError("root=/x must be there")))
    with pytest.raises(FileNotFoundError, match="^source.root=/x must be there"):
        ImageDataModule(source, 8).check()
