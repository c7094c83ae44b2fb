"""Extractors: how good they are, what they refuse, what they are called."""

import copy
import json

import pytest
import torch
from torch import nn

from diffusion_lab.data import Digits, FashionMNIST
from diffusion_lab.data.sources.fashion_mnist import DEBIAN_FOLDER
from diffusion_lab.metrics import ClassifierFeatures, DINOv2Features, InceptionFeatures, extract
from diffusion_lab.metrics import features as features_module
from diffusion_lab.metrics import inception as inception_module
from diffusion_lab.metrics.features import WEIGHTS, images_per_call
from tests.metrics.named import named

SOURCES = {"digits": (Digits, 0.98)}
if (DEBIAN_FOLDER / "t10k-images-idx3-ubyte.gz").is_file():
    SOURCES["fashion_mnist"] = (lambda: FashionMNIST(DEBIAN_FOLDER), 0.91)
    SOURCES["fashion_mnist14"] = (lambda: FashionMNIST(DEBIAN_FOLDER, image_size=14), 0.89)


def accuracy(found, labels):
    return (found.logits.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("name", SOURCES)
def test_the_classifier_knows_its_test_images(name):
    make, least = SOURCES[name]
    images = make().test()
    extractor = ClassifierFeatures(name)
    extractor.check()
    some = images.images[:1500]
    found = extract(extractor, some)
    assert accuracy(found, images.labels[:1500]) >= least
    assert found.features.shape == (len(some), extractor.feature_dim)
    assert found.features.dtype == found.logits.dtype == torch.float32
    # No dead and no constant feature: the covariance has full rank.
    assert torch.linalg.matrix_rank(torch.cov(found.features.T.double())) == extractor.feature_dim


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_the_accuracy_is_what_the_card_says(name):
    images, extractor = SOURCES[name][0]().test(), ClassifierFeatures(name)
    share = accuracy(extract(extractor, images.images), images.labels)
    assert share == pytest.approx(extractor.card["accuracy"]["test"], abs=5e-4)


@pytest.mark.parametrize("name", ["digits", "fashion_mnist", "fashion_mnist14"])
def test_weights_are_small_and_described(name):
    assert (WEIGHTS / f"{name}.pt").stat().st_size < 1_000_000
    card = json.loads((WEIGHTS / f"{name}.json").read_text())
    assert card["dataset"] == name and card["command"].endswith(name)
    assert 1000 >= 2 * card["network"]["feature_dim"]  # the default evaluation is possible


def test_a_batch_changes_nothing_but_the_last_bits(digits):
    images = digits.source.test().images[:50]
    whole = extract(digits.features, images, batch_size=50)
    parts = extract(digits.features, images, batch_size=7)
    assert torch.allclose(whole.features, parts.features, atol=1e-5)
    assert torch.allclose(whole.logits, parts.logits, atol=1e-5)


@pytest.mark.parametrize(("batch_size", "calls"), [(64, [50]), (20, [20, 20, 10])])
def test_a_network_call_has_batch_size_images(digits, batch_size, calls):
    images, seen = digits.source.test().images[:50], []
    extractor = ClassifierFeatures("digits", batch_size)
    extractor._network[0].register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    found = extractor(images)
    assert seen == calls and torch.allclose(found.features, digits.features(images).features, atol=1e-5)


@pytest.mark.parametrize(
    ("gib", "calls"), [(80, 256), (16, 256), (15.9, 128), (1, 16), (0, 16)]
)  # of 16 MiB per image a quarter
def test_on_a_gpu_a_call_follows_the_free_memory(gib, calls, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(gib * 2**30), 80 * 2**30))
    large = DINOv2Features("none.pth")
    assert images_per_call(large, "cuda") == images_per_call(InceptionFeatures("none.pth"), "cuda") == calls
    assert images_per_call(large, "cpu") == 16 and images_per_call(ClassifierFeatures("digits"), "cpu") == 64
    assert images_per_call(DINOv2Features("none.pth", batch_size=7), "cuda") == 7
    large.image_bytes = None  # as in a class of a user's own
    assert images_per_call(large, "cuda") == 16


