"""Train the small classifier of a data set: python -m diffusion_lab.metrics.train_classifier digits

Writes weights/<name>.pt (a state dict in half precision) and weights/<name>.json (architecture, training, and accuracy
on the test split, measured with the rounded weights). The seed is fixed, and the data set is the one that models are
trained on, so its scaling and split agree with the evaluation.

Adam with a cosine learning rate from 3e-3 (digits) or 2e-3 (Fashion-MNIST) to 0, cross entropy with label smoothing
0.05, images shifted by at most `shift` pixels. Images are not mirrored: a mirrored digit is not a digit, and nearly all
shoes of Fashion-MNIST point to the left, so the features should detect a model that mirrors.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from diffusion_lab.data import Digits, FashionMNIST, ImageSet, ImageSource
from diffusion_lab.files import file_sha256
from diffusion_lab.metrics.features import WEIGHTS, SmallClassifier, accuracy
from diffusion_lab.metrics.learn_features import shifted
from diffusion_lab.streams import Streams


@dataclass(frozen=True)
class Recipe:
    """How a classifier is trained."""

    width: int
    feature_dim: int
    epochs: int
    learning_rate: float
    shift: int  # pixels
    batch_size: int = 128
    dropout: float = 0.2
    weight_decay: float = 1e-4
    label_smoothing: float = 0.05
    seed: int = 0


RECIPES = {
    "digits": (lambda root: Digits(), Recipe(32, 64, epochs=60, learning_rate=3e-3, shift=1)),
    "fashion_mnist": (FashionMNIST, Recipe(16, 128, epochs=10, learning_rate=2e-3, shift=2)),
    "fashion_mnist14": (
        lambda root: FashionMNIST(root, image_size=14),
        Recipe(32, 64, epochs=20, learning_rate=2e-3, shift=1),
    ),
}


def train(source: ImageSource, recipe: Recipe, report: Callable[[str], object] = print) -> SmallClassifier:
    """Train a classifier on the training split and return it in eval mode; `report` is called once per epoch."""
    streams = Streams(recipe.seed)
    torch.manual_seed(streams.key("init"))
    network = SmallClassifier(**network_arguments(source, recipe), dropout=recipe.dropout)
    network.to(memory_format=torch.channels_last)  # a quarter faster on a CPU
    (images, labels), test_set = everything(source.train()), everything(source.test())
    steps = math.ceil(len(images) / recipe.batch_size)
    optimizer = torch.optim.Adam(network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * recipe.epochs)
    for epoch in range(recipe.epochs):
        network.train()
        order = torch.randperm(len(images), generator=streams.generator("cpu", "order", epoch))
        total = 0.0
        for batch, rows in enumerate(order.split(recipe.batch_size)):
            seen = shifted(images[rows], recipe.shift, streams, epoch, batch, edges="constant")
            _, logits = network(seen)
            loss = cross_entropy(logits, labels[rows], label_smoothing=recipe.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        share = accuracy(network, *test_set)
        report(f"epoch {epoch + 1:3d}/{recipe.epochs}  loss {total / steps:.4f}  test accuracy {share:.4f}")
    return network.eval()


def everything(images: ImageSet) -> tuple[Tensor, Tensor]:
    """All images (N,C,H,W) uint8 and labels (N,) of a split."""
    if images.labels is None:
        raise ValueError("the images have no labels; a classifier needs them")
    return images.take(torch.arange(len(images))), images.labels


def network_arguments(source: ImageSource, recipe: Recipe) -> dict[str, Any]:
    """Constructor arguments of the classifier."""
    return {
        "channels": source.channels,
        "image_size": source.image_size,
        "num_classes": source.num_classes,
        "width": recipe.width,
        "feature_dim": recipe.feature_dim,
    }


def save(network: SmallClassifier, name: str, source: ImageSource, recipe: Recipe, folder: Path) -> dict:
    """Write both files and return the json's content."""
    half = {key: value.half() if value.is_floating_point() else value for key, value in network.state_dict().items()}
    network.load_state_dict(half)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pt"
    torch.save(half, path)
    splits = {"train": everything(source.train()), "test": everything(source.test())}
    card = {
        "dataset": source.name,
        "images": {split: len(images) for split, (images, _) in splits.items()},
        "accuracy": {split: round(accuracy(network, *pair), 4) for split, pair in splits.items()},
        "network": network_arguments(source, recipe),
        "parameters": sum(p.numel() for p in network.parameters()),
        "recipe": asdict(recipe),
        "command": f"python -m diffusion_lab.metrics.train_classifier {name}",
        "torch": torch.__version__,
        "sha256": file_sha256(path),
    }
    (folder / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return card


def main() -> None:
    """Train and save a classifier, and print its accuracy."""
    parser = argparse.ArgumentParser(description="Train the small classifier whose features measure a data set.")
    parser.add_argument("dataset", choices=RECIPES)
    parser.add_argument("--root", default="data", help="folder of the data set's files, if it has any (default: data)")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder of the two files (default: the package's)")
    arguments = parser.parse_args()
    make_source, recipe = RECIPES[arguments.dataset]
    source = make_source(arguments.root)
    network = train(source, recipe, report=lambda line: print(line, flush=True))
    card = save(network, arguments.dataset, source, recipe, arguments.out)
    print(f"{arguments.out / arguments.dataset}.pt: test accuracy {card['accuracy']['test']:.4f}")


if __name__ == "__main__":
    main()
