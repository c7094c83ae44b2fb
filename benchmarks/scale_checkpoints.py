"""Checkpoints of 50 MB to 1 GB: peak memory and CPU time of loading.

A file has weights, one average and Adam's two moments, in 64 tensors each. `read` is what a resume does and `mapped`
what a reader of the weights does (`checkpoint_io.load_finite`), each in a process of its own, over `whole`: the file
read at once, hashed, and given to PyTorch from memory, as before. Peaks are the kernel's, above the memory of the
process before, over the size of the file; exponents are between the smallest and the largest file. The process has
loaded 1 MB before, so the 7 MB of code that its first `torch.load` brings in do not count.

Measured on 2026-11-28, 2 shared cores of an AMD EPYC without AVX-512, one thread, 50, 200 and 1000 MB: peak over size
2.94, 2.99 and 3.00 whole, 0.99, 1.00 and 1.01 read, 0.62, 0.51 and 0.51 mapped; time over whole 0.71, 0.68 and 0.46
read, 0.58, 0.53 and 0.34 mapped; exponents of the time 0.99, 0.84 and 0.81.
"""

from __future__ import annotations

import hashlib
import io
import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.paired import Ratio, ratio
from benchmarks.table import Line, at_most
from diffusion_lab.training.checkpoint_io import load_finite, save

MEGABYTES, TENSORS, ROUNDS = (50, 200, 1000), 64, 3


def lines() -> Iterator[Line]:
    seconds: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in MEGABYTES:
            path = Path(folder) / f"{megabytes}.ckpt"
            _forked(_save, path, megabytes)  # in a fork, whose freed memory the measured ones do not have
            _forked(_save, path.with_name("first.ckpt"), 1)
            turns = [{name: _forked(_measure, path, name) for name in WAYS} for _ in range(ROUNDS)]
            for name in WAYS:
                seconds[name].append([turn[name][1] for turn in turns])
                goal = {"read": at_most(1.1), "mapped": at_most(0.7)}.get(name)
                yield Line(f"{megabytes} MB, {name}: peak over size", Ratio.of([turn[name][0] for turn in turns]), goal)
            for name in ("read", "mapped"):
                share = ratio(seconds[name][-1], seconds["whole"][-1])
                yield Line(
                    f"{megabytes} MB, {name}: time over whole", share, at_most(0.6) if name == "mapped" else None
                )
    for name in WAYS:
        growth = [b / a for a, b in zip(seconds[name][0], seconds[name][-1], strict=True)]
        exponents = [math.log(value) / math.log(MEGABYTES[-1] / MEGABYTES[0]) for value in growth]
        yield Line(f"{name}: exponent of the time", Ratio.of(exponents), at_most(1.1))


def _content(megabytes: int) -> dict[str, Any]:
    def tensors() -> dict[str, torch.Tensor]:
        return {f"w{i}": torch.rand(megabytes * 10**6 // (16 * TENSORS)) for i in range(TENSORS)}

    adam = {"state": {"exp_avg": tensors(), "exp_avg_sq": tensors()}, "param_groups": []}
    return {"state_dict": tensors(), "callbacks": {"EMA": {"0.9999": tensors()}}, "optimizer_states": [adam]}


def _whole(path: Path) -> Any:
    data = path.read_bytes()
    body = memoryview(data)[:-40]
    assert hashlib.sha256(body).digest() == data[-32:]
    return torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)


WAYS: dict[str, Callable[[Path], Any]] = {
    "whole": _whole,
    "read": load_finite,
    "mapped": lambda path: load_finite(path, mapped=True),
}


def _forked(work: Callable[[Path, Any], Any], path: Path, argument: Any) -> Any:
    """What `work` returns in a fork of this process."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(work(path, argument)))
    process.start()
    found = queue.get()
    process.join()
    return found


def _save(path: Path, megabytes: int) -> None:
    save(_content(megabytes), path)


def _measure(path: Path, name: str) -> tuple[float, float]:
    """Peak over size and CPU seconds of one way."""
    WAYS[name](path.with_name("first.ckpt"))
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, start = _bytes("VmRSS"), time.process_time()
    content = WAYS[name](path)
    seconds = time.process_time() - start
    assert content
    return (_bytes("VmHWM") - before) / path.stat().st_size, seconds


def _bytes(key: str) -> int:
    lines_of = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines_of if line.startswith(key)).split()[1])
