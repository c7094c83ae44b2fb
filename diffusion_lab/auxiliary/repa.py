"""Representation alignment: the network's features of a noisy image are drawn to those of a frozen encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, interpolate

from diffusion_lab.arguments import check_integer
from diffusion_lab.auxiliary.base import Auxiliary, places
from diffusion_lab.auxiliary.run_network import RunNetwork
from diffusion_lab.diffusion.step import Step
from diffusion_lab.metrics.features import FeatureExtractor


class REPA(Auxiliary):
    """-mean_n cos(y_n, h(z_n)), with y the encoder's features of the clean image, z those of a layer at the noisy one,
    n a place of the image, and h an MLP of three layers with SiLU, which is trained with the network (Yu et al. 2024,
    "Representation Alignment for Generation", arXiv 2410.06940, equation 8).

    The places are those of the layer: the pixels of a map (b,D,h,w), or the patches of tokens (b,n,D), where n is
    a square and tokens in front of it, such as those of time and label, are left out. The encoder's map is resized to
    them. Where either has no places, the layer with (b,D) or the encoder without a map, both are one vector: z is the
    mean over its places.

    With `stop` the loss ends after a share of the training, as alignment helps early and holds the network back later
    (Wang et al. 2025, "REPA Works Until It Doesn't", arXiv 2505.16792).

    Differs from the published code: the encoder sees the image at its own size, as it does for metrics, and its map is
    resized, where that resizes the image until the grids agree.

    Use: to train a network of blocks in fewer steps where an encoder of such images is at hand. The published layer is
    block 8 of 28, and the published encoder is DINOv2 ViT-B/14.

    Args:
        encoder: the frozen encoder of images, an extractor of features or a trained run's network; its weights are
            neither trained nor saved.
        layers: the name of one module inside the network, such as `middle.0` of a U-Net or `blocks.3` of a DiT.
        weight: lambda, 0.5 in the paper.
        hidden: features in each of the two hidden layers of h, >= 1; 2048 in the published code.
        ramp: optimizer steps over which the weight rises, >= 0.
        stop: optimizer steps after which it ends, >= 1; null: it stays.
        checksum: sha256 of the encoder's file of weights, as it was when the run began; null: there is no such file.

    Raises:
        ValueError: there is no encoder, or not one layer.
    """

    def __init__(
        self,
        encoder: FeatureExtractor | RunNetwork | None,
        layers: Sequence[str],
        weight: float = 0.5,
        hidden: int = 2048,
        ramp: int = 0,
        stop: int | None = None,
        checksum: str | None = None,
    ) -> None:
        super().__init__(weight, ramp, stop)
        if encoder is None:
            raise ValueError(
                "encoder=null must be an extractor of features, and this data set has none; use features=own, or "
                "another auxiliary loss"
            )
        if isinstance(layers, str) or len(layers) != 1:
            raise ValueError(f"layers={layers!r} must be a list of one name of a layer; use e.g. layers=[middle.0]")
        self.encoder, self.layers = encoder, tuple(layers)
        self.hidden = check_integer("hidden", hidden, 1, "use 2048 as published")
        self.checksum = checksum
        self.projector: nn.Sequential | None = None
        self._ready = False

    def check(self, shape: tuple[int, int, int]) -> None:
        try:
            self.encoder.check()
        except (ValueError, FileNotFoundError) as error:
            raise type(error)(f"encoder.{error}") from error
        if not self.encoder.takes(shape):
            ours, theirs = ("x".join(map(str, sides)) for sides in (shape, self.encoder.input_shape))
            raise ValueError(
                f"encoder={self.encoder.name} must take the images of this run, {ours}, and takes {theirs}; use "
                "features=own, an encoder of such images, or for latents another auxiliary loss"
            )
        if self.checksum is None or isinstance(self.encoder, RunNetwork):
            return
        if self.encoder.weights_sha256 != self.checksum:
            raise ValueError(
                f"checksum={self.checksum} must be that of the encoder's weights, {self.encoder.weights_file()}, which "
                "have changed; put the file of then back, or use checksum=null"
            )

    def build(self, features: Mapping[str, Tensor], x0: Tensor) -> None:
        z, y = places(features[self.layers[0]]), self.encoder.by_place(x0)
        self.projector = nn.Sequential(
            nn.Linear(z.shape[1], self.hidden),
            nn.SiLU(),
            nn.Linear(self.hidden, self.hidden),
            nn.SiLU(),
            nn.Linear(self.hidden, y.shape[1]),
        )

    def rows(self, step: Step) -> Tensor:
        if self.projector is None:
            raise ValueError("encoder: the projector must be built first; call module.auxiliary.build")
        if not self._ready:
            self.encoder.prepare(step.x0.device)  # on all processes at once
            self._ready = True
        z, y = places(step.features[self.layers[0]]), self.encoder.by_place(step.x0)
        if y.shape[2:] == (1, 1):
            z = z.mean((2, 3), keepdim=True)
        elif z.shape[2:] == (1, 1):
            y = y.mean((2, 3), keepdim=True)
        elif y.shape[2:] != z.shape[2:]:
            y = interpolate(y, z.shape[2:], mode="bilinear", antialias=True)
        projected = self.projector(z.flatten(2).transpose(1, 2))
        return -cosine_similarity(projected.float(), y.flatten(2).transpose(1, 2), dim=2).mean(1)