def test_batch_size_is_checked():
    for extractor in (ClassifierFeatures, InceptionFeatures, DINOv2Features):
        with pytest.raises(ValueError, match="^batch_size=0 must be an integer >= 1"):
            extractor("digits", batch_size=0)


def test_training_in_bfloat16_leaves_features_in_float32(digits):
    images = digits.source.test().images[:20]
    with torch.autocast("cpu", torch.bfloat16):
        inside = digits.features(images)
    assert torch.equal(inside.features, digits.features(images).features)


def test_the_weights_are_in_no_state_dict_and_need_no_gradient():
    extractor = ClassifierFeatures("digits")
    extractor(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert extractor.state_dict() == {} and list(extractor.parameters()) == []


def test_built_on_the_meta_device_it_still_works():
    with torch.device("meta"):
        extractor = ClassifierFeatures("digits")
    assert torch.isfinite(extractor(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).features).all()


def test_wrong_images_are_refused(digits):
    with pytest.raises(ValueError, match="torch.float32 must be uint8"):
        digits.features(torch.rand(2, 1, 8, 8))
    with pytest.raises(ValueError, match=r"must be uint8 \(N,1,8,8\)"):
        digits.features(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))


@pytest.mark.parametrize(("name", "size", "other"), [("fashion_mnist14", 14, 28), ("fashion_mnist", 28, 14)])
def test_an_extractor_refuses_images_of_the_other_size(name, size, other):
    extractor = ClassifierFeatures(name)
    assert extractor.takes((1, size, size)) and not extractor.takes((1, other, other))
    assert not extractor.takes((3, size, size)) and not extractor.takes((1, size, other))
    with pytest.raises(ValueError, match=rf"must be uint8 \(N,1,{size},{size}\) for the extractor '{name}'"):
        extractor(torch.zeros(2, 1, other, other, dtype=torch.uint8))


def test_inception_takes_colour_images_of_any_size():
    assert InceptionFeatures().takes((3, 32, 32)) and InceptionFeatures().takes((3, 17, 64))
    assert not InceptionFeatures().takes((1, 28, 28)) and InceptionFeatures().input_shape == (3, "H", "W")


def test_the_same_images_have_the_same_features_every_time():
    images = torch.randint(0, 256, (90, 1, 14, 14), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    first, again = (extract(ClassifierFeatures("fashion_mnist14"), images) for _ in range(2))
    assert torch.equal(first.features, again.features) and torch.equal(first.logits, again.logits)
    turned = extract(ClassifierFeatures("fashion_mnist14"), images.flip(-1))  # the control: other images have others
    assert not torch.allclose(first.features, turned.features, atol=0.1)


def test_unknown_weights_are_refused():
    with pytest.raises(
        ValueError, match="^weights='mnist' must be one of digits, fashion_mnist, fashion_mnist14; train your own"
    ):
        ClassifierFeatures("mnist")


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(features_module, "WEIGHTS", tmp_path)
    for file in WEIGHTS.glob("digits.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "digits.pt").open("r+b") as file:
        file.seek(5000)
        file.write(b"?")
    with pytest.raises(FileNotFoundError, match="^weights='digits': .* is not the file that digits.json describes"):
        ClassifierFeatures("digits").check()


def test_metric_names_tell_the_extractor_and_the_number_of_samples():
    def public(extractor, count, *names):
        return [metric.public_name(count, extractor) for metric in named(*names)]

    digits = ["fd1k_digits", "kd1k_digits", "is1k_digits", "precision1k_digits", "recall1k_digits"]
    assert public(ClassifierFeatures("digits"), 1000) == digits
    assert public(ClassifierFeatures("fashion_mnist"), 1500, "fid") == ["fd1500_fashion_mnist"]
    assert public(ClassifierFeatures("fashion_mnist14"), 1000, "fid", "kid") == [
        "fd1k_fashion_mnist14",
        "kd1k_fashion_mnist14",
    ]
    assert public(InceptionFeatures(), 50000) == ["fid50k", "kid50k", "is50k", "precision50k", "recall50k"]
    assert public(InceptionFeatures(), 1000, "psnr", "sample_variance") == ["psnr1k", "sample_variance1k"]


# -- Inception ----------------------------------------------------------------------------------------------------


def test_missing_inception_weights_teach_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(FileNotFoundError) as error:
        InceptionFeatures().check()
    message = str(error.value)
    assert message.startswith("weights=null: there is no file ")
    for needed in ("weights-inception-2015-12-05-6726825d.pth", "6726825d", str(tmp_path / "checkpoints")):
        assert needed in message
    assert "\n" not in message
    with pytest.raises(FileNotFoundError, match="^weights=/nowhere.pth"):
        InceptionFeatures("/nowhere.pth").check()


def test_wrong_inception_weights_are_refused_before_they_are_loaded(tmp_path):
    path = tmp_path / "inception.pth"
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="^weights=.*must begin with 6726825d; delete it"):
        InceptionFeatures(str(path)).check()
    with pytest.raises(ValueError, match="must begin with 6726825d"):
        InceptionFeatures(str(path))(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))


