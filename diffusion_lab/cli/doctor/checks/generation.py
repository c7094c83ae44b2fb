"""Samples of a run that is read back, and the features by which images are measured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from diffusion_lab.cli.doctor.check import CPU, CheckPlace, Finding, check, differs, impossible, ok

if TYPE_CHECKING:
    import torch

    from diffusion_lab.metrics import FeatureExtractor
    from diffusion_lab.metrics.features import Features
    from diffusion_lab.training import TrainedModel

SAMPLES, BATCHES = 24, (24, 7)  # images, and how many of them at a time
SAME_DEVICE = 1e-4  # of the largest number; another number of rows gives up to 1e-6 on the CPU
OTHER_DEVICE = 1e-3  # as the losses of float32, without TF32 as there


@check(limit=120)
def sampling(place: CheckPlace) -> Finding:
    """Samples of the run of `float32`: finite, in range, the same in batches of two sizes, and those of the CPU."""
    from diffusion_lab.cli.doctor.small_training import tensor_float, train
    from diffusion_lab.cli.inference import ready
    from diffusion_lab.cli.load import load_run

    folder = place.folder / "float32"
    if not folder.exists():
        train(folder, *place.settings)
    trained = load_run(folder)
    with ready(trained.module, CPU) as where:
        expected = samples(trained, BATCHES[0], where)
    with tensor_float(False), ready(trained.module, place.device) as where:
        found = samples(trained, BATCHES[0], where)
        start = time.perf_counter()
        again = samples(trained, BATCHES[1], where)
        rate = SAMPLES / (time.perf_counter() - start)
    largest = float(found.abs().max())
    if largest > 1.0 + SAME_DEVICE:
        return differs(f"numbers as large as {largest:.3g}, which must be at most 1")
    finding = agree({"two batch sizes": (again, found)} | beside_cpu(place, found, expected), 1.0)
    return finding._replace(
        words=f"{finding.words}; {rate:.0f} images per second in {trained.config['solver']['steps']} steps"
    )


def samples(trained: TrainedModel, rows: int, device: torch.device) -> torch.Tensor:
    """(n,C,H,W) samples of a model as it gives them, of the same latents each time; ValueError if one is not finite."""
    from diffusion_lab.metrics import generate

    assert trained.own_solver is not None
    solver, shape = trained.own_solver(), trained.data.shape
    return generate(trained.module, solver, range(SAMPLES), 0, shape, rows, device, to_pixels=lambda x: x)


@check(limit=60)
def features_of_digits(place: CheckPlace) -> Finding:
    """The classifier of digits, whose features measure them: its test accuracy, and its features on the CPU."""
    from diffusion_lab.data import Digits
    from diffusion_lab.metrics import ClassifierFeatures

    extractor, test = ClassifierFeatures("digits"), Digits().test()
    extractor.check()
    finding, found = same_features(place, extractor, test.take(range(len(test))))
    right = (found.logits.argmax(1) == test.labels).float().mean().item()
    wanted = extractor.card["accuracy"]["test"]
    if abs(right - wanted) > 0.5 / len(test):
        return differs(f"{right:.4f} of the test images are classified correctly, and it must be {wanted:.4f}")
    return finding._replace(words=f"{finding.words}; accuracy {right:.4f}")


@check(limit=240)
def features_of_inception(place: CheckPlace) -> Finding:
    """Inception, if its weights are there."""
    import torch

    from diffusion_lab.metrics.inception import FILE, InceptionFeatures

    extractor = InceptionFeatures()
    try:
        extractor.check()
    except FileNotFoundError:
        return impossible(f"{FILE} is not there")
    images = torch.arange(12 * 3 * 32 * 32).view(12, 3, 32, 32).mul(37).byte()
    return same_features(place, extractor, images)[0]


def same_features(place: CheckPlace, extractor: FeatureExtractor, images: torch.Tensor) -> tuple[Finding, Features]:
    """Whether features do not depend on the batch size, and on the device only by rounding; and the features."""
    from diffusion_lab.cli.doctor.small_training import tensor_float
    from diffusion_lab.metrics import extract

    expected = extract(extractor, images).features
    with tensor_float(False):
        again = extract(extractor, images, batch_size=7, device=place.device).features
        start = time.perf_counter()
        found = extract(extractor, images, device=place.device)
        rate = len(images) / (time.perf_counter() - start)
    pairs = {"two batch sizes": (again, found.features)} | beside_cpu(place, found.features, expected)
    finding = agree(pairs, float(expected.abs().max()))
    return finding._replace(words=f"{finding.words}; {rate:.0f} images per second"), found


Pairs = dict[str, tuple["torch.Tensor", "torch.Tensor"]]


def beside_cpu(place: CheckPlace, found: torch.Tensor, expected: torch.Tensor) -> Pairs:
    """The comparison with the CPU, on other devices."""
    return {} if place.device == CPU else {CPU: (found, expected)}


def agree(pairs: Pairs, scale: float) -> Finding:
    """Whether two tensors are equal within the tolerance of what is compared, as the largest |a - b| / scale."""
    words, fine = [], True
    for name, (a, b) in pairs.items():
        gap, most = float((a - b).abs().max()) / scale, OTHER_DEVICE if name == CPU else SAME_DEVICE
        fine = fine and gap <= most  # not, if it is not a number
        words.append(f"{gap:.1e} between {name if name != CPU else 'it and the CPU'}, at most {most:.0e}")
    return (ok if fine else differs)("; ".join(words))
