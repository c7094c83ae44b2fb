"""Inception-v3 features, as used by published FIDs.

torch-fidelity's `inception-v3-compat`: the network of Szegedy et al. (2015) with the weights that TensorFlow released
on 2015-12-05, its resizing and its pooling, so values agree with those of Heusel et al. (2017). Features are the
2048 pooled activations; logits are the 1008 class scores without their bias, as in Salimans et al. (2016).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from diffusion_lab.arguments import ReadPath
from diffusion_lab.files import file_sha256
from diffusion_lab.metrics.features import MIB, FeatureExtractor, check_call

FILE = "weights-inception-2015-12-05-6726825d.pth"
SHA256_PREFIX = "6726825d"


class InceptionFeatures(FeatureExtractor):
    """Inception-v3 of torch-fidelity, from a file on this machine; nothing is downloaded.

    Args:
        weights: path of weights-inception-2015-12-05-6726825d.pth; None: the file of that name in torch hub's folder of
            checkpoints.
        batch_size: images of one network call; null: 16 on a CPU, up to 256 on a GPU by its free memory. It changes
            features by rounding alone.

    `check()` raises FileNotFoundError if there is no such file and ValueError if its sha256 is wrong.
    """

    name = "inception"
    feature_dim = 2048
    channels = 3
    preprocessing = "TensorFlow 1 bilinear to 299x299, (x - 128)/128"
    on_cpu = 16
    image_bytes = 16 * MIB  # its tensors take 8.3 MiB at most; the rest is for the convolutions' own

    def __init__(self, weights: ReadPath | None = None, batch_size: int | None = None) -> None:
        super().__init__()
        self.path, self.batch_size = weights, check_call(batch_size)

    def weights_file(self) -> Path:
        path = Path(self.path).expanduser() if self.path else Path(torch.hub.get_dir()) / "checkpoints" / FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"weights={self.path or 'null'}: there is no file {path}; put torch-fidelity's {FILE} "
                f"(its sha256 begins with {SHA256_PREFIX}) there, or set this key to its path"
            )
        digest = self._digest(path)
        if not digest.startswith(SHA256_PREFIX):
            raise ValueError(
                f"weights={self.path or 'null'}: the sha256 of {path} begins with {digest[:8]} and must begin with "
                f"{SHA256_PREFIX}; delete it and put torch-fidelity's {FILE} there"
            )
        return path

    def _digest(self, path: Path) -> str:
        # Hashing 95 MB takes 0.3 s and check() is called often; an unchanged file is hashed once.
        stamp = (path, path.stat().st_mtime_ns, path.stat().st_size)
        if getattr(self, "_hashed", (None, ""))[0] != stamp:
            self._hashed = (stamp, file_sha256(path))
        return self._hashed[1]

    @property
    def suffix(self) -> str:
        """Empty: Inception has the plain names, `fid50k` and `kid50k`."""
        return ""

    def load(self) -> nn.Module:
        from torch_fidelity import FeatureExtractorInceptionV3

        path = self.weights_file()
        # torch-fidelity unpickles without restrictions. A file that the restricted unpickler accepts holds only
        # tensors, so reading it first makes the second reading safe.
        torch.load(path, map_location="cpu", weights_only=True)
        network = FeatureExtractorInceptionV3(
            "inception-v3-compat", ["2048", "logits_unbiased"], feature_extractor_weights_path=str(path)
        )
        # On a CPU in float32, channels last takes 0.62 of the time, and 0.53 without the batch norms.
        return fold_batch_norms(network).to(memory_format=torch.channels_last)


def fold_batch_norms(network: nn.Module) -> nn.Module:
    """Fold every block's batch norm into the convolution before it, in place: for a frozen network the same function up
    to rounding (3e-7 of the largest feature)."""
    for block in network.modules():
        conv, norm = getattr(block, "conv", None), getattr(block, "bn", None)
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            block.conv, block.bn = fuse_conv_bn_eval(conv, norm), nn.Identity()
    return network
