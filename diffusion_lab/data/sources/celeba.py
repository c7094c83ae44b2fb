"""Faces: CelebA, 202,599 aligned photographs, 178 x 218 pixels, cropped to squares; CelebA-HQ, 30,000 of 1024 x 1024.

Z. Liu, P. Luo, X. Wang, X. Tang, "Deep Learning Face Attributes in the Wild", arXiv 1411.7766. CelebA's official
partition has 162,770 training (0), 19,867 validation (1) and 19,962 test images (2).

Published numbers use different crops and can be compared only at equal `crop`. From released code:

    25,57,128   centre (89,121): DDIM (arXiv 2010.02502) and U-ViT (arXiv 2209.12152)
    19,39,140   the centre of the image: score SDE (arXiv 2011.13456)
    15,40,148   ddpm-torch, on which the released adaptive sampler is built

CelebA-HQ: T. Karras, T. Aila, S. Laine, J. Lehtinen, "Progressive Growing of GANs for Improved Quality, Stability, and
Variation", arXiv 1710.10196.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diffusion_lab.arguments import ReadPath, WrittenPath
from diffusion_lab.data.pixels import Square
from diffusion_lab.data.sources.encoded_images import random_split
from diffusion_lab.data.sources.image_folder import ImageFolder
from diffusion_lab.data.sources.scan import Seen
from diffusion_lab.files import read_text

WIDTH, HEIGHT = 178, 218  # of "Align&Cropped Images"
IMAGES, PARTITION = "img_align_celeba", "list_eval_partition"
TRAIN, TEST = "0", "2"


class CelebA(ImageFolder):
    """Faces (3, image_size, image_size) without labels.

    With list_eval_partition.txt (or Kaggle's .csv) in `root`, the splits are the official training and test images; the
    official validation images are in neither. Without it a random `test_share` is held out.
    Differs from DDIM, U-ViT and ddpm-torch: bicubic where torchvision's resize is bilinear, both antialiased, because
    all image sets here are resized in the same way.

    Args:
        root: folder that contains img_align_celeba/.
        image_size: pixels along a side, after cropping and resizing.
        crop: (left, top, side), pixels of the aligned image: (25, 57, 128) in DDIM and U-ViT, (19, 39, 140) in score
            SDE, (15, 40, 148) in ddpm-torch.
        test_share: share of the images in the test split, in (0, 1); only without the official partition.
        on_bad, memory_mb, cache_dir, cache_gb: as `EncodedSource`.

    Raises:
        ValueError: a crop outside the image; as `ImageFolder`; files of another size, or a partition that is not
            complete (from `check` and on loading).
        FileNotFoundError: as `ImageFolder`.
    """

    content = "CelebA"
    cure = (
        f"; put {IMAGES}/ (202,599 files, unpacked from img_align_celeba.zip) and {PARTITION}.txt there, from "
        '"Align&Cropped Images" and "Train/Val/Test Partitions" at mmlab.ie.cuhk.edu.hk/projects/CelebA.html'
    )
    within = (IMAGES,)

    def __init__(
        self,
        root: ReadPath,
        image_size: int = 64,
        crop: Sequence[int] = (25, 57, 128),
        test_share: float = 0.1,
        on_bad: str = "error",
        memory_mb: float = 4096,
        cache_dir: WrittenPath | None = None,
        cache_gb: float = 16,
    ) -> None:
        super().__init__(
            root, image_size, 3, "bicubic", False, test_share, None, on_bad, memory_mb, cache_dir, cache_gb
        )
        if len(crop) != 3 or min(crop) < 0 or crop[2] < 1 or crop[0] + crop[2] > WIDTH or crop[1] + crop[2] > HEIGHT:
            raise ValueError(
                f"crop={list(crop)} must be [left, top, side] of a square inside {WIDTH} x {HEIGHT} pixels; "
                "use [25, 57, 128]"
            )
        self.square = Square(image_size, crop=(crop[0], crop[1], crop[2]))
        self.name = f"celeba{image_size}"

    def _fault(self, file: Seen) -> str:
        if not file.error and (file.width, file.height) != (WIDTH, HEIGHT):
            return f"{file.width} x {file.height} pixels where aligned images have {WIDTH} x {HEIGHT}"
        return file.fault(1)

    def _split(self, good: list[Seen]) -> dict[str, list[int]]:
        path = next((path for end in (".txt", ".csv") if (path := self.root / f"{PARTITION}{end}").is_file()), None)
        if path is None:
            return random_split(len(good), self.test_share)
        part = read_partition(path)
        parts = [part.get(file.name.split("/")[-1]) for file in good]
        split = {name: [i for i, p in enumerate(parts) if p == k] for name, k in (("train", TRAIN), ("test", TEST))}
        if None in parts or not all(split.values()):
            raise ValueError(
                f"root={self.root} must hold a complete {path.name}, with training and test images; "
                f"{parts.count(None)} of {len(good)} images are not in it; fetch it again, or remove it to hold out "
                "test_share"
            )
        return split


def read_partition(path: Path) -> dict[str, str]:
    """File name -> "0" (train), "1" (validation) or "2" (test), from lines "000001.jpg 0" or "000001.jpg,0"."""
    lines = (line.replace(",", " ").split() for line in read_text(path).splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


class CelebAHQ(ImageFolder):
    """Faces (3, image_size, image_size) without labels; files of `image_size` pixels are not resized.

    Differs from LDM, which splits by its own lists of .npy files: a random sixth is held out, 5,000 of 30,000 images,
    because the available copies have other file names.

    Args:
        root: folder of the files, in subfolders or not; 1024 x 1024, 256 x 256 or between.
        image_size: pixels along a side after resizing.
        test_share: share of the images in the test split, in (0, 1).
        on_bad, memory_mb, cache_dir, cache_gb: as `EncodedSource`.

    Raises:
        ValueError, FileNotFoundError: as `ImageFolder`.
    """

    content = "CelebA-HQ"
    cure = (
        "; put the 30,000 PNG or JPEG files there, of 256 pixels or more: CelebA-HQ-img/ of CelebAMask-HQ "
        "(github.com/switchablenorms/CelebAMask-HQ), or what github.com/tkarras/progressive_growing_of_gans makes"
    )

    def __init__(
        self,
        root: ReadPath,
        image_size: int = 256,
        test_share: float = 1 / 6,
        on_bad: str = "error",
        memory_mb: float = 4096,
        cache_dir: WrittenPath | None = None,
        cache_gb: float = 16,
    ) -> None:
        super().__init__(
            root, image_size, 3, "bicubic", False, test_share, None, on_bad, memory_mb, cache_dir, cache_gb
        )
        self.name = f"celebahq{image_size}"
