"""What distinguishes each job of a sweep from the others, in the words of its command."""

from __future__ import annotations

from collections.abc import Sequence


def differing(jobs: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Of each job the overrides that not all jobs have: "sampler=speed seed=1".

    Args:
        jobs: overrides of each job.
        names: in place of the overrides where these do not tell a job from another one.
    """
    shared = set.intersection(*(set(overrides) for overrides in jobs)) if jobs else set()
    words = [" ".join(word for word in overrides if word not in shared) for overrides in jobs]
    return [text if text and words.count(text) == 1 else name for text, name in zip(words, names, strict=True)]
