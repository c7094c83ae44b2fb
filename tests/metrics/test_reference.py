"""The cache of reference statistics: right, fast the second time, and never of something else."""

import json
import multiprocessing
import os
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist

from diffusion_lab.data import ArrayImages, to_float
from diffusion_lab.metrics import extract, reference_statistics
from diffusion_lab.metrics import reference as reference_module
from diffusion_lab.metrics.features import features_of
from diffusion_lab.metrics.reference import describe, features_of_some, load


@pytest.fixture
def images(digits):
    return ArrayImages(digits.source.train().images[:300])


def only_file(folder):
    (path,) = folder.glob("*.npz")
    return path


def test_statistics_are_those_of_all_images_and_points_are_spread(images, digits, tmp_path):
    found = reference_statistics(images, digits.features, "digits", "train", subset=100, folder=tmp_path)
    features = extract(digits.features, images.images).features
    wanted = features.double().numpy()
    assert np.allclose(found.statistics.mu, wanted.mean(0), rtol=1e-12)
    assert np.allclose(found.statistics.sigma, np.cov(wanted, rowvar=False), rtol=1e-10, atol=1e-12)
    assert torch.equal(found.features, features[::3])


def test_floats_in_the_range_of_models_have_the_features_of_their_bytes(images, digits, tmp_path):
    floats = ArrayImages(to_float(images.images))
    of = [
        reference_statistics(one, digits.features, "x", "train", subset=9, folder=tmp_path) for one in (images, floats)
    ]
    assert torch.equal(of[0].features, of[1].features) and (of[0].statistics.mu == of[1].statistics.mu).all()


def test_the_second_time_nothing_is_extracted(images, digits, tmp_path, monkeypatch):
    first = reference_statistics(images, digits.features, "digits", "train", subset=50, folder=tmp_path)
    monkeypatch.setattr(type(digits.features), "forward", None)
    again = reference_statistics(images, digits.features, "digits", "train", subset=50, folder=tmp_path)
    assert again.metadata == first.metadata
    assert np.array_equal(again.statistics.mu, first.statistics.mu)
    assert np.array_equal(again.statistics.sigma, first.statistics.sigma)
    assert again.statistics.mu.dtype == again.statistics.sigma.dtype == np.float64
    assert torch.equal(again.features, first.features)


def test_whatever_the_numbers_depend_on_gives_another_file(images, digits, tmp_path, monkeypatch):
    changed = images.images.clone()
    changed[0, 0, 0, 0] ^= 1  # one bit of one pixel
    reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    reference_statistics(ArrayImages(changed), digits.features, "digits", "train", folder=tmp_path)
    reference_statistics(ArrayImages(changed[:200]), digits.features, "digits", "train", folder=tmp_path)
    reference_statistics(images, digits.features, "digits", "test", folder=tmp_path)
    reference_statistics(images, digits.features, "other", "train", folder=tmp_path)
    reference_statistics(images, digits.features, "digits", "train", subset=10, folder=tmp_path)
    monkeypatch.setitem(digits.features.__dict__, "weights_sha256", "0" * 64)
    reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    monkeypatch.setattr(type(digits.features), "preprocessing", "x/255")
    reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    monkeypatch.setattr(reference_module, "FORMAT", 1000)
    reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 9


def test_another_kind_of_device_has_another_record(images, digits):
    cpu, gpu, second = (
        describe(images, digits.features, "digits", "train", 0, device) for device in ("cpu", "cuda", "cuda:1")
    )
    assert cpu != gpu and gpu == second


def test_a_file_of_something_else_is_refused(images, digits, tmp_path):
    """As when somebody copies the statistics of another resolution or data set over it."""
    reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    path = only_file(tmp_path)
    with np.load(path) as file:
        content = dict(file)
    metadata = json.loads(str(content["metadata"]))
    content["metadata"] = json.dumps(metadata | {"shape": [1, 16, 16], "weights_sha256": "ab"})
    np.savez(path, **content)
    with pytest.raises(
        ValueError, match=r"other reference statistics: shape is \[1, 16, 16\] and must be \[1, 8, 8\], weights"
    ):
        reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "empty", "bit"])
