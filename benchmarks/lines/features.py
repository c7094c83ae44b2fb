"""Features for FID: torch-fidelity's own loop over ours, with the same Inception-v3.

Time of torch-fidelity's `extract_featuresdict_from_input_id` over that of `extract` with `InceptionFeatures`, on the
same 64 images of 3 x 32 x 32, from bytes to features and logits including the resizing to 299 x 299; each with its own
batch size (64 and 16), random weights. CPU time of one thread, interleaved, 2 rounds.

Ours does not use bf16; the last two lines measure its effect. The change is that of the Fréchet distance of the digits'
classifier with all layers in bf16, between the training images and the test images, or training images with noise of 5,
20 and 60 grey levels, or noise alone: median, minimum and maximum of the five. The time is that of our network under
autocast, on 8 images. With random Inception weights the change of FID itself cannot be measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch_fidelity import FeatureExtractorInceptionV3
from torch_fidelity.utils import create_feature_extractor, extract_featuresdict_from_input_id

from benchmarks.paired import Ratio, interleaved, ratio
from benchmarks.table import Line, at_least, at_most, bfloat16_line
from diffusion_lab.data import Digits
from diffusion_lab.metrics import ClassifierFeatures, FeatureExtractor, InceptionFeatures, extract, frechet_distance
from diffusion_lab.metrics.features import images_per_call

IMAGES, ROUNDS, NOISE = 64, 2, (5, 20, 60)


def lines() -> Iterator[Line]:
    images = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = _extractors(Path(folder) / "weights.pth")
    options = {"cuda": False, "batch_size": 64, "save_cpu_ram": True, "verbose": False}  # no worker processes
    tasks = {
        "ours": lambda: extract(ours, images),
        "theirs": lambda: extract_featuresdict_from_input_id(1, theirs, input1=Images(images), **options),
    }
    seconds = interleaved(tasks, ROUNDS, warmup=0)
    yield Line("fp32", ratio(seconds["theirs"], seconds["ours"]), at_least(1.5))
    yield Line("change of a Fréchet distance in bf16", Ratio.of(list(_changes())), at_most(0.1), "%")
    few = images[:8]
    bf16 = interleaved({"fp32": lambda: ours(few), "bf16": lambda: _in_bf16(ours, few)}, ROUNDS, warmup=0)
    scaled = [first * b / a for first, a, b in zip(seconds["ours"], bf16["fp32"], bf16["bf16"], strict=True)]
    note = "left off, because the distance moves"
    yield bfloat16_line("bf16", ratio(seconds["theirs"], scaled), at_least(2.5), note)


class Images(Dataset):
    """A dataset for torch-fidelity."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Tensor:
        return self.images[i]


class AnyInception(InceptionFeatures):
    """Accepts other weights than the published ones, which must be downloaded."""

    def weights_file(self) -> Path:
        return Path(str(self.path))


class Untrained(FeatureExtractorInceptionV3):
    """Keeps its random weights and ignores the file."""

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        pass


def _extractors(path: Path) -> tuple[nn.Module, FeatureExtractor]:
    """torch-fidelity's extractor and ours with the same random weights."""
    features = ["2048", "logits_unbiased"]
    torch.manual_seed(0)
    torch.save({}, path)
    weights = Untrained("untrained", features, feature_extractor_weights_path=str(path)).state_dict()
    torch.save(weights, path)
    options = {"cuda": False, "verbose": False, "feature_extractor_weights_path": str(path)}
    theirs, ours = create_feature_extractor("inception-v3-compat", features, **options), AnyInception(str(path))
    ours(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))  # reads the file
    return theirs, ours


def _in_bf16(extractor: FeatureExtractor, images: Tensor) -> Tensor:
    """Features (n,D) with every layer of the network under autocast, which the extractor would turn off."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        parts = [
            extractor._network[0](part)[0].float() for part in images.split(images_per_call(extractor, images.device))
        ]
    return torch.cat(parts).clone()


def _changes() -> Iterator[float]:
    """Change of each distance in per cent when the features of both sets are computed in bf16."""
    extractor, digits = ClassifierFeatures("digits"), Digits()
    real, generator = digits.train().images, torch.Generator().manual_seed(0)
    noisy = [(real + sd * torch.randn(real.shape, generator=generator)).clamp(0, 255).byte() for sd in NOISE]
    uniform = torch.randint(0, 256, real.shape, dtype=torch.uint8, generator=generator)
    for images in (digits.test().images, *noisy, uniform):
        float32 = frechet_distance(*(extractor(x).features for x in (images, real)))
        yield 100 * abs(frechet_distance(*(_in_bf16(extractor, x) for x in (images, real))) / float32 - 1)
