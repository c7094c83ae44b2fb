"""Features that are trained from a data set's own images: function of them alone, made once, and what is refused."""

import threading
import time
from contextlib import suppress

import pytest
import torch
from torch import nn

from diffusion_lab.data import ArrayImages, Digits, ImageDataModule, ImageSource
from diffusion_lab.metrics import Evaluation, OwnFeatures, extract, learn_features, own_features
from diffusion_lab.metrics.learn_features import at_most, dim_for, new_network, self_supervised, shifted
from diffusion_lab.solvers import DDIM
from diffusion_lab.streams import Streams
from tests.metrics.named import named


class Given(ImageSource):
    """Images that are given, the first `test` of them as the test split."""

    def __init__(self, images, labels=None, test=40):
        super().__init__()
        self.images, self.labels, self.test_images = images, labels, test
        self.name, self.channels, self.image_size = "given", images.shape[1], images.shape[-1]
        self.num_classes = None if labels is None else int(labels.max()) + 1

    def train_size(self):
        return len(self.images) - self.test_images

    def load(self, split):
        part = slice(self.test_images) if split == "test" else slice(self.test_images, None)
        return ArrayImages(self.images[part], None if self.labels is None else self.labels[part])


def some(count=140, channels=3, side=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, side, side), generator=generator).to(torch.uint8)


def own(images=None, labels=None, flip=False, **arguments):
    extractor = OwnFeatures(**arguments)
    ImageDataModule(Given(some() if images is None else images, labels), 8, flip=flip, features=extractor)
    return extractor


@pytest.fixture(autouse=True)
def short(monkeypatch, tmp_path):
    """Trainings of three steps, and a cache for each test."""
    monkeypatch.setattr(learn_features, "STEPS", 3)
    monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture
def trainings(monkeypatch):
    """The names of the trainings that have begun; each takes a tenth of a second longer."""
    begun = []

    def learn(network, images, labels, mirror, what):
        begun.append(what)
        time.sleep(0.1)
        learn_features.learn(network, images, labels, mirror, what)

    monkeypatch.setattr(own_features, "learn", learn)
    return begun


# -- a function of the images ---------------------------------------------------------------------------------------


def test_the_weights_depend_on_the_images_labels_and_mirroring_alone(short, monkeypatch):
    def weights(*arguments, **named):
        monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(short / str(torch.initial_seed())))
        return own(*arguments, **named).weights_sha256

    labels, threads = torch.arange(140) % 3, torch.get_num_threads()
    torch.manual_seed(1)
    first = weights()
    torch.manual_seed(2)
    torch.set_num_threads(2)
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            assert weights() == first and len(first) == 64
        others = [weights(some(seed=1)), weights(labels=labels), weights(labels=labels.flip(0)), weights(flip=True)]
        assert len({first, *others}) == 5
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_training_leaves_the_random_numbers_of_the_run_alone():
    before = torch.random.get_rng_state()
    own()(some(5))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_images_are_read_for_the_evaluation_and_not_before(monkeypatch):
    monkeypatch.setattr(Given, "load", None)
    extractor = own()
    extractor.check()
    assert (extractor.channels, extractor.image_size, extractor.feature_dim, extractor.has_classes) == (
        3,
        12,
        16,
        False,
    )
    with pytest.raises(TypeError):
        extractor(some(1))


@pytest.mark.parametrize(("count", "dim"), [(63, None), (64, 16), (127, 16), (128, 32), (255, 32), (256, 64)])
def test_a_dimension_has_at_least_four_images(count, dim):
    assert dim_for(count) == dim


