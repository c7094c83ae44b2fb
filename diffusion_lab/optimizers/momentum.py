"""The momentum of an optimizer, which some call beta1 and others momentum."""

from __future__ import annotations

from typing import Any


def set_betas(group: dict[str, Any], beta1: float | None, beta2: float | None = None) -> None:
    """Set beta1 and beta2 of a group of weights; None leaves one as it is. In a group without betas, such as one of SGD
    or Muon, beta1 is its momentum and there is no beta2."""
    own = group.get("betas")
    if own is None and beta1 is not None:
        group["momentum"] = beta1
    elif own is not None and (beta1, beta2) != (None, None):
        group["betas"] = (own[0] if beta1 is None else beta1, own[1] if beta2 is None else beta2)
