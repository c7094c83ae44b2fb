"""dataset=fashion_mnist14 on the command line, on random images in the form of the data set."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.cli.config import compose_train, config_hash, run_name
from diffusion_lab.cli.main import main
from diffusion_lab.cli.validate import check
from tests.data.sources.test_fashion_mnist import idx_bytes
from tests.harness import Child

TRAIN_IMAGES, TEST_IMAGES = 300, 40  # reference statistics need twice the 64 dimensions of the features
NETWORKS = [
    ["network=unet_tiny"],
    ["network=uvit_tiny"],
    ["task=gan", "network=dcgan"],
    ["task=gan", "network=biggan_tiny", "network.attention_resolution=14"],
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("fashion"), np.random.default_rng(0)
    for name, count in (("train", TRAIN_IMAGES), ("t10k", TEST_IMAGES)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx_bytes(rng.integers(0, 10, count, dtype=np.uint8)))
    return folder


@pytest.fixture
def faults(composed, root):
    def found(*overrides: str) -> list[str]:
        cfg = composed(*overrides, f"dataset.source.root={root}", "trainer.accelerator=cpu")
        return [str(error) for error in check(cfg)]

    return found


@pytest.mark.parametrize("words", NETWORKS, ids=lambda words: words[-1])
def test_the_small_networks_take_it(faults, words):
    assert faults("dataset=fashion_mnist14", *words) == []


def test_attention_at_8_pixels_is_refused_by_its_key(faults):
    (fault,) = faults("dataset=fashion_mnist14", "task=gan", "network=biggan_tiny")
    assert fault.startswith("network.attention_resolution=8 must be null or one of 14")


def test_the_classifier_of_the_other_size_is_refused_by_its_key(faults):
    words = "metrics.names=[fid,kid,is,precision,recall] must be measured with features of"
    (fault,) = faults("dataset=fashion_mnist", "dataset.source.image_size=14")
    assert fault.startswith(f"{words} 1x14x14 images, and dataset.features=fashion_mnist is for 1x28x28; use")
    (fault,) = faults("dataset=fashion_mnist14", "dataset.source.image_size=28")
    assert fault.startswith(f"{words} 1x28x28 images, and dataset.features=fashion_mnist14 is for 1x14x14; use")
    assert faults("dataset=fashion_mnist", "dataset.source.image_size=14", "metrics=none") == []


def test_a_size_that_does_not_divide_28_is_refused_by_its_key(faults):
    (fault,) = faults("dataset=fashion_mnist14", "dataset.source.image_size=13")
    assert fault.startswith("dataset.source.image_size=13 must divide the 28 pixels of a stored image; use 28 or 14")


def test_the_sizes_are_two_data_sets(tmp_path):
    now, small = (compose_train([f"dataset={name}"], tmp_path / "run") for name in ("fashion_mnist", "fashion_mnist14"))
    assert config_hash(small) != config_hash(now)
    assert run_name(small) == "fashion_mnist14-logit_normal-v-min_snr-s0"


@pytest.mark.slow
def test_a_run_and_its_metric(root, tmp_path, monkeypatch):
    monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    words = ["dataset=fashion_mnist14", f"dataset.source.root={root}", "network=unet_tiny", "network.base_channels=8"]
    words += ["max_steps=3", "batch_size=16", "schedule.num_timesteps=40", "solver=ddim", "solver.steps=2"]
    words += ["metrics.names=[fid]", "metrics.num_samples=128", "trainer.accelerator=cpu", f"hydra.run.dir={folder}"]

    def work() -> None:
        raise SystemExit(main(["train", *words]))

    Child(work, tmp_path / "log").succeed()
    line, copying = map(json.loads, (folder / "evaluations.jsonl").read_text().splitlines())
    assert line["name"] == "fd128_fashion_mnist14" and line["value"] > 0
    assert copying["name"] == "copying128"  # and no test_fid: the test images are fewer than twice the features
    reference = line["protocol"]["reference"]
    assert reference["dataset"] == "fashion_mnist14"
    (cached,) = (tmp_path / "cache" / "reference").glob("*.npz")
    assert cached.name.startswith("fashion_mnist14-train-fashion_mnist14-")
    metadata = json.loads(str(np.load(cached)["metadata"]))
    assert metadata["shape"] == [1, 14, 14] and metadata["images"] == TRAIN_IMAGES
    assert metadata["extractor"] == "fashion_mnist14"
