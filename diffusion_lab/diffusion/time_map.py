"""Maps of times: a timestep for each position of an image, in place of one for each image.

A map t (B,1,H,W) makes each position a row of its own, with C numbers and a timestep: B H W rows of C x 1 x 1. So
what is written for rows, as predictions, weightings and variances are, holds for maps without knowing of them.
"""

from __future__ import annotations

from torch import Tensor, nn


def whole_map(t: Tensor, x: Tensor) -> Tensor:
    """t itself if it is (B,), else the whole map: broadcastable to (B,1,H,W) -> (B,1,H,W), of images x (B,C,H,W).

    Raises:
        ValueError: another shape.
    """
    if t.ndim < 2:
        return t
    shape = (len(x), 1, *x.shape[2:])
    if t.ndim != x.ndim or any(given not in (1, wanted) for given, wanted in zip(t.shape, shape, strict=True)):
        raise ValueError(
            f"t of shape {tuple(t.shape)} must be ({len(x)},), a timestep for each image, or broadcastable to {shape}, "
            "one for each position; give t[:, None] for a map without its axis of channels"
        )
    return t.expand(shape)


def takes_time_map(network: nn.Module) -> bool:
    """Whether a network takes t (B,1,H,W) beside (B,): one says so by `takes_time_map = True`."""
    return getattr(network, "takes_time_map", False)


def check_takes(network: nn.Module) -> None:
    """Raise ValueError unless the network takes maps."""
    if not takes_time_map(network):
        raise ValueError(
            f"network={type(network).__name__} must have takes_time_map = True to be given a map of times; use UNet or "
            "DiT, or one timestep for each image"
        )


def positions(t: Tensor, *images: Tensor) -> tuple[Tensor, ...]:
    """(B,1,H,W), (B,C,H,W).. -> the timesteps (N,) and the images (N,C,1,1).. of the N = B H W positions."""
    rows = (x.movedim(1, -1).flatten(0, -2) for x in (t, *images))
    first, *others = rows
    return first[:, 0], *(row.reshape(*row.shape, *[1] * (t.ndim - 2)) for row in others)


def images_of(rows: Tensor, like: Tensor) -> Tensor:
    """The images of positions: (N,C,1,1) -> (B,C,H,W), with B, H and W those of `like`."""
    return rows.flatten(1).unflatten(0, (len(like), *like.shape[2:])).movedim(-1, 1)


def means_of(values: Tensor, rows: int) -> Tensor:
    """The mean over the positions of each row, rounded if they are integers: (N,..) -> (rows,..). Values that are one
    for each row stay as they are."""
    if len(values) == rows:
        return values
    mean = values.double().unflatten(0, (rows, -1)).mean(1)
    return (mean if values.is_floating_point() else mean.round()).to(values.dtype)
