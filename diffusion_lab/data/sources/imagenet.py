"""ImageNet (ILSVRC 2012): 1,281,167 training and 50,000 validation photographs of 1000 classes.

O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", arXiv 1409.0575. Labels are the indices of
the class folders (synset names such as n01440764) in sorted order, 0..999, as in torchvision and guided-diffusion.

The first scan reads and decodes all files once, about 150 GB; a file of 90 kB takes 2 ms on one core, so the disk
determines the duration. Its results are saved regularly; later scans compare only sizes and times, in at most 0.1 ms
per file.
"""

from __future__ import annotations

from pathlib import Path

from diffusion_lab.arguments import ReadPath, WrittenPath
from diffusion_lab.data.sources.encoded_images import random_split
from diffusion_lab.data.sources.image_folder import ImageFolder
from diffusion_lab.data.sources.scan import Seen

TRAIN, VAL = "train", "val"
CLASSES = 1000


class ImageNet(ImageFolder):
    """Photographs (3, image_size, image_size) with labels 0..999, or fewer if `root` has fewer class folders.

    With train/ and val/ in `root`, these are the training and test images; with train/ alone, or with the class folders
    in `root` itself, a random `test_share` is held out. Other folders beside train/ are ignored.
    Differs from ADM's random crop (an option of its code) and from "ImageNet 64x64" as published in small size
    (Chrabaszcz et al., arXiv 1707.08819): always the central square of the original photographs.

    Args:
        root: folder that contains train/ and val/, or the class folders.
        image_size: pixels along a side, after resizing the shorter side and cropping the centre; smaller photographs
            are enlarged, as in ADM.
        resize: "box_bicubic" as in ADM and its reference statistics, or "bicubic".
        class_folders: whether the class folders, numbered in sorted order, are the labels; if false, val/ may hold
            loose files.
        test_share: share of the images in the test split, in (0, 1); only without val/.
        on_bad, memory_mb, cache_dir, cache_gb: as `EncodedSource`.

    Raises:
        ValueError: as `ImageFolder`; val/ has a class folder that train/ does not have (from `check` and on loading).
        FileNotFoundError: as `ImageFolder`.
    """

    content = "ImageNet"
    cure = (
        "; unpack ILSVRC2012_img_train.tar into train/SYNSET/*.JPEG and ILSVRC2012_img_val.tar into val/SYNSET/*.JPEG "
        "there (an account at image-net.org; torchvision.datasets.ImageNet unpacks both so)"
    )

    def __init__(
        self,
        root: ReadPath,
        image_size: int,
        resize: str = "box_bicubic",
        class_folders: bool = True,
        test_share: float = 0.1,
        on_bad: str = "error",
        memory_mb: float = 4096,
        cache_dir: WrittenPath | None = None,
        cache_gb: float = 16,
    ) -> None:
        super().__init__(
            root, image_size, 3, resize, class_folders, test_share, 1, on_bad, memory_mb, cache_dir, cache_gb
        )
        self.name = f"imagenet{image_size}"
        self._train = self.root / TRAIN if (self.root / TRAIN).is_dir() else self.root
        if self._train != self.root:
            self.within = (TRAIN, VAL)

    @property
    def num_classes(self) -> int | None:
        """Number of class folders, 1000 if `root` does not exist; None without labels."""
        return CLASSES if self.class_folders and not self.root.is_dir() else super().num_classes

    def _check_root(self) -> None:
        super()._check_root()
        if self._train == self.root and (self.root / VAL).is_dir():
            raise FileNotFoundError(f"root={self.root} must hold {TRAIN}/ beside {VAL}/{self.cure}")

    def _split(self, good: list[Seen]) -> dict[str, list[int]]:
        val = [i for i, file in enumerate(good) if self._is_val(file.name)]
        if not val:
            return random_split(len(good), self.test_share)
        if len(val) == len(good):
            raise FileNotFoundError(f"root={self.root} must hold training images, and {TRAIN}/ has none{self.cure}")
        return {"train": [i for i, file in enumerate(good) if not self._is_val(file.name)], "test": val}

    def _is_val(self, name: str) -> bool:
        return self._train != self.root and name.startswith(f"{VAL}/")

    @property
    def _class_root(self) -> Path:
        return self._train

    def _class_of(self, name: str) -> str | None:
        return super()._class_of(name if self._train == self.root else name.split("/", 1)[1])

    def _check_classes(self, good: list[Seen]) -> None:
        super()._check_classes(good)
        if not self.class_folders:
            return
        unknown = sorted({str(self._class_of(file.name)) for file in good} - set(self._classes()))
        if unknown:
            raise ValueError(
                f"root={self.root} must hold the same class folders in {VAL}/ as in {TRAIN}/, which lacks "
                f"{', '.join(unknown[:8])}; remove them or add their training images"
            )
