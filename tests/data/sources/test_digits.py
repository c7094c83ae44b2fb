from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from diffusion_lab.data import Digits
from diffusion_lab.data.sources import bundled


def test_the_images_and_the_split_are_scikit_learns():
    data, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(data, labels, test_size=0.2, random_state=0)
    for images, want, want_labels in ((Digits().train(), train, train_labels), (Digits().test(), test, test_labels)):
        assert images.images.shape == (len(want), 1, 8, 8) and images.images.dtype == torch.uint8
        counts = images.images.flatten(1).numpy() / 255 * 16
        assert np.abs(counts - want).max() < 0.04  # the nearest byte
        assert np.array_equal(np.rint(counts), want)
        assert images.labels.tolist() == want_labels.tolist()
    assert Digits().train_size() == len(train) == 1437
    assert set(Digits().train().images.unique().tolist()) >= {0, 255}


def test_scikit_learn_is_not_imported(monkeypatch):
    """Importing it would take two seconds of every start."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    source = Digits()
    source.check()
    assert len(source.train()) == 1437
    assert "sklearn" not in sys.modules


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(bundled, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install scikit-learn"):
        Digits().check()
