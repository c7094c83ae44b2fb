"""The jobs of a sweep: the union of several products of settings, each job once.

    params: {seed: "0,1"}                                          with every product, outermost
    products:
      - {schedule: "linear,cosine", sampler: "uniform,speed"}      4 jobs for each seed
      - {schedule: cosine, sampler: uniform, weighting: min_snr}   1 more

A sweep without products is that of its `params` alone. A word on the command line with a key of `params` replaces its
values, as in Hydra's own sweeper: other seeds can be added to a study. A word with a key of a product narrows the
study: the values that it names are kept, and a product that has none of them is left out. Any other word goes to every
job.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf


def jobs_of(
    products: Sequence[Mapping[str, Any]], params: Mapping[str, Any] | None, words: Sequence[str] = ()
) -> Iterator[list[str]]:
    """The jobs as lists of overrides, those of the first values of `params` first, each once.

    Args:
        products: of each product, key -> values with commas between them.
        params: likewise; `hydra.sweeper.params`.
        words: of the command line.
    """
    wanted = {key: value for key, _, value in (word.partition("=") for word in words)}
    outer = _choices({key: wanted.get(key, value) for key, value in (params or {}).items()})
    blocks = [outer | _choices(product) for product in products or [{}]]
    blocks = [kept for block in blocks if (kept := _narrowed(block, wanted)) is not None]
    swept = {key for block in blocks for key in block}
    fixed = [word for word in words if word.partition("=")[0] not in swept]
    blocks = [{**block, **{key: [wanted[key]] for key in wanted if key in swept - block.keys()}} for block in blocks]
    found: dict[frozenset[str], list[str]] = {}
    heads = [dict.fromkeys(itertools.product(*(block[key] for key in outer))) for block in blocks]
    for head in dict.fromkeys(itertools.chain.from_iterable(heads)):
        for block, own in zip(blocks, heads, strict=True):
            if head in own:
                inner = {key: values for key, values in block.items() if key not in outer}
                for tail in itertools.product(*inner.values()):
                    pairs = zip([*outer, *inner], [*head, *tail], strict=True)
                    job = [f"{key}={value}" for key, value in pairs]
                    found.setdefault(frozenset(job), job)
    for job in found.values():
        yield [*fixed, *job]


def _choices(values: Mapping[str, Any]) -> dict[str, list[str]]:
    plain: Any = OmegaConf.to_container(values, resolve=True) if OmegaConf.is_config(values) else values
    return {str(key): [value.strip() for value in str(value).split(",")] for key, value in plain.items()}


def _narrowed(block: dict[str, list[str]], wanted: Mapping[str, str]) -> dict[str, list[str]] | None:
    """A block with those of its values that the command line names; None if it has none of them."""
    kept = {}
    for key, values in block.items():
        named = wanted.get(key)
        kept[key] = values if named is None else [value for value in values if value in named.split(",")]
        if not kept[key]:
            return None
    return kept
