"""How a value was measured, without what it does not depend on."""

from __future__ import annotations

from typing import Any

from diffusion_lab.reports.differences import without_keys
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.tables import ruler

INDIFFERENT = frozenset({"validation.every", "validation.batch_size"})  # when, and how many images at a time


def measurement(group: Group, metric: str) -> list[dict[str, Any]]:
    """The settings that two groups must share so that their values of a metric can be compared, one per way in which
    the group was measured. Snapshots at other steps do not matter."""
    return [without_keys(one, INDIFFERENT) for one in ruler(group, metric)]
