from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diffusion_lab.data import CelebA, CelebAHQ, ImageDataModule
from diffusion_lab.data.sources.bundled import photograph


def faces(root: Path, n: int = 10) -> Path:
    """Files as in img_align_celeba/: pieces of a portrait, 178 x 218 pixels, as PNG so that pixels compare."""
    below = root / "img_align_celeba"
    below.mkdir(parents=True)
    with Image.open(photograph("astronaut.png")) as portrait:
        for i in range(n):
            piece = portrait.crop((20 * i, 10 * i, 20 * i + 178, 10 * i + 218))
            piece.save(below / f"{i + 1:06}.jpg", "PNG")
    return root


def celeba(root: Path, **kwargs) -> CelebA:
    return CelebA(root, cache_dir=root.parent / "cache", **kwargs)


def partition(root: Path, parts: str, name: str = "list_eval_partition.txt", comma: str = " ") -> None:
    lines = [f"{i:06}.jpg{comma}{part}" for i, part in enumerate(parts, 1)]
    (root / name).write_text("\n".join((["image_id,partition"] if comma == "," else []) + lines) + "\n")


@pytest.mark.parametrize(("end", "comma"), [("txt", " "), ("csv", ",")])
def test_the_official_split(tmp_path, end, comma):
    root = faces(tmp_path / "celeba")
    partition(root, "0001110022", f"list_eval_partition.{end}", comma)
    source = celeba(root, memory_mb=0)
    names = {s: [seen.name[-10:-4] for seen in getattr(source, s)().seen] for s in ("train", "test")}
    assert names == {"train": ["000001", "000002", "000003", "000007", "000008"], "test": ["000009", "000010"]}
    assert source.train_size() == 5 and source.num_classes is None and source.name == "celeba64"


def test_a_partition_that_is_not_complete(tmp_path):
    root = faces(tmp_path / "celeba")
    partition(root, "00011")
    with pytest.raises(ValueError, match=r"complete list_eval_partition.txt, .*; 5 of 10 images are not in it; fetch"):
        celeba(root).check()
    partition(root, "0" * 10)
    with pytest.raises(ValueError, match="with training and test images; 0 of 10 images are not in it"):
        celeba(root).check()


def test_without_a_partition_a_share_is_held_out(tmp_path):
    root = faces(tmp_path / "celeba")
    source = celeba(root, test_share=0.3)
    assert len(source.train()) == 7 and len(source.test()) == 3


@pytest.mark.parametrize("crop", [(25, 57, 128), (19, 39, 140), (15, 40, 148)])
def test_the_crop_is_cut_out_before_resizing(tmp_path, crop):
    root = faces(tmp_path / "celeba")
    partition(root, "0" * 9 + "2")
    got = celeba(root, crop=crop).train().images[3].permute(1, 2, 0).numpy()
    left, top, side = crop
    with Image.open(root / "img_align_celeba" / "000004.jpg") as image:
        cut = image.crop((left, top, left + side, top + side))
        want = np.asarray(cut.resize((64, 64), Image.Resampling.BICUBIC))
    assert np.array_equal(got, want)
    if side == 128:  # an even factor, so that a mean over 2 x 2 pixels is near: the crop sits where it should
        mean = np.asarray(cut, float).reshape(64, 2, 64, 2, 3).mean((1, 3))
        shifted = np.roll(mean, 1, 1)
        assert np.abs(got - mean).mean() < 0.3 * np.abs(got - shifted).mean()


def test_conventions_are_different_images(tmp_path):
    root = faces(tmp_path / "celeba")
    assert celeba(root).train().fingerprint() != celeba(root, crop=(19, 39, 140)).train().fingerprint()


def test_only_aligned_files_are_taken(tmp_path):
    root = faces(tmp_path / "celeba")
    (root / "img_celeba").mkdir()
    Image.new("RGB", (500, 400)).save(root / "img_celeba" / "000001.jpg")  # "in the wild", beside the aligned ones
    celeba(root).check()
    Image.new("RGB", (178, 180)).save(root / "img_align_celeba" / "small.png")
    with pytest.raises(ValueError, match="small.png: 178 x 180 pixels where aligned images have 178 x 218"):
        celeba(root).check()


def test_what_is_not_there_and_where_it_belongs(tmp_path):
    module = ImageDataModule(celeba(tmp_path / "celeba"), 4)
    with pytest.raises(FileNotFoundError) as caught:
        module.check()
    message = str(caught.value)
    assert message.startswith(f"source.root={tmp_path}/celeba must be a folder of CelebA; there is none at {tmp_path}")
    for word in ("img_align_celeba/", "list_eval_partition.txt", "mmlab.ie.cuhk.edu.hk"):
        assert word in message
    assert "\n" not in message
    (tmp_path / "celeba").mkdir()
    with pytest.raises(FileNotFoundError, match=r"^source.root=.* has 0; put img_align_celeba/"):
        module.check()


@pytest.mark.parametrize("crop", [(0, 0, 179), (-1, 0, 10), (100, 100, 100), (0, 0, 0), (1, 2)])
def test_bad_crops(tmp_path, crop):
    with pytest.raises(ValueError, match=r"crop=\[.*\] must be \[left, top, side\] of a square inside 178 x 218"):
        celeba(tmp_path, crop=crop)


def test_high_quality_faces(tmp_path):
    root = tmp_path / "celebahq"
    with pytest.raises(FileNotFoundError, match=r"^source.root=.* must be a folder of CelebA-HQ; .* put the 30,000 "):
        ImageDataModule(CelebAHQ(root), 4).check()
    root.mkdir()
    with Image.open(photograph("astronaut.png")) as portrait:
        for i in range(12):
            portrait.crop((4 * i, 0, 4 * i + 256, 256)).save(root / f"{i}.png")
    source = CelebAHQ(root, cache_dir=tmp_path / "cache")
    assert len(source.train()) == 10 and len(source.test()) == 2 and source.name == "celebahq256"
    assert source.train().images.shape == (10, 3, 256, 256)
