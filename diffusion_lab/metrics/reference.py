"""Statistics of the real images, computed once and cached on disk, or read from a file such as EDM's fid-refs.

The file's name contains a hash of everything the statistics depend on: data set, hash of its pixels, split, number of
images, shape, extractor, hash of its weights, its preprocessing, kind of device, and version of the code. The same
record is inside the file and is compared on reading, so a renamed or copied file is refused.

The npz has EDM's keys `mu` (D,) and `sigma` (D,D) (Karras et al. 2022, `fid.py`), so EDM's script can read it and
its files can be read here. Nothing is unpickled, so a .pkl file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.cache_folder import cache_folder
from diffusion_lab.data import ImageSet
from diffusion_lab.data.pixels import as_bytes
from diffusion_lab.distributed import is_distributed, raised_on_all, rank, sum_, world_size
from diffusion_lab.failure import Interruption
from diffusion_lab.files import file_sha256, replacing
from diffusion_lab.metrics.features import FeatureExtractor, features_of, images_per_call
from diffusion_lab.metrics.generated import Moments, Statistics
from diffusion_lab.npz import unpack

FORMAT = 2  # version of the computation, not of the file; raise it when the numbers change
READ = 64  # images that are read at a time, at least
TOLERANCE = 1e-6  # of the largest variance: rounding of a covariance that was summed in float32


class Reference(NamedTuple):
    """Statistics with which generated images are compared.

    metadata: plain values on which the numbers depend.
    statistics: mean and covariance over all images of the split.
    features: (m,D) float32 of every (N/m)-th image, for the metrics that compare points.
    """

    metadata: dict[str, Any]
    statistics: Statistics
    features: Tensor


def describe(
    images: ImageSet,
    extractor: FeatureExtractor,
    dataset: str,
    split: str,
    subset: int,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """The record that identifies reference statistics; arguments as in `reference_statistics`."""
    return {
        "format": FORMAT,
        "dataset": dataset,
        "split": split,
        "fingerprint": images.fingerprint(),
        "images": len(images),
        "shape": list(images.take([0]).shape[1:]),
        "extractor": extractor.name,
        "weights_sha256": extractor.weights_sha256,
        "preprocessing": extractor.preprocessing,
        "device": torch.device(device).type,  # a GPU's convolutions may round their factors to TF32
        "subset": min(subset, len(images)),
    }


def reference_statistics(
    images: ImageSet,
    extractor: FeatureExtractor,
    dataset: str,
    split: str,
    subset: int = 0,
    folder: Path | None = None,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
    few: bool = False,
) -> Reference:
    """Statistics of a split, from the cache if available. Only `subset` features are kept in memory.

    With several ranks all must call it: each computes the features of a share of the images, whole batches of those
    that one process would read, so the features are the same, and the float64 sums are added up. Mean and covariance
    differ from those of one process by the order of that addition: less than 1e-14 of the largest.

    Args:
        images: the whole split, N images in uint8, or floats in [-1, 1].
        extractor: the feature extractor.
        dataset: its name.
        split: "train" or "test".
        subset: m, number of features to keep for precision, recall and the kernel distance.
        folder: folder of the file, or None for `cache_folder()`/reference.
        batch_size: images that are read at a time; None: `READ`, or those of one network call if they are more.
        device, progress: as in `extract`.
        few: whether there may be fewer than 2 D images, as for metrics that compare points.

    Raises:
        ValueError: the cached file has another record, or there are fewer than 2 D images.
    """
    metadata = describe(images, extractor, dataset, split, subset, device)
    folder = cache_folder() / "reference" if folder is None else folder
    path = folder / f"{dataset}-{split}-{extractor.name}-{digest_of(metadata)}.npz"
    cached = load(path, metadata)
    if _on_all_ranks(cached is not None, device) and cached:
        return cached
    count = metadata["subset"]
    kept = torch.arange(count) * len(images) // max(count, 1)
    moments, points = Moments(extractor.feature_dim, device), torch.zeros(count, extractor.feature_dim)
    with raised_on_all():  # an image may be unreadable
        for rows, features in _share(images, torch.arange(len(images)), extractor, batch_size, device, progress):
            moments.update(features)
            here = (kept >= rows.start) & (kept < rows.stop)
            points[here] = features.cpu()[kept[here] - rows.start]
    sum_(moments.sums)
    mean, covariance = moments.statistics(few)
    result = Reference(metadata, Statistics(mean, covariance), _added(points, device))
    save(path, metadata, {"mu": mean, "sigma": covariance, "features": result.features.numpy()})
    return result


def _share(
    images: ImageSet,
    ids: Tensor,
    extractor: FeatureExtractor,
    batch_size: int | None,
    device: torch.device | str,
    progress: bool,
) -> Iterator[tuple[range, Tensor]]:
    """This rank's features (b,D) of the images `ids` (n,), with the places of their numbers in `ids`: the r-th part of
    all batches, as many on each rank but the last ones."""
    size = batch_size or max(READ, images_per_call(extractor, device))
    each = -(-len(ids) // (size * world_size())) * size
    done = min(rank() * each, len(ids))
    mine = ids[done : done + each]
    batches = (as_bytes(images.take(part)) for part in mine.split(size)) if len(mine) else ()
    for features, _ in features_of(extractor, batches, len(mine), device, progress):
        yield range(done, done + len(features)), features
        done += len(features)


def _on_all_ranks(found: bool, device: torch.device | str) -> bool:
    """Whether all ranks have found it, in folders of caches that may be their own."""
    return int(sum_(torch.tensor(int(found), device=device))) == world_size() if is_distributed() else found


def _added(rows: Tensor, device: torch.device | str) -> Tensor:
    """Rows on the CPU, each of one rank and zeros on the others, on all of them; NCCL cannot add CPU tensors."""
    return sum_(rows.to(device)).cpu() if is_distributed() else rows


def features_of_some(
    images: ImageSet,
    ids: Tensor,
    extractor: FeatureExtractor,
    dataset: str,
    split: str,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Tensor:
    """(n,D) float32 features of the images with the numbers `ids` (n,), from the cache if available; otherwise as in
    `reference_statistics`."""
    chosen = sha256(ids.numpy().tobytes()).hexdigest()[:12]
    metadata = describe(images, extractor, dataset, split, len(ids), device) | {"ids": chosen}
    path = cache_folder() / "reference" / f"{dataset}-{split}-{extractor.name}-{digest_of(metadata)}.npz"
    cached = _arrays(path, metadata, "features")
    if _on_all_ranks(cached is not None, device) and cached:
        return torch.from_numpy(cached[0])
    features = torch.zeros(len(ids), extractor.feature_dim)
    with raised_on_all():
        for rows, found in _share(images, ids, extractor, None, device, progress):
            features[rows.start : rows.stop] = found.cpu()
    features = _added(features, device)
    save(path, metadata, {"features": features.numpy()})
    return features


def save(path: Path, metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write the npz atomically. OSErrors are ignored: the arrays are then computed again next time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, allow_pickle=False, metadata=np.array(json.dumps(metadata)), **arrays)


def load(path: Path, expected: dict[str, Any]) -> Reference | None:
    """Read an npz whose record must equal `expected`; None if it does not exist or is damaged (checksum errors).

    Raises:
        ValueError: the record differs.
    """
    if (found := _arrays(path, expected, "mu", "sigma", "features")) is None:
        return None
    mean, covariance, features = found
    return Reference(expected, Statistics(mean, covariance), torch.from_numpy(features))


def _arrays(path: Path, expected: dict[str, Any], *keys: str) -> list[np.ndarray] | None:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            metadata, arrays = json.loads(str(file["metadata"])), [file[key] for key in keys]
    except Interruption:
        raise
    except Exception:  # zipfile and NumPy raise more than ten classes of errors for damaged files
        return None
    different = [key for key in sorted({*metadata, *expected}) if metadata.get(key) != expected.get(key)]
    if different:
        listed = ", ".join(f"{key} is {metadata.get(key)} and must be {expected.get(key)}" for key in different)
        raise ValueError(f"{path} holds other reference statistics: {listed}; delete it")
    return arrays


def digest_of(metadata: dict[str, Any]) -> str:
    """12 hex digits of the SHA-256 of a record, for the name of its file."""
    return sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()[:12]


def reference_from_file(path: str | Path, extractor: FeatureExtractor) -> Reference:
    """The statistics of a file, without features.

    Args:
        path: the npz.
        extractor: with which they were computed; the file does not say it, only D is checked.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has no `mu` and `sigma` of these shapes, or they are no mean and covariance.
    """
    file, dim = Path(path).expanduser(), extractor.feature_dim
    if not file.is_file():
        raise FileNotFoundError(
            f"reference={path}: there is no file {file}; use null for the data set's own statistics"
        )
    try:
        with file.open("rb") as opened:
            arrays = unpack(opened, ("mu", "sigma"))
        mu, sigma = (np.asarray(arrays[key], dtype=np.float64) for key in ("mu", "sigma"))
    except (OSError, KeyError, ValueError, TypeError):
        raise ValueError(
            f"reference={path} must be an npz file with the arrays mu and sigma, such as EDM's fid-refs; a .pkl file "
            "is not read, because it could run code"
        ) from None
    if mu.shape != (dim,) or sigma.shape != (dim, dim):
        raise ValueError(
            f"reference={path} must have mu of shape ({dim},) and sigma of shape ({dim}, {dim}) for the extractor "
            f"{extractor.name}, and they are {mu.shape} and {sigma.shape}; use a file of this extractor"
        )
    if fault := _fault(mu, sigma):
        raise ValueError(f"reference={path} must hold a mean and a covariance, and {fault}; make the file again")
    metadata = {
        "dataset": file.name,
        "split": "file",
        "fingerprint": file_sha256(file),
        "images": None,  # the file does not say of how many, nor of which shape
        "shape": None,
        "extractor": extractor.name,
        "weights_sha256": extractor.weights_sha256,
        "subset": 0,
    }
    return Reference(metadata, Statistics(mu, sigma), torch.empty(0, dim))


def _fault(mu: np.ndarray, sigma: np.ndarray) -> str:
    """Why they are no mean and covariance; "" if they are."""
    if not (np.isfinite(mu).all() and np.isfinite(sigma).all()):
        return "a number is not finite"
    largest = max(float(np.abs(sigma).max()), 1e-300)
    if np.abs(sigma - sigma.T).max() > TOLERANCE * largest:
        return "sigma is not symmetric"
    lowest = float(np.linalg.eigvalsh(sigma)[0])
    return f"sigma has the negative eigenvalue {lowest:.3g}" if lowest < -TOLERANCE * len(mu) * largest else ""
