"""The script that makes the small classifiers."""

import json

import pytest
import torch

from diffusion_lab.data import Digits
from diffusion_lab.metrics import ClassifierFeatures, train_classifier
from diffusion_lab.metrics import features as features_module
from diffusion_lab.metrics.learn_features import shifted
from diffusion_lab.metrics.train_classifier import Recipe, save, train
from diffusion_lab.streams import Streams

QUICK = Recipe(8, 16, epochs=2, learning_rate=3e-3, shift=1, batch_size=32)


def test_an_augmented_image_is_a_shifted_one():
    image = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3)
    batch = shifted(image.repeat(400, 1, 1, 1), 1, Streams(0), 0, 0, edges="constant")
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
    allowed = {tuple(padded[..., i : i + 3, j : j + 3].flatten().tolist()) for i in range(3) for j in range(3)}
    assert {tuple(row.flatten().tolist()) for row in batch} == allowed  # all nine, nothing else


def test_training_is_a_function_of_the_seed_and_learns(tmp_path, monkeypatch):
    source, lines = Digits(), []
    network = train(source, QUICK, report=lines.append)
    again = train(source, QUICK, report=lambda line: None)
    for a, b in zip(network.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert len(lines) == 2 and "test accuracy" in lines[-1]
    card = save(network, "digits", source, QUICK, tmp_path)
    assert card["accuracy"]["test"] > 0.5  # 0.1 by guessing
    assert json.loads((tmp_path / "digits.json").read_text()) == card
    monkeypatch.setattr(features_module, "WEIGHTS", tmp_path)
    extractor = ClassifierFeatures("digits")
    assert extractor.feature_dim == 16
    images = source.test().images[:9]
    assert torch.allclose(extractor(images).features, network(images)[0], atol=1e-6)


@pytest.mark.parametrize("name", train_classifier.RECIPES)
def test_the_committed_weights_come_from_the_committed_recipe(name):
    card = ClassifierFeatures(name).card
    assert card["recipe"] == train_classifier.asdict(train_classifier.RECIPES[name][1])