def test_of_many_images_a_fixed_choice_is_used(monkeypatch):
    seen = []
    monkeypatch.setattr(own_features, "MOST", 70)
    monkeypatch.setattr(own_features, "learn", lambda network, images, labels, *_: seen.append((images, labels)))
    labels = torch.arange(140) % 7
    for _ in range(2):
        _ = own(labels=labels).weights_sha256
        own_features.cache_folder().joinpath("features").rename(own_features.cache_folder() / f"features-{len(seen)}")
    (images, kept), (again, _) = seen
    assert len(images) == 70 and torch.equal(images, again)
    rows = [int((some() == image).flatten(1).all(1).nonzero()) for image in images]
    assert rows == sorted(set(rows)) and rows[0] >= 40 and rows[-1] > 110  # no test images, of all others
    assert torch.equal(kept, labels[rows])


# -- the network and its questions ----------------------------------------------------------------------------------


def test_a_shifted_image_is_a_part_of_the_padded_one():
    image = torch.arange(1.0, 10.0).view(1, 1, 3, 3)
    batch = shifted(image.repeat(400, 1, 1, 1), 1, Streams(0), 0)
    padded = nn.functional.pad(image, (1, 1, 1, 1), mode="replicate")
    allowed = {tuple(padded[..., i : i + 3, j : j + 3].flatten().tolist()) for i in range(3) for j in range(3)}
    assert {tuple(row.flatten().tolist()) for row in batch} == allowed  # all nine, nothing else


def test_the_questions_are_the_turn_and_the_image():
    picked = torch.tensor([2, 0, 1, 2])
    image, seen = torch.arange(4.0).view(1, 1, 2, 2), []

    class Knows(nn.Module):
        def forward(self, x):
            seen.append(x)
            right = torch.cat([nn.functional.one_hot(torch.arange(4), 4), nn.functional.one_hot(picked, 3)], 1)
            return x.flatten(1), 50.0 * right

    assert self_supervised(Knows(), image.repeat(4, 1, 1, 1), picked) < 1e-6  # pyright: ignore[reportArgumentType]
    assert [x.flatten().tolist() for x in seen[0]] == [[0, 1, 2, 3], [1, 3, 0, 2], [3, 2, 1, 0], [2, 0, 3, 1]]
    wrong = self_supervised(Knows(), image.repeat(4, 1, 1, 1), picked.flip(0))  # pyright: ignore[reportArgumentType]
    assert wrong == pytest.approx(50 / 2)  # two of the four images


@pytest.mark.parametrize("side", [4, 8, 28, 33, 64, 65, 100])
def test_images_of_any_size_have_features(side):
    extractor = own(some(side=side), torch.arange(140) % 2)
    found = extract(extractor, some(5, side=side))
    assert found.features.shape == (5, 16) and found.logits.shape == (5, 2) and found.features.std() > 0


def test_larger_images_are_averaged():
    small = some(2, side=64)
    assert at_most(small) is small and torch.equal(
        at_most(small.repeat_interleave(2, 2).repeat_interleave(2, 3)), small
    )


def test_self_supervised_features_have_no_classes():
    extractor = own()
    assert not extractor.has_classes and extractor(some(5)).logits.shape == (5, 0)
    assert not own(labels=torch.zeros(140, dtype=torch.int64)).has_classes  # one class says nothing
    assert new_network((3, 12, 12), 16, 2000, None).head.out_features == 4 + 1024


# -- the cache ------------------------------------------------------------------------------------------------------


def test_a_network_is_trained_once(short, trainings):
    first, again = own(), own()
    assert first.weights_sha256 == again.weights_sha256 and trainings == ["features of given"]
    (path,) = short.glob("*.pt")
    assert path.name.startswith("own-given-") and path == first.weights_file()
    assert torch.equal(first(some(3)).features, again(some(3)).features)


@pytest.mark.parametrize("there", [None, b"no weights", {}])
def test_a_training_begins_with_the_first_random_numbers_whatever_was_read(short, there, monkeypatch):
    """A network that was made to hold a file's weights had drawn them, so that all values were others."""
    begun, features = [], own()
    monkeypatch.setattr(own_features, "learn", lambda network, *_: begun.append(network.head.weight.clone()))
    if there is not None:
        features.weights_file().parent.mkdir(parents=True)
        if there:
            features.weights_file().write_bytes(there)
        else:
            torch.save({"record": features.record, "state": {}}, features.weights_file())
    with suppress(Exception):
        features.load()
    with learn_features.alone():
        assert torch.equal(begun[0], own()._new().head.weight)


