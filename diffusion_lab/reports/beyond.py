"""The differences of a row from the baseline that its name does not imply."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.reports.differences import Difference, differences, within
from diffusion_lab.reports.groups import Group


def notes_of(groups: Sequence[Group], base: Group) -> list[str]:
    """One sentence for all rows with the same differences from the baseline beyond their names; empty without any."""
    rows: dict[str, list[str]] = {}
    for group in groups:
        words = [difference for difference in beyond(group, base) if difference.key not in group.said]
        if words:
            rows.setdefault(", ".join(map(str, words)), []).append(group.label)
    if not rows:
        return []
    return [
        f"Beyond its name, {', '.join(labels)} differs from the baseline {base.label} in: {text}."
        if len(labels) == 1
        else f"Beyond their names, {', '.join(labels)} differ from the baseline {base.label} in: {text}."
        for text, labels in rows.items()
    ]


def beyond(group: Group, base: Group) -> list[Difference]:
    """The differences of a group from the baseline that the names do not imply; empty for the baseline itself."""
    if group is base or not group.config or not base.config:
        return []
    own, other = group.reading, base.reading
    different = differences(own, other)
    if own.expected is None or other.expected is None:  # leave out a part that is in the name
        names = {group.name, base.name}
        different = [one for one in different if not (one.own == group.name and one.base in names)]
    if group.by:
        different = [one for one in different if not within(one.key, group.by)]
        methods = [str(one.runs[0].info.get("method")) for one in (group, base)]
        if methods[0] != methods[1] and not any(methods[0] == value for value in group.said.values()):
            different.insert(0, Difference("method", *methods))
    return different