def test_a_damaged_file_is_made_again(images, digits, tmp_path, damage):
    first = reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    place = len(whole) // 2  # within sigma
    flipped = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    path.write_bytes({"cut": whole[:1000], "empty": b"", "bit": flipped}[damage])
    assert load(path, first.metadata) is None
    reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    assert np.array_equal(load(path, first.metadata).statistics.sigma, first.statistics.sigma)


def test_features_of_the_split_do_not_stay_in_memory(images, digits, tmp_path, monkeypatch):
    """What is alive after each batch: the sums and the points that were asked for, whatever went through."""
    alive = []

    def watched(*args):
        for found in features_of(*args):
            born.append(weakref.ref(found.features))
            yield found
            del found
            alive.append(sum(ref() is not None for ref in born[:-1]))

    born = []
    monkeypatch.setattr(reference_module, "features_of", watched)
    reference_statistics(images, digits.features, "digits", "train", subset=10, folder=tmp_path, batch_size=30)
    assert alive == [0] * 10


def test_edm_can_read_it(images, digits, tmp_path):
    reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    with np.load(only_file(tmp_path)) as file:
        assert file["mu"].shape == (64,) and file["sigma"].shape == (64, 64)


def test_a_folder_that_cannot_be_written_costs_only_time(images, digits, tmp_path):
    (tmp_path / "file").write_text("")
    found = reference_statistics(images, digits.features, "digits", "train", folder=tmp_path / "file")
    assert found.metadata["images"] == 300


def test_too_few_reference_images_are_refused(images, digits, tmp_path):
    with pytest.raises(ValueError, match="^features=100 images must be at least 128"):
        reference_statistics(ArrayImages(images.images[:100]), digits.features, "digits", "train", folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_load_names_every_difference(images, digits, tmp_path):
    found = reference_statistics(images, digits.features, "digits", "train", folder=tmp_path)
    with pytest.raises(ValueError, match="images is 300 and must be 4, split is train and must be test; delete it"):
        load(only_file(tmp_path), found.metadata | {"split": "test", "images": 4})


class Counted(ArrayImages):
    """Counts the images that are taken."""

    taken = 0

    def take(self, ids):
        self.taken += len(ids)
        return super().take(ids)


def all_found(images, extractor, folder):
    """Mean, covariance, points, and features of every second image; and how many images were taken for them."""
    os.environ["DIFFUSION_LAB_CACHE"] = str(folder)
    counted, ids = Counted(images), torch.arange(0, len(images), 2)
    found = reference_statistics(counted, extractor, "digits", "train", 100)
    some = features_of_some(counted, ids, extractor, "digits", "train")
    return counted.taken, [*found.statistics, found.features.numpy(), some.numpy()]


def of_a_rank(rank, folder, images, extractor, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    queue.put((rank, *all_found(images, extractor, folder / "alone" if rank else folder)))
    dist.destroy_process_group()


def test_two_processes_share_the_images(images, digits, tmp_path, monkeypatch):
    """Of five batches of 64, and of three; although one of them finds the statistics in a cache of its own."""
    monkeypatch.setenv("DIFFUSION_LAB_CACHE", "")
    taken, alone = all_found(images.images, digits.features, tmp_path / "alone")
    assert taken == 300 + 150 + 2  # and the first image, for its shape
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    of_both = (tmp_path, images.images, digits.features, queue)
    ranks = [context.Process(target=of_a_rank, args=(rank, *of_both)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = {rank: (taken, arrays) for rank, taken, arrays in (queue.get() for _ in ranks)}
    for process in ranks:
        process.join(30)
        assert process.exitcode == 0
    assert [found[rank][0] for rank in range(2)] == [192 + 128 + 2, 108 + 22 + 2]
    assert all(np.array_equal(*pair) for pair in zip(found[0][1], found[1][1], strict=True))
    (mean, covariance, *rows), (same_mean, same_covariance, *same_rows) = found[0][1], alone
    assert all(np.array_equal(*pair) for pair in zip(rows, same_rows, strict=True))  # features to the bit
    for ours, theirs in ((mean, same_mean), (covariance, same_covariance)):
        assert np.abs(ours - theirs).max() < 1e-14 * np.abs(theirs).max()
