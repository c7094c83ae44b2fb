"""Runs an analysis: computes it, draws its figure and writes its folder (`diffusion_lab.runs.analyses`).

The same analysis of the same models writes the same bytes. A complete analysis is not computed again; only its figure
and sentence are updated.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab import plotting
from diffusion_lab.analyses.base import Analysis, Arrays, Result, Work, is_arrays, pack
from diffusion_lab.failure import WrongResult
from diffusion_lab.files import read_object, write_json, write_whole
from diffusion_lab.files_inside import read_inside
from diffusion_lab.npz import unpack
from diffusion_lab.runs.analyses import DATA, FACTS, FIGURE, PICTURE, PIECES
from diffusion_lab.streams import Streams

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    import torch

    from diffusion_lab.training import TrainedDiffusion


def perform(
    analysis: Analysis,
    trained: Sequence[TrainedDiffusion],
    folder: Path,
    settings: Mapping[str, Any],
    seed: int = 0,
    device: torch.device | str = "cpu",
    show: bool = False,
) -> str:
    """Compute what is missing, write the folder, and return the sentence.

    Args:
        analysis: the analysis; its `check` has passed.
        trained: the models, on `device`.
        folder: folder of the results, with the name of the analysis.
        settings: plain values on which the result depends, besides the models and the seed.
        seed: seed of the analysis's random numbers.
        device: device of the computation.
        show: whether to show the progress.
    """
    result, protocol = computed(analysis, trained, folder, settings, seed, device, show)
    sentence = analysis.sentence(result)
    if not isinstance(sentence, str):
        raise WrongResult.of(analysis, "sentence", "one sentence, a str", sentence)
    if not _any_finite(result.data):
        sentence = f"None of the measured numbers is finite, so there is nothing to conclude. {sentence}"
    with plotting.style():
        figure = analysis.figure(result)
        if not hasattr(figure, "savefig"):
            raise WrongResult.of(analysis, "figure", "a Matplotlib figure, as of plotting.panels", figure)
        vector, raster = plotting.svg(figure), plotting.png(figure)
    data = pack(result.data)
    content = {"analysis": folder.name, "sentence": sentence, "facts": result.facts, "protocol": protocol}
    (folder / FACTS).unlink(missing_ok=True)
    write_whole(folder / DATA, data)
    write_whole(folder / FIGURE, vector)
    write_whole(folder / PICTURE, raster)
    write_facts(folder, content | {"data": _digest(data)})
    shutil.rmtree(_pieces(folder, protocol), ignore_errors=True)
    return sentence


def computed(
    analysis: Analysis,
    trained: Sequence[TrainedDiffusion],
    folder: Path,
    settings: Mapping[str, Any],
    seed: int = 0,
    device: torch.device | str = "cpu",
    show: bool = False,
) -> tuple[Result, dict[str, Any]]:
    """The result in the folder if it is complete, else that of the analysis, which leaves its pieces there; and on what
    it depends.

    Args: as of `perform`.
    """
    protocol = _protocol(trained, settings, seed)
    result = _complete(folder, protocol)
    if result is not None:
        return result, protocol
    if other := _other(folder, protocol):
        log.warning("the analysis in %s differs in %s and is replaced; outdir=DIR keeps both", folder, other)
    work = Work(_pieces(folder, protocol), Streams(seed), device, show)
    return _result(analysis, analysis.run(trained, work)), protocol


def _protocol(trained: Sequence[TrainedDiffusion], settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    models = [model.identity() for model in trained]
    return _plain({"settings": dict(settings), "seed": seed, "models": models})


def _other(folder: Path, protocol: dict[str, Any]) -> str:
    """The names in which the protocol of the finished analysis in the folder differs; '' without one."""
    old = (read_object(folder / FACTS) or {}).get("protocol")
    if not isinstance(old, dict):
        return ""
    names = [name for name, value in protocol.items() if name != "settings" and old.get(name) != value]
    before, now = (_flat(one.get("settings")) for one in (old, protocol))
    names += [name for name, value in now.items() if before.get(name) != value]
    return ", ".join(names)


def _flat(settings: Any) -> dict[str, Any]:
    """The settings, with those of the analysis beside them."""
    outer = settings if isinstance(settings, dict) else {}
    inner = outer.get("analysis")
    return {name: value for name, value in outer.items() if name != "analysis"} | (
        inner if isinstance(inner, dict) else {}
    )


def _pieces(folder: Path, protocol: dict[str, Any]) -> Path:
    return folder / f"{PIECES}{_digest(json.dumps(protocol).encode())[:8]}"


def _result(analysis: Analysis, computed: Any) -> Result:
    """What `Analysis.run` returned, with its facts as they are read back.

    Raises:
        WrongResult: it is no `Result` of arrays and plain values.
    """
    if not isinstance(computed, Result):
        raise WrongResult.of(analysis, "run", "Result({name: array}, {name: plain value})", computed)
    if not is_arrays(computed.data):
        raise WrongResult.of(analysis, "run", "Result(data, facts) with arrays by name as data", computed.data)
    try:
        facts = _plain(computed.facts)
    except TypeError as error:
        wanted = f"Result(data, facts) with plain values as facts ({error})"
        raise WrongResult.of(analysis, "run", wanted, computed.facts) from error
    if not isinstance(facts, dict):
        raise WrongResult.of(analysis, "run", "Result(data, facts) with plain values by name as facts", computed.facts)
    return Result(computed.data, facts)


def _any_finite(data: Arrays) -> bool:
    """Whether any floating-point number is finite; True if there are none."""
    numbers = [array for array in map(np.asarray, data.values()) if np.issubdtype(array.dtype, np.inexact)]
    return any(np.isfinite(array).any() for array in numbers) or not sum(array.size for array in numbers)


def write_facts(folder: Path, content: dict[str, Any]) -> None:
    """facts.json; JSON has no NaN, so that its places are listed under `nan`."""
    nan = _nan(content["facts"])
    write_json(folder / FACTS, content | ({"nan": nan} if nan else {}), infinity="1e999")


def _complete(folder: Path, protocol: dict[str, Any]) -> Result | None:
    """The result in the folder, if it has this protocol and is undamaged; else None."""
    content = read_object(folder / FACTS) or {}
    if content.get("protocol") != protocol or not isinstance(content.get("facts"), dict):
        return None
    try:
        data = read_inside(folder / DATA, largest=None)
        for path in content.get("nan", []):
            inner = reduce(getitem, path[:-1], content["facts"])
            inner[path[-1]] = math.nan
        return Result(unpack(data), content["facts"]) if content.get("data") == _digest(data) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _nan(facts: Any, path: tuple[str | int, ...] = ()) -> list[list[str | int]]:
    """The places of all NaN in plain containers, each the keys that lead there."""
    if isinstance(facts, float):
        return [list(path)] if math.isnan(facts) else []
    inner = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    return [place for key, value in inner for place in _nan(value, (*path, key))]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """The values as read back from JSON: tuples are lists, keys are strings."""
    return json.loads(json.dumps(values))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
