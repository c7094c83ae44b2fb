"""What this folder proves of a GPU on paper, on one that is there: `python -m tests.cuda.real`.

    trainings  every option that test_training.py trains with: finite, and no wait but those that waits.py allows;
               PyTorch itself says where the host waits (`torch.cuda.set_sync_debug_mode`)
    networks   every network at its full size: a finite gradient for each weight, float32 beside the CPU for those of up
               to 60 million weights, bfloat16 and float16 beside float32
    solvers    every solver: the samples of the CPU
    analyses   every analysis: the numbers of the CPU

pytest does not collect it: it needs a GPU and takes minutes. What it found is in docs/hardware.md. `--device cpu` runs
the same code without a GPU. The exit code is 1 if something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from omegaconf import DictConfig, open_dict
from torch import Tensor, nn

from benchmarks.table import versions
from diffusion_lab.cli.build_model import build_module
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.metrics.sampling import generate
from diffusion_lab.networks import AdversarialNetworks
from tests.cuda.paper import Wait, asked_by
from tests.cuda.test_analyses import performed
from tests.cuda.test_networks import answer, smallest, target
from tests.cuda.test_sampling import LABELLED, VARIANTS
from tests.cuda.test_training import CHOICES, OF_A_GAN, TRAINED
from tests.cuda.training import Watched, configured, gan, options, train
from tests.cuda.waits import STEP, TABLE
from tests.networks.configured import parameters

# Lightning takes weights and optimizer back to the host when a run has ended, which the paper GPU leaves out.
AT_THE_END = {
    "lightning/fabric/utilities/device_dtype_mixin.py:_DeviceDtypeModuleMixin.cpu",
    "lightning/fabric/utilities/apply_func.py:move_data_to_device",
}
WAITED = "waits"  # PyTorch says where the host waits, not for what
BESIDE_CPU = 60_000_000  # weights; of larger networks a CPU's forward pass takes too long here
SAME, HALF = 1e-3, {torch.bfloat16: 0.05, torch.float16: 0.01}  # |a - b| / |b| of an answer
OF_AN_ERROR = 1e-2  # the same of a standard error, of numbers that are nearly equal
NOTHING = 1e-4  # cosines of orthogonal directions and the like are rounding alone
SAMPLES = 1e-3  # the largest difference of a sample in [-1, 1]


class RealGPU:
    """The waits of a device, as PyTorch's warnings tell them; none on a CPU."""

    def __init__(self) -> None:
        self.waits: Counter[Wait] = Counter()

    def showwarning(self, message: Warning | str, *_: Any, **__: Any) -> None:
        """In place of `warnings.showwarning`; it is called where the warning is raised."""
        if "called a synchronizing CUDA operation" in str(message):
            self.waits[Wait(asked_by(), WAITED)] += 1


@contextlib.contextmanager
def real_machine(**_: Any) -> Iterator[RealGPU]:
    """Inside, every wait for the device is noted."""
    gpu = RealGPU()
    there = torch.cuda.is_available()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = gpu.showwarning
        if there:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield gpu
        finally:
            if there:
                torch.cuda.set_sync_debug_mode("default")


class Place(NamedTuple):
    """Where all of it runs."""

    device: str  # "cuda" or "cpu"
    folder: Path

    def real(self, cfg: DictConfig) -> DictConfig:
        """A configuration of the paper GPU, for this device."""
        with open_dict(cfg):
            cfg.trainer.strategy = "auto"
            cfg.trainer.accelerator = "gpu" if self.device == "cuda" else "cpu"
            cfg.trainer.devices = 1
        return cfg


Work = Callable[[], str | None]  # returns what is wrong


def trainings(place: Place) -> Iterator[tuple[str, Work]]:
    """Every option, three steps each."""
    folder = place.folder / "run"
    plain = [choice for choice in CHOICES if choice not in OF_A_GAN]
    methods = [f"method={name}" for name in TRAINED["method"] if f"method={name}" not in OF_A_GAN]
    for choice in (*plain, *methods):
        yield choice, lambda choice=choice: _trained(place, configured(folder, choice))
    for words in (("task=gan",), ("task=gan", "method=biggan")):
        yield " ".join(words), lambda words=words: _trained(place, gan(folder, *words))
    for precision in ("bf16-mixed", "16-mixed"):
        word = f"precision={precision}"
        yield word, lambda word=word: _trained(place, configured(folder, None, word, "optimizer.fused=false"))

    for name in options()["coupling"]:  # an assignment is solved on the host
        word = f"coupling={name}"
        yield word, lambda word=word: _trained(place, configured(folder, word), may_wait=True)


def _trained(place: Place, cfg: DictConfig, may_wait: bool = False) -> str | None:
    watched = train(place.real(cfg), real_machine)
    bad = [key for key, p in watched.run.module.named_parameters() if not bool(p.isfinite().all())]
    faults = [f"{len(bad)} weights are not finite, {bad[0]} among them"] if bad else []
    return "; ".join([*faults, *([] if may_wait else _unlisted(watched))]) or None


def _unlisted(watched: Watched) -> Iterator[str]:
    """Waits that waits.py does not list at all, or not for an ordinary step."""
    listed = {wait.where for wait in TABLE} | AT_THE_END
    in_a_step = {wait.where for wait, allowed in TABLE.items() if allowed.when == STEP}
    for wait, count in watched.steps.items():
        if wait.where not in in_a_step:
            yield f"{wait.where} waits {count} times in an ordinary step"
    for wait in watched.all.keys() - watched.steps.keys():
        if wait.where not in listed:
            yield f"{wait.where} waits {watched.all[wait]} times and is not listed"


