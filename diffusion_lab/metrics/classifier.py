"""The small convolutional classifier that provides the features for small data sets.

    x in {0..255} -> x/127.5 - 1 -> [conv 3x3, batch norm, ReLU] x 3, halving the size after the 1st and the 2nd
      -> linear to D, batch norm, ReLU = features (N, D) -> linear to K = logits (N, K)

The features are the penultimate activations, as those of Inception-v3 are for FID (Heusel et al. 2017). They are
flattened before the linear layer, not averaged over the image, so that they depend on the position of a stroke.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SmallClassifier(nn.Module):
    """Three convolutions and two linear layers.

    Args:
        channels: C of the images.
        image_size: H = W, at least 4.
        num_classes: K.
        width: channels of the first convolution; the others have twice as many.
        feature_dim: D. A Fréchet distance needs at least 2 D images.
        dropout: probability of zeroing a feature before the last layer in training, in [0, 1).
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int = 16,
        feature_dim: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            *_convolution(channels, width),
            nn.MaxPool2d(2),
            *_convolution(width, 2 * width),
            nn.MaxPool2d(2),
            *_convolution(2 * width, 2 * width),
            nn.Flatten(),
            nn.Linear(2 * width * (image_size // 4) ** 2, feature_dim, bias=False),
            nn.BatchNorm1d(feature_dim),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(feature_dim, num_classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """images (N,C,H,W), 0..255 of any dtype -> features (N,D), logits (N,K)."""
        features = self.trunk(images.to(self.head.weight.dtype) / 127.5 - 1.0)
        return features, self.head(self.dropout(features))


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    # Batch norm has its own shift, so the convolution needs no bias.
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def accuracy(network: SmallClassifier, images: Tensor, labels: Tensor, batch_size: int = 500) -> float:
    """Share of images (N,C,H,W) uint8 whose largest logit is their label (N,)."""
    network.eval()
    with torch.no_grad():
        correct = sum(
            (network(x)[1].argmax(1) == y).sum().item()
            for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True)
        )
    return correct / len(images)
