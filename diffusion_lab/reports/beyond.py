"""What a row of the report says about its differences from the baseline beyond its name."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.reports.differences import Difference, differences, within
from diffusion_lab.reports.groups import Group


def notes_of(groups: Sequence[Group], base: Group) -> list[str]:
    """One sentence for all rows that differ from the baseline in the same, beyond their names; none if none does."""
    said: dict[str, list[str]] = {}
    for group in groups:
        words = [difference for difference in beyond(group, base) if difference.key not in group.said]
        if words:
            said.setdefault(", ".join(map(str, words)), []).append(group.label)
    if not said:
        return []
    return [
        f"Beyond its name, {', '.join(labels)} differs from the baseline {base.label} in: {text}."
        if len(labels) == 1
        else f"Beyond their names, {', '.join(labels)} differ from the baseline {base.label} in: {text}."
        for text, labels in said.items()
    ]


def beyond(group: Group, base: Group) -> list[Difference]:
    """In what a group differs from the baseline beyond what the names say; nothing for the baseline itself."""
    if group is base or not group.config or not base.config:
        return []
    own, other = group.reading, base.reading
    found = differences(own, other)
    if own.expected is None or other.expected is None:  # a part that the name names needs no words
        names = {group.name, base.name}
        found = [one for one in found if not (one.own == group.name and one.base in names)]
    if group.by:
        found = [one for one in found if not within(one.key, group.by)]
        methods = [str(one.runs[0].info.get("method")) for one in (group, base)]
        if methods[0] != methods[1] and not any(methods[0] == value for value in group.said.values()):
            found.insert(0, Difference("method", *methods))
    return found