def networks(place: Place) -> Iterator[tuple[str, Work]]:
    """Every network, two images of the smallest size that it takes."""
    for name in options()["network"]:
        yield name, lambda name=name: _computes(place, name)


def _computes(place: Place, name: str) -> str | None:
    small = parameters(smallest(name)[0]) <= BESIDE_CPU
    network, size = smallest(name, "cpu" if small else place.device)
    with torch.no_grad():
        for p in network.parameters():  # a last layer of zeros would answer zero everywhere
            p.add_(torch.randn_like(p), alpha=0.01)
    network.eval()
    faults = []
    with torch.no_grad():
        expected = _answer(network, size, "cpu") if small else None
    network = network.to(place.device)
    found = _answer(network, size, place.device)
    found.square().mean().backward()
    bad = [key for key, p in network.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
    if bad:
        faults.append(f"{len(bad)} weights without a finite gradient, {bad[0]} among them")
    if expected is not None and (gap := _gap(found, expected)) > SAME:
        faults.append(f"float32 differs from the CPU by {gap:.1e}, at most {SAME:.0e}")
    if not issubclass(target(name), AdversarialNetworks):
        for dtype, most in HALF.items():
            with torch.no_grad(), torch.autocast(place.device, dtype):
                gap = _gap(_answer(network, size, place.device), found)
            if not gap <= most:
                faults.append(f"{str(dtype).removeprefix('torch.')} differs from float32 by {gap:.1e}, at most {most}")
    return "; ".join(faults) or None


def _answer(network: nn.Module, size: int, device: str) -> Tensor:
    """Of the same two images everywhere."""
    torch.manual_seed(0)  # of the host
    return answer(network, size, torch.device(device), lambda *shape, device: torch.randn(*shape).to(device))


def _gap(found: Tensor, expected: Tensor) -> float:
    """|a - b| / |b| as norms."""
    a, b = found.detach().double().cpu(), expected.detach().double().cpu()
    return float((a - b).norm() / b.norm())


def solvers(place: Place) -> Iterator[tuple[str, Work]]:
    """Every solver, three samples in two batches."""
    for name in (*options()["solver"], *(f"{name} with more" for name in VARIANTS)):
        yield name, lambda name=name: _samples(place, name)


def _samples(place: Place, name: str) -> str | None:
    name, _, more = name.partition(" ")
    choices = (None, f"solver={name}", *VARIANTS[name]) if more else (f"solver={name}",)

    def sampled(device: str) -> Tensor:
        torch.manual_seed(0)
        cfg = place.real(configured(place.folder, *choices, *LABELLED, "schedule.num_timesteps=60"))
        parts = RunParts(cfg)
        data = parts["dataset"]
        denoiser = build_module(parts).denoiser.eval().to(device)
        solver, of_samples = part(cfg, "solver"), data.conditions.of_samples
        return generate(
            denoiser, solver, range(3), 0, data.shape, 2, device, conditions=of_samples, to_pixels=lambda x: x
        )

    gap = float((sampled(place.device) - sampled("cpu")).abs().max())
    return None if gap <= SAMPLES else f"differs from the CPU by {gap:.1e}, at most {SAMPLES:.0e}"


def analyses(place: Place) -> Iterator[tuple[str, Work]]:
    """Every analysis of two tiny models."""
    for name in options()["analysis"]:
        yield name, lambda name=name: _analyzed(place, name)


def _analyzed(place: Place, name: str) -> str | None:
    here, there = (
        np.load(performed(name, device, place.folder / str(device)) / "data.npz") for device in ("cpu", place.device)
    )
    faults = []
    for key in here:
        a, b = here[key], there[key]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            faults.append(f"{key} {b.shape} {b.dtype}, on the CPU {a.shape} {a.dtype}")
        elif a.dtype.kind == "f" and a.size:
            there_too, finite = np.array_equal(np.isfinite(a), np.isfinite(b)), np.isfinite(a)
            gap = np.abs(a - b)[finite].max(initial=0.0) / max(np.abs(a)[finite].max(initial=0.0), NOTHING)
            most = OF_AN_ERROR if key.endswith("error") else SAME
            if not there_too:
                faults.append(f"{key} is finite elsewhere")
            elif gap > most:
                faults.append(f"{key} differs from the CPU by {gap:.1e} of its largest number, at most {most:.0e}")
    return "; ".join(faults) or None


PARTS = {part.__name__: part for part in (trainings, networks, solvers, analyses)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cuda.real", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    typed = parser.parse_args()
    if typed.device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is visible to PyTorch; --device cpu runs the same code without one")
    torch.backends.cudnn.allow_tf32 = False  # convolutions as on the CPU
    name = torch.cuda.get_device_name() if typed.device == "cuda" else "CPU"
    print(f"{datetime.date.today()}, {name}. {versions()}. `python -m tests.cuda.real`.", flush=True)
    faults = 0
    for title in typed.part or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            cases = [case for case in PARTS[title](Place(typed.device, Path(folder))) if typed.case in case[0]]
            start, wrong = time.perf_counter(), 0
            for case, work in cases:
                fault = _fault(work)
                wrong += fault is not None
                if fault is not None:
                    print(f"  {title} {case}: {fault}", flush=True)
        print(f"{title}: {len(cases)} cases, {wrong} wrong, {time.perf_counter() - start:.0f} s", flush=True)
        faults += wrong
    return int(faults > 0)


def _fault(work: Work) -> str | None:
    """What is wrong; an error is that too."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return work()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]} ({last.filename}:{last.lineno})"


if __name__ == "__main__":
    sys.exit(main())
