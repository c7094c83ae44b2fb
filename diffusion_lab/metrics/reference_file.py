"""Reference statistics from a file, such as EDM's fid-refs (Karras et al. 2022): an npz with `mu` (D,), `sigma` (D,D).

Nothing is unpickled, so a .pkl file is refused.
"""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from diffusion_lab.metrics.features import FeatureExtractor, file_sha256
from diffusion_lab.metrics.moments import Statistics
from diffusion_lab.metrics.reference import Reference

TOLERANCE = 1e-6  # of the largest variance: rounding of a covariance that was summed in float32


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
        with np.load(file, allow_pickle=False) as arrays:
            mu, sigma = (np.asarray(arrays[key], dtype=np.float64) for key in ("mu", "sigma"))
    except (OSError, EOFError, KeyError, ValueError, TypeError, AttributeError, BadZipFile, MemoryError):
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
