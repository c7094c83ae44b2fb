from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diffusion_lab.data import ImageDataModule, ImageNet
from diffusion_lab.data.sources.bundled import PHOTOGRAPHS, photograph

SYNSETS = ["n01440764", "n02123045", "n03791053"]


def synsets(root: Path, n: int = 3) -> Path:
    """A class folder per photograph, with pieces of it under ImageNet's kind of names."""
    for synset, name in zip(SYNSETS, PHOTOGRAPHS[1:], strict=False):
        (root / synset).mkdir(parents=True)
        with Image.open(photograph(name)) as image:
            for i in range(n):
                image.crop((30 * i, 5 * i, 30 * i + 160, 5 * i + 120)).save(root / synset / f"{synset}_{i}.JPEG")
    return root


def imagenet(root: Path, image_size: int = 32, **kwargs) -> ImageNet:
    return ImageNet(root, image_size, cache_dir=root.parent / "cache", **kwargs)


def official(root: Path) -> Path:
    synsets(root / "train")
    synsets(root / "val", 2)
    return root


def test_the_official_split_and_labels_in_sorted_order(tmp_path):
    root = official(tmp_path / "imagenet")
    (root / "test").mkdir()
    Image.new("RGB", (50, 50)).save(root / "test" / "unlabelled.JPEG")  # as the archive has it
    source = imagenet(root)
    train, test = source.train(), source.test()
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2] and test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert source.num_classes == 3 and source.train_size() == 9 and source.name == "imagenet32"
    assert train.images.shape == (9, 3, 32, 32)
    streamed = imagenet(root, memory_mb=0)
    assert streamed.test().seen[1].name == f"val/{SYNSETS[0]}/{SYNSETS[0]}_1.JPEG"
    assert streamed.train().fingerprint() == train.fingerprint()


@pytest.mark.parametrize("below", ["", "train"])
def test_without_val_a_share_is_held_out(tmp_path, below):
    synsets(tmp_path / "imagenet" / below)
    source = imagenet(tmp_path / "imagenet", test_share=0.3)
    labels = source.train().labels.tolist() + source.test().labels.tolist()
    assert len(source.test()) == 3 and sorted(labels) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_val_may_be_loose_without_labels_only(tmp_path):
    root = official(tmp_path / "imagenet")
    for path in sorted((root / "val").glob("*/*")):
        path.rename(root / "val" / path.name)
    for folder in (root / "val").iterdir():
        if folder.is_dir():
            folder.rmdir()
    unlabelled = imagenet(root, class_folders=False)
    assert len(unlabelled.test()) == 6 and unlabelled.train().labels is None and unlabelled.num_classes is None
    with pytest.raises(ValueError, match="only inside its class folders, not val/n01440764_0.JPEG"):
        imagenet(root).check()


def test_classes_of_the_splits_must_agree(tmp_path):
    root = official(tmp_path / "imagenet")
    (root / "val" / SYNSETS[0]).rename(root / "val" / "n09999999")
    with pytest.raises(ValueError, match="the same class folders in val/ as in train/, which lacks n09999999"):
        imagenet(root).check()
    for path in (root / "train").glob("*/*"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match="must hold training images, and train/ has none; unpack"):
        imagenet(root, class_folders=False).check()


def test_val_without_train_is_no_class_of_its_own(tmp_path):
    """Its images became one class, val, of which nine tenths were trained on."""
    root = official(tmp_path / "imagenet")
    shutil.rmtree(root / "train")
    with pytest.raises(FileNotFoundError, match="must hold train/ beside val/; unpack ILSVRC2012_img_train.tar"):
        imagenet(root).check()


def test_photographs_are_prepared_as_in_adm(tmp_path):
    root = official(tmp_path / "imagenet")
    got = imagenet(root, 30).train().images[0].permute(1, 2, 0).numpy()
    with Image.open(root / "train" / SYNSETS[0] / f"{SYNSETS[0]}_0.JPEG") as image:
        pixels = np.asarray(image, int)  # 120 x 160: two halvings, rounded half up, make 30 x 40
    for _ in range(2):
        pixels = (pixels[:, ::2] + pixels[:, 1::2] + 1) // 2
        pixels = (pixels[::2] + pixels[1::2] + 1) // 2
    assert np.array_equal(got, pixels[:, 5:35])
    other = imagenet(root, 30, resize="bicubic").train().images[0].permute(1, 2, 0).numpy()
    assert np.abs(other - pixels[:, 5:35]).max() > 3


def test_small_photographs_are_enlarged(tmp_path):
    root = official(tmp_path / "imagenet")
    assert imagenet(root, 128).train().images.shape == (9, 3, 128, 128)


def test_what_is_not_there_and_where_it_belongs(tmp_path):
    module = ImageDataModule(imagenet(tmp_path / "imagenet"), 4)
    with pytest.raises(FileNotFoundError) as caught:
        module.check()
    message = str(caught.value)
    assert message.startswith(f"source.root={tmp_path}/imagenet must be a folder of ImageNet; there is none at /")
    for word in ("ILSVRC2012_img_train.tar", "train/SYNSET/*.JPEG", "val/SYNSET/*.JPEG", "image-net.org"):
        assert word in message
    assert "\n" not in message


def test_there_are_1000_classes_before_the_files_are(tmp_path):
    assert ImageNet(tmp_path / "none", 64).num_classes == 1000
    assert ImageNet(tmp_path / "none", 64, class_folders=False).num_classes is None