@pytest.mark.parametrize("content", [b"", b"no weights", None, b"\x80\x02X.", b"\x80\x02\x85\x86/\xcc\x00eu \x87."])
def test_a_damaged_file_is_made_again(short, trainings, content):
    first = own()
    digest, path = first.weights_sha256, first.weights_file()
    path.write_bytes(path.read_bytes()[:5000] if content is None else content)
    assert own().weights_sha256 == digest and len(trainings) == 2
    assert own().weights_sha256 == digest and len(trainings) == 2


def test_of_two_at_a_time_one_trains_and_the_other_waits(trainings):
    pair, found = (own(), own()), []
    threads = [threading.Thread(target=lambda one=one: found.append(one.weights_sha256)) for one in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trainings) == 1 and len(found) == 2 and len(set(found)) == 1


def test_without_a_folder_of_caches_it_works_as_well(tmp_path, monkeypatch, trainings):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path / "file"))
    assert own().weights_sha256 == own().weights_sha256 and len(trainings) == 2


def test_the_weights_of_another_machine_are_used(short, tmp_path, trainings):
    first = own()
    digest, path = first.weights_sha256, tmp_path / "theirs.pt"
    first.weights_file().rename(path)
    given = own(weights=path)
    given.check()
    assert given.weights_sha256 == digest and len(trainings) == 1
    with pytest.raises(ValueError, match="theirs.pt must be trained from these images: fingerprint is .* and must be"):
        own(some(seed=1), weights=path).check()
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="theirs.pt must be a file of trained features"):
        own(weights=path).check()
    with pytest.raises(ValueError, match="none.pt must be a file; use null"):
        own(weights=tmp_path / "none.pt").check()


# -- in an evaluation -----------------------------------------------------------------------------------------------


def test_metrics_are_named_and_those_of_classes_left_out_where_there_are_none(elementwise):
    data = ImageDataModule(Given(some(channels=1, side=8)), 8, features=OwnFeatures())
    evaluation = Evaluation(num_samples=40, metrics=named())
    evaluation.check(data)
    results = evaluation(elementwise, DDIM(steps=2), data, keep=0).results
    assert [result.name for result in results] == [
        "fd40_own",
        "kd40_own",
        "precision40_own",
        "recall40_own",
        "test_fd40_own",
        "copying40",
    ]
    digest = {"name": "own", "weights_sha256": data.features.weights_sha256}
    assert all(result.protocol["extractor"] == digest for result in results[:-1])
    assert results[-1].protocol["extractor"] == {"name": "pixels"}


def test_a_conditional_model_is_judged_by_the_classes(elementwise):
    images, labels = some(channels=1, side=8), torch.arange(140) % 2
    data = ImageDataModule(Given(images, labels), 8, conditional=True, features=OwnFeatures())
    results = Evaluation(num_samples=40, metrics=named("fid", "is"))(elementwise, DDIM(steps=2), data, keep=0).results
    assert {result.name for result in results} == {
        "fd40_own",
        "is40_own",
        "agreement40_own",
        "test_fd40_own",
        "copying40",
    }


def test_too_few_images_are_refused_before_training():
    data = ImageDataModule(Given(some(103)), 8, features=OwnFeatures())
    with pytest.raises(ValueError, match="^weights=null must be trained from at least 64 images, and given has 63"):
        Evaluation(num_samples=40, metrics=named("fid")).check_weights(data)
    Evaluation(num_samples=40, metrics=named("sample_variance")).check_weights(data)  # needs no features


def test_another_extractor_of_the_data_is_given_the_data(digits):
    data = ImageDataModule(Digits(), 16)
    data.features = OwnFeatures()
    assert data.features.source is data.source and data.features.input_shape == digits.features.input_shape
