"""The jobs of a sweep: the union of several products of settings, each job once.

    params: {seed: "0,1"}                                          with every product, outermost
    products:
      - {schedule: "linear,cosine", sampler: "uniform,speed"}      4 jobs for each seed
      - {schedule: cosine, sampler: uniform, weighting: min_snr}   1 more

A sweep without products is that of its `params` alone. A word on the command line with a key of `params` replaces its
values, as in Hydra's own sweeper: other seeds can be added to a study. A word with a key of a product narrows the
study: the values that it names are kept, and a product that has none of them is left out. Any other word goes to every
job, or, if it has several values, is swept within each.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader

SWEEP = re.compile(r"(choice|range|glob|interval|shuffle|sort|tag)\(")  # what Hydra sweeps by a function
QUOTES = ("'", '"')
CLOSED_BY = {"(": ")", "[": "]", "{": "}"} | {quote: quote for quote in QUOTES}


def jobs_of(
    products: Sequence[Mapping[str, Any]],
    params: Mapping[str, Any] | None,
    words: Sequence[str] = (),
    loader: ConfigLoader | None = None,
) -> Iterator[list[str]]:
    """The jobs as lists of overrides, those of the first values of `params` first, each once.

    Args:
        products: of each product, key -> values with commas between them.
        params: likewise; `hydra.sweeper.params`.
        words: of the command line.
        loader: Hydra's, which names the options of a `glob(..)`.
    """
    wanted = _choices(dict(word.split("=", 1) for word in words if "=" in word), loader)
    outer = {**_choices(params or {}), **{key: wanted[key] for key in params or {} if key in wanted}}
    blocks = [outer | _choices(product) for product in products or [{}]]
    blocks = [kept for block in blocks if (kept := _narrowed(block, wanted)) is not None]
    swept = {key for block in blocks for key in block} | {key for key, values in wanted.items() if len(values) > 1}
    fixed = [word for word in words if word.partition("=")[0] not in swept]
    blocks = [{**block, **{key: wanted[key] for key in wanted if key in swept - block.keys()}} for block in blocks]
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


def _choices(values: Mapping[str, Any], loader: ConfigLoader | None = None) -> dict[str, list[str]]:
    """Key -> its values as they are typed, or of `choice(..)`, `range(..)` and `glob(..)` as Hydra names them."""
    plain: Any = OmegaConf.to_container(values, resolve=True) if OmegaConf.is_config(values) else values
    typed = {str(key): "null" if value is None else str(value) for key, value in plain.items()}
    return {key: _listed(key, value, loader) for key, value in typed.items()}


def _listed(key: str, text: str, loader: ConfigLoader | None) -> list[str]:
    if SWEEP.match(text):
        from hydra.core.override_parser.overrides_parser import OverridesParser

        (read,) = OverridesParser.create(config_loader=loader).parse_overrides([f"{key}={text}"])
        if read.is_sweep_override():
            return [str(one) for one in read.sweep_string_iterator()]
    return split_values(text)


def split_values(text: str) -> list[str]:
    """The parts between commas, but for those within brackets or quotes or behind a backslash."""
    parts, inside = [""], list[str]()  # what closes the brackets and quotes that are open
    for i, sign in enumerate(text):
        if text[i - 1 : i] != "\\":
            if inside and sign == inside[-1]:
                inside.pop()
            elif sign in CLOSED_BY and not (inside and inside[-1] in QUOTES):
                inside.append(CLOSED_BY[sign])
            elif sign == "," and not inside:
                parts.append("")
                continue
        parts[-1] += sign
    return [part.strip() for part in parts]


def _narrowed(block: dict[str, list[str]], wanted: Mapping[str, list[str]]) -> dict[str, list[str]] | None:
    """A block with those of its values that the command line names; None if it has none of them."""
    kept = {key: [value for value in values if value in wanted.get(key, values)] for key, values in block.items()}
    return kept if all(kept.values()) else None
