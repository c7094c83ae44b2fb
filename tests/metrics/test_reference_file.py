"""Reference statistics from a file, as EDM's fid-refs."""

import pickle

import numpy as np
import pytest

from diffusion_lab import npz
from diffusion_lab.callbacks.signals import Interrupted
from diffusion_lab.files import file_sha256
from diffusion_lab.metrics import Evaluation, extract, statistics
from diffusion_lab.metrics.reference import reference_from_file
from diffusion_lab.solvers import DDIM
from tests.metrics.named import named


@pytest.fixture
def own(digits, tmp_path):
    """The file of the data set's own statistics."""
    found = statistics(extract(digits.features, digits.source.train().images).features)
    np.savez(tmp_path / "digits.npz", mu=found.mu, sigma=found.sigma)
    return tmp_path / "digits.npz"


def evaluated(digits, model, **options):
    return Evaluation(128, metrics=named("fid"), **options)(model, DDIM(steps=3), digits).results[0]


def test_a_file_of_the_same_statistics_gives_the_same_distance(digits, elementwise, own, tmp_path):
    theirs, ours = (evaluated(digits, elementwise, reference=path) for path in (str(own), None))
    assert theirs.value == pytest.approx(ours.value, rel=1e-6)
    reference = theirs.protocol["reference"]
    assert reference["fingerprint"] == file_sha256(own) and reference["dataset"] == "digits.npz"
    with np.load(own) as arrays:
        np.savez(tmp_path / "moved.npz", mu=arrays["mu"] + 1, sigma=arrays["sigma"])
    moved = evaluated(digits, elementwise, reference=str(tmp_path / "moved.npz"))
    assert abs(moved.value - ours.value) > 1  # the control: another mean is another distance


def test_only_metrics_of_moments_accept_it(digits, own):
    with pytest.raises(ValueError, match=r"names=\[kid,recall\] needs the features of images; use names=\[fid,is\]"):
        Evaluation(128, metrics=named("fid", "kid", "is", "recall"), reference=str(own)).check(digits)
    Evaluation(128, metrics=named("fid", "is"), reference=str(own)).check(digits)


D = 64
BAD = {
    "other dimensions": ({"mu": np.zeros(3), "sigma": np.eye(3)}, r"they are \(3,\) and \(3, 3\); use a file of this"),
    "no sigma": ({"mu": np.zeros(D)}, "must be an npz file with the arrays mu and sigma"),
    "objects": ({"mu": np.array([None] * D), "sigma": np.eye(D)}, "must be an npz file with the arrays mu and sigma"),
    "not symmetric": ({"mu": np.zeros(D), "sigma": np.triu(np.ones((D, D)))}, "sigma is not symmetric; make"),
    "not positive": ({"mu": np.zeros(D), "sigma": -np.eye(D)}, "sigma has the negative eigenvalue -1"),
    "not finite": ({"mu": np.full(D, np.nan), "sigma": np.eye(D)}, "a number is not finite"),
}


@pytest.mark.parametrize("kind", BAD)
def test_other_arrays_are_one_sentence(digits, tmp_path, kind):
    arrays, message = BAD[kind]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        reference_from_file(tmp_path / "a.npz", digits.features)


@pytest.mark.parametrize("compressed", [False, True])
def test_only_its_mean_and_covariance_are_read(digits, tmp_path, compressed, monkeypatch):
    """Batches of images lie beside them in the files of ADM, and objects in others."""
    monkeypatch.setattr(npz, "MOST", 10**5)
    images, note = np.zeros((100, 64, 64, 3), np.uint8), np.array([None])
    (np.savez_compressed if compressed else np.savez)(
        tmp_path / "a.npz", arr_0=images, note=note, mu=np.zeros(D), sigma=np.eye(D)
    )
    assert np.array_equal(reference_from_file(tmp_path / "a.npz", digits.features).statistics.sigma, np.eye(D))


def test_an_interruption_while_it_is_read_is_one(digits, tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", mu=np.zeros(D), sigma=np.eye(D))

    def interrupted(*_, **__):
        raise Interrupted(15, 1)

    monkeypatch.setattr(np.lib.format, "read_array", interrupted)
    with pytest.raises(Interrupted):
        reference_from_file(tmp_path / "a.npz", digits.features)


def test_a_damaged_file_is_one_sentence_wherever_the_damage_is(digits, tmp_path):
    """zlib's errors, and those of features that Python's zipfile lacks, passed as they were."""
    file, random = tmp_path / "a.npz", np.random.default_rng(0)
    np.savez_compressed(file, mu=np.zeros(D), sigma=np.eye(D))
    whole, refused = np.frombuffer(file.read_bytes(), np.uint8), 0
    for _ in range(300):
        damaged = whole.copy()
        damaged[random.integers(0, len(whole), 3)] ^= random.integers(1, 256, 3).astype(np.uint8)
        file.write_bytes(damaged.tobytes())
        try:
            reference_from_file(file, digits.features)
        except ValueError as error:
            assert str(error).startswith(f"reference={file} must")
            refused += 1
    assert refused > 200


def test_a_pickle_and_a_missing_file_are_refused_before_training(digits, tmp_path):
    (tmp_path / "fid.pkl").write_bytes(pickle.dumps({"mu": np.zeros(D), "sigma": np.eye(D)}))
    with pytest.raises(ValueError, match="a .pkl file is not read, because it could run code"):
        Evaluation(128, metrics=named("fid"), reference=str(tmp_path / "fid.pkl")).check(digits)
    with pytest.raises(FileNotFoundError, match="^reference=none.npz: there is no file none.npz; use null"):
        Evaluation(128, metrics=named("fid"), reference="none.npz").check(digits)