@pytest.mark.slow
def test_inception_equals_torch_fidelity(tmp_path, monkeypatch):
    """With random weights in a file of the right form, because the real ones cannot be had offline."""
    from torch_fidelity import FeatureExtractorInceptionV3

    monkeypatch.setattr(torch.nn.Module, "load_state_dict", lambda self, state: None)
    monkeypatch.setattr("torch_fidelity.feature_extractor_inceptionv3.load_state_dict_from_url", lambda *a, **k: {})
    torch.manual_seed(0)
    theirs = FeatureExtractorInceptionV3("inception-v3-compat", ["2048", "logits_unbiased"])
    monkeypatch.undo()
    for part in theirs.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(std=0.1)
            part.running_var.uniform_(0.5, 1.5)
    path = tmp_path / "weights.pth"
    torch.save(theirs.state_dict(), path)
    monkeypatch.setattr(inception_module, "SHA256_PREFIX", features_module.file_sha256(path)[:8])
    # More than one call of the network.
    images = torch.randint(0, 256, (18, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ours = InceptionFeatures(str(path))(images)
    features, logits = theirs(images)
    assert ours.features.shape == (18, 2048) and ours.logits.shape == (18, 1008)
    assert (ours.features - features).abs().max() <= 1e-5 * features.abs().max()
    assert (ours.logits - logits).abs().max() <= 1e-5 * logits.abs().max()


def test_batch_norms_fold_into_convolutions():
    """Against the unfolded network with means, variances, weights and biases that are not trivial."""

    class Block(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.conv = nn.Conv2d(inputs, outputs, 3, bias=False)
            self.bn = nn.BatchNorm2d(outputs, eps=0.001)

        def forward(self, x):
            return self.bn(self.conv(x)).relu()

    torch.manual_seed(0)
    network = nn.Sequential(Block(3, 8), Block(8, 8)).eval().requires_grad_(False)
    for block in network:
        for values in (block.bn.running_mean, block.bn.bias):
            values.normal_()
        for values in (block.bn.running_var, block.bn.weight):
            values.uniform_(0.5, 2)
    x = torch.randn(4, 3, 10, 10)
    wanted, untouched = network(x), copy.deepcopy(network)
    folded = inception_module.fold_batch_norms(network)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.modules())
    assert (folded(x) - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    untouched[0].bn = nn.Identity()  # the control: a batch norm that is only left out
    assert not torch.allclose(untouched(x), wanted, atol=0.1)
