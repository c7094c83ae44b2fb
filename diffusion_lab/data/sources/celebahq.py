"""CelebA-HQ: 30,000 photographs of faces of 1024 x 1024 pixels.

T. Karras, T. Aila, S. Laine, J. Lehtinen, "Progressive Growing of GANs for Improved Quality, Stability, and
Variation", arXiv 1710.10196.
"""

from __future__ import annotations

from diffusion_lab.arguments import ReadPath, WrittenPath
from diffusion_lab.data.sources.image_folder import ImageFolder


class CelebAHQ(ImageFolder):
    """Faces (3, image_size, image_size) without labels; files of `image_size` pixels are not resized.

    Differs from LDM, which splits by its own lists of .npy files: a random sixth is held out, 5,000 of 30,000 images,
    because the available copies have other file names.

    Args:
        root: folder of the files, in subfolders or not; 1024 x 1024, 256 x 256 or between.
        image_size: pixels along a side after resizing.
        test_share: share of the images in the test split, in (0, 1).
        on_bad, memory_mb, cache_dir: as `ImageFolder`.

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
    ) -> None:
        super().__init__(
            root, image_size, test_share=test_share, on_bad=on_bad, memory_mb=memory_mb, cache_dir=cache_dir
        )
        self.name = f"celebahq{image_size}"
