"""Distances against closed forms, brute force, and torch-fidelity's own front door."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
import torch_fidelity
from torch.utils.data import Dataset

from diffusion_lab.metrics import (
    ClassifierFeatures,
    evaluate_images,
    frechet_distance,
    inception_score,
    kernel_distance,
    precision_recall,
)
from tests.metrics.named import named


def with_moments(x, mean, root):
    """Rows whose sample mean is `mean` and whose sample covariance is root^T root, exactly."""
    x = x.double()
    centred = x - x.mean(0)
    white = centred @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(x.T)).T)
    return white @ root + mean


def test_frechet_distance_of_known_gaussians(rows):
    """Diagonal covariances: |m_a - m_b|^2 + sum (s_a - s_b)^2."""
    dim = 6
    mean, sd = torch.linspace(-1, 1, dim).double(), torch.linspace(0.5, 2, dim).double()
    a = with_moments(rows(100, dim, 0), torch.zeros(dim).double(), torch.eye(dim).double())
    b = with_moments(rows(80, dim, 1), mean, torch.diag(sd))
    expected = float(mean.square().sum() + (1 - sd).square().sum())
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(b, a) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-9)


def test_frechet_distance_against_the_matrix_square_root(rows):
    a = (rows(90, 8, 2) @ rows(8, 8, 3)).double()
    b = (rows(70, 8, 4) @ rows(8, 8, 5) + 1).double()
    cov_a, cov_b = (np.cov(x.numpy(), rowvar=False) for x in (a, b))
    root = scipy.linalg.sqrtm(cov_a @ cov_b).real
    expected = float((a.mean(0) - b.mean(0)).square().sum()) + np.trace(cov_a + cov_b - 2 * root)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_features_that_are_always_zero(rows):
    """Their covariances have no Cholesky factor: the distance is that of the other features alone."""
    a, b = rows(60, 6, 0), rows(50, 6, 1) + 0.5
    with_zeros = [torch.cat([x, torch.zeros(len(x), 3)], dim=1) for x in (a, b)]
    expected = frechet_distance(a, b)
    assert frechet_distance(*with_zeros) == pytest.approx(expected, rel=1e-6)
    assert frechet_distance(*reversed(with_zeros)) == pytest.approx(expected, rel=1e-6)


def test_frechet_distance_of_samples_approaches_the_truth(rows):
    assert frechet_distance(rows(20000, 4, 0), 2 * rows(20000, 4, 1) + 1) == pytest.approx(8, rel=0.03)


def test_kernel_distance_against_its_definition(rows):
    a, b = rows(40, 5, 0).double(), rows(50, 5, 1).double() + 0.3

    def kernel(x, y):
        return (x @ y.T / 5 + 1) ** 3

    within = sum((kernel(x, x).sum() - kernel(x, x).diagonal().sum()) / (len(x) * (len(x) - 1)) for x in (a, b[:40]))
    expected = float(within - 2 * kernel(a, b[:40]).mean())
    assert kernel_distance(a, b[:40]) == pytest.approx(expected, rel=1e-9)
    several = [kernel_distance(a, b, subsets=n) for n in (100, 400)]
    assert several[0] == pytest.approx(several[1], rel=0.1)


def test_kernel_distance_of_float32_features_is_computed_in_float64(rows):
    """Written out with loops over pairs, in Python's floats; the subsets are those of torch-fidelity's seed."""
    a, b = rows(24, 6, 0).float(), rows(30, 6, 1).float() + 0.3
    size, subsets, generator = 20, 3, np.random.RandomState(2020)
    values = []
    for _ in range(subsets):
        x = a[generator.choice(len(a), size, replace=False)].double().tolist()
        y = b[generator.choice(len(b), size, replace=False)].double().tolist()

        def kernel(p, q):
            return (math.fsum(i * j for i, j in zip(p, q, strict=True)) / 6 + 1) ** 3

        pairs = [(i, j) for i in range(size) for j in range(size)]
        within = math.fsum(kernel(s[i], s[j]) for s in (x, y) for i, j in pairs if i != j) / (size * (size - 1))
        values.append(within - 2 * math.fsum(kernel(x[i], y[j]) for i, j in pairs) / size**2)
    ours = kernel_distance(a, b, subset_size=size, subsets=subsets)
    assert ours == pytest.approx(math.fsum(values) / subsets, rel=1e-12)
    # The control: the same in float32 is off by more.

    def k(x, y):
        return (x @ y.T / 6 + 1) ** 3

    rounded = k(a, a).double().sum() - k(a.double(), a.double()).sum()
    assert abs(float(rounded)) > 1e-6


def test_kernel_distance_is_unbiased(rows):
    values = [kernel_distance(rows(60, 4, 2 * i), rows(60, 4, 2 * i + 1)) for i in range(100)]
    assert abs(np.mean(values)) < 3 * np.std(values) / 10
    assert min(values) < 0


def test_precision_and_recall_against_brute_force(rows):
    a, b = rows(60, 3, 0), 1.5 * rows(70, 3, 1)

    def covered(points, centres, k=3):
        among = np.linalg.norm(centres[:, None] - centres[None], axis=2)
        radius = np.sort(among, axis=1)[:, k]  # [:, 0] is the centre itself
        return (np.linalg.norm(points[:, None] - centres[None], axis=2) <= radius).any(1).mean()

    precision, recall = precision_recall(a, b)
    assert precision == pytest.approx(covered(a.numpy(), b.numpy()))
    assert recall == pytest.approx(covered(b.numpy(), a.numpy()))


def test_a_collapsed_generator_is_precise_and_recalls_nothing(rows):
    real = rows(500, 16)
    precision, recall = precision_recall(real[:1].repeat(400, 1), real)
    assert precision == 1
    assert recall <= 0.01


def test_an_unrelated_generator_is_neither(rows):
    assert precision_recall(rows(200, 16) + 50, rows(200, 16, 1)) == (0, 0)


def test_inception_score_of_certain_and_of_ignorant_classifiers():
    certain = 100 * torch.eye(8).repeat(100, 1)
    assert inception_score(certain, splits=1) == pytest.approx(8)
    assert inception_score(torch.zeros(100, 8)) == pytest.approx(1)
    # Two classes with probabilities (1, 0) and (1/2, 1/2): exp of the mean KL to (3/4, 1/4).
    logits = torch.tensor([[100.0, 0.0], [0.0, 0.0]])
    expected = np.exp(0.5 * np.log(4 / 3) + 0.25 * np.log(2 / 3) + 0.25 * np.log(2))
    assert inception_score(logits, splits=1) == pytest.approx(expected)


# -- the same numbers as torch_fidelity.calculate_metrics ---------------------------------------------------------


class DigitsForTorchFidelity(torch_fidelity.FeatureExtractorBase):
    """Our classifier, registered with torch-fidelity, so that no Inception weights are needed."""

    def __init__(self, name, features_list, **kwargs):
        super().__init__(name, features_list)
        self.extractor = ClassifierFeatures("digits")

    @staticmethod
    def get_provided_features_list():
        return "features", "logits"

    @staticmethod
    def get_default_feature_layer_for_metric(metric):
        return "logits" if metric == "isc" else "features"

    def forward(self, images):
        found = self.extractor(images)._asdict()
        return tuple(found[name] for name in self.features_list)


class Images(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i]


def test_equal_to_torch_fidelity(digits):
    images = digits.source.train().images
    real = images[:300]
    noise = torch.randn(260, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    generated = (images[300:560] + 20 * noise).clamp(0, 255).to(torch.uint8)
    torch_fidelity.register_feature_extractor("digits-of-diffusion-lab", DigitsForTorchFidelity)
    expected = torch_fidelity.calculate_metrics(
        input1=Images(generated),
        input2=Images(real),
        feature_extractor="digits-of-diffusion-lab",
        fid=True,
        kid=True,
        isc=True,
        prc=True,
        kid_subset_size=260,
        cuda=False,
        batch_size=64,
        save_cpu_ram=True,  # no worker processes
        cache=False,
        verbose=False,
    )
    ours = evaluate_images(generated, real, ClassifierFeatures("digits"), named(), batch_size=64)
    # Its means and kernels are float32, ours float64; precision and recall are counts.
    assert ours == {
        "fd260_digits": pytest.approx(expected["frechet_inception_distance"], rel=1e-6),
        "kd260_digits": pytest.approx(expected["kernel_inception_distance_mean"], rel=1e-5),
        "is260_digits": pytest.approx(expected["inception_score_mean"], rel=1e-12),
        "precision260_digits": expected["precision"],
        "recall260_digits": expected["recall"],
    }


# -- what is refused ----------------------------------------------------------------------------------------------


def test_too_few_samples_are_refused(rows):
    with pytest.raises(ValueError, match="^features=31 images must be at least 32, twice their 16 dim"):
        frechet_distance(rows(31, 16), rows(100, 16))
    frechet_distance(rows(32, 16), rows(100, 16))


@pytest.mark.parametrize("distance", [frechet_distance, kernel_distance, precision_recall])
def test_bad_features_are_refused(distance, rows):
    good = rows(50, 4)
    bad = good.clone()
    bad[7, 2] = float("nan")
    with pytest.raises(ValueError, match=r"must be finite, but 1 of 50 rows are not, first \[7\]"):
        distance(bad, good)
    with pytest.raises(ValueError, match="uint8 must be a floating"):
        distance(good.to(torch.uint8), good)
    with pytest.raises(ValueError, match="a has 3 dimensions and b 4; use one extractor"):
        distance(good[:, :3], good)


def test_arguments_out_of_range_are_refused(rows):
    with pytest.raises(ValueError, match="^k=3 must be smaller than both sets"):
        precision_recall(rows(3, 2), rows(50, 2))
    with pytest.raises(ValueError, match="^splits=10 must be an integer in"):
        inception_score(rows(9, 2))
