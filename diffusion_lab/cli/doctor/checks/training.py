"""The losses of thirty steps in every way in which a run can be computed, beside float32 on the CPU.

All ways see the same images, timesteps and noise; for that, noise and timesteps are drawn on the host, where a run on a
GPU draws its own. What is compared is the loss of each step, as the largest |a - b| / |b| of the thirty.

The tolerances are 5 to 10 times what was measured on an AMD EPYC (seeds 0 and 1, 2026-11-25), and in float32 on another
device 1000 times. Faults gave more than these: a learning rate 1 % too large 8e-3, a timestep off by one 5e-3, one
convolution 1 % too large 1e-3, float16 without its scaler 1e-1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.cli.doctor.check import CPU, CheckPlace, Finding, check, differs, impossible, ok, place_of
from diffusion_lab.runs.names import RECORD
from diffusion_lab.workers import cores

if TYPE_CHECKING:
    from diffusion_lab.cli.doctor.small_training import Training

MOST_THREADS = 8
SEEDS = (0, 1)  # of the sweep
REFERENCE = "losses.json"  # of float32 on the CPU
# torch.compile takes minutes for the default network on a CPU, and a third of one for this.
SMALLEST = ("network.base_channels=4", "network.channel_multipliers=[1]")
STEPS_ALONE = ("~callbacks.validation", "~callbacks.generation")

SAME_CPU = 1e-5  # another order of float32 sums gives up to 9e-7
OTHER_DEVICE = 1e-3  # other algorithms as well, some of which round ten times as much
TENSOR_FLOAT = 1e-2  # 10 bits after the point in convolutions: 2e-3, emulated
BFLOAT16 = 2e-2  # 7 bits: 4e-3
FLOAT16 = 2e-2  # 10 bits in all layers: 3e-3, emulated with scales of 2^12 and 2^16


@check(limit=300)
def float32(place: CheckPlace) -> Finding:
    """On the CPU, which is the reference, the losses fall; on another device they are the CPU's, without TF32."""
    from diffusion_lab.cli.doctor.small_training import tensor_float, train

    if place.device != CPU:
        with tensor_float(False):
            return compared(place, "float32", OTHER_DEVICE)
    training = train(place.folder / "float32", *place.settings)
    (place.work / REFERENCE).write_text(json.dumps(training.losses), encoding="utf-8")
    first, last = (sum(part) / len(part) for part in (training.losses[:5], training.losses[-5:]))
    words = f"loss {first:.3f}, then {last:.3f}; {training.rate:.0f} images per second"
    return ok(words) if last < first else differs(words)


@check(limit=300)
def tf32(place: CheckPlace) -> Finding:
    """Convolutions in TF32, PyTorch's default on NVIDIA's GPUs, and so that of a run in float32."""
    from diffusion_lab.cli.doctor.small_training import tensor_float

    if place.kind != "cuda":
        return impossible("NVIDIA's GPUs have it")
    with tensor_float(True):
        return compared(place, "tf32", TENSOR_FLOAT)


@check(limit=300)
def bfloat16(place: CheckPlace) -> Finding:
    """`precision=bf16-mixed`."""
    return compared(place, "bfloat16", BFLOAT16, "precision=bf16-mixed")


@check(limit=300)
def float16_with_loss_scaler(place: CheckPlace) -> Finding:
    """`precision=16-mixed`; updates may be skipped while the scaler finds its scale."""
    if place.kind != "cuda":
        return impossible("precision=16-mixed needs a GPU")
    # A fused optimizer would unscale gradients after they are clipped.
    return compared(place, "float16", FLOAT16, "precision=16-mixed", "optimizer.fused=false")


@check(limit=300)
def channels_last(place: CheckPlace) -> Finding:
    """The layout that is not the default: `channels_last=false` on a CPU, `channels_last=true` elsewhere."""
    from diffusion_lab.cli.doctor.small_training import tensor_float

    on_cpu = place.device == CPU
    with tensor_float(False):
        word = f"channels_last={'false' if on_cpu else 'true'}"
        return compared(place, "layout", SAME_CPU if on_cpu else OTHER_DEVICE, word)


@check(limit=300)
def several_threads(place: CheckPlace) -> Finding:
    """All cores that the process may use, up to eight, where the others use one."""
    if place.device != CPU:
        return impossible("it is about a CPU")
    if cores() == 1:
        return impossible("this process may use one core")
    return compared(place, "threads", SAME_CPU, f"threads={min(cores(), MOST_THREADS)}")


@check(limit=600)
def compiled(place: CheckPlace) -> Finding:
    """`compile=true` for a smaller network, beside the same one as it is."""
    from diffusion_lab.cli.compute import compiler_fault
    from diffusion_lab.cli.config import compose_train
    from diffusion_lab.cli.doctor.small_training import tensor_float, train

    if fault := compiler_fault(compose_train([*place.settings, "compile=true"], place.folder)):
        return impossible(fault)
    words = (*place.settings, *SMALLEST, *STEPS_ALONE)
    with tensor_float(False):
        plain = train(place.folder / "plain", *words)
        training = train(place.folder / "compiled", *words, "compile=true")
    return verdict(training, plain.losses, SAME_CPU if place.device == CPU else OTHER_DEVICE)


@check(limit=240)
def two_processes(place: CheckPlace) -> Finding:
    """`train trainer=ddp`, on the CPU `train trainer=ddp_cpu`, beside `train` with one process."""
    return in_two(place, "ddp")


@check(limit=240)
def two_processes_fsdp(place: CheckPlace) -> Finding:
    """`train trainer=fsdp`, whose processes share the weights, beside `train` with one."""
    if place.device == CPU:
        return impossible("trainer=fsdp needs two GPUs")
    return in_two(place, "fsdp")


@check(limit=240)
def sweep(place: CheckPlace) -> Finding:
    """`train -m` with two jobs at a time: both are done. A copy of a process that has used a GPU could not use it."""
    from diffusion_lab.cli.doctor.small_training import SMALL
    from diffusion_lab.runs.find import read_runs

    folder = place.folder / "sweep"
    seeds = f"seed={','.join(map(str, SEEDS))}"
    try:
        command(folder, "-m", *SMALL, *STEPS_ALONE, *place.settings, seeds, "hydra.launcher.n_jobs=2")
    except RuntimeError:
        if not list(folder.glob(f"*/{RECORD}")):  # not one job has begun
            raise
    runs = read_runs(folder).runs
    done = sum(run.status == "done" for run in runs)
    if done == len(SEEDS):
        return ok(f"{done} jobs done")
    why = next((run.cause for run in runs if run.cause), "")
    return differs(f"{done} of {len(SEEDS)} jobs done; {why}")


def in_two(place: CheckPlace, trainer: str) -> Finding:
    """The losses of a run of two processes beside those of one.

    They are commands of their own, because the processes of a run repeat the command that started it. On GPUs they draw
    their own noise, and the run of one process is a command as well.
    """
    from diffusion_lab.cli.doctor.small_training import SMALL, Training, losses_of

    on_cpu = place.device == CPU
    if not on_cpu and place.devices < 2:
        return impossible("there is one GPU" if place.kind == "cuda" else "it needs two GPUs of NVIDIA")
    one, two = place.folder / "one", place.folder / trainer
    if on_cpu:
        command(two, *SMALL, *STEPS_ALONE, "trainer=ddp_cpu")
        return verdict(Training(losses_of(two)), reference(place), SAME_CPU)
    if not one.exists():
        command(one, *SMALL, *STEPS_ALONE, "trainer=gpu")
    command(two, *SMALL, *STEPS_ALONE, f"trainer={trainer}")
    return verdict(Training(losses_of(two)), losses_of(one), TENSOR_FLOAT)


def command(folder: Path, *words: str) -> None:
    """`diffusion-lab train` of a run, or with -m of a sweep; RuntimeError with the last line that it said, if it
    fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = f"hydra.{'sweep' if '-m' in words else 'run'}.dir={folder}"
    arguments = [sys.executable, "-P", "-m", "diffusion_lab.cli.main", "train", *words, place]
    done = subprocess.run(arguments, cwd=folder.parent, capture_output=True, text=True, errors="replace")
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise RuntimeError(f"exit code {done.returncode}: {last}")


def compared(place: CheckPlace, name: str, tolerance: float, *words: str) -> Finding:
    """A training beside float32 on the CPU."""
    from diffusion_lab.cli.doctor.small_training import train

    return verdict(train(place.folder / name, *place.settings, *words), reference(place), tolerance)


def reference(place: CheckPlace) -> list[float]:
    """The losses of float32 on the CPU, which are computed where `float32` has not done it."""
    from diffusion_lab.cli.doctor.small_training import train

    path = place.work / REFERENCE
    if not path.exists():
        path.write_text(
            json.dumps(train(place.work / "reference", *place_of(CPU, place.work).settings).losses), encoding="utf-8"
        )
    return json.loads(path.read_text(encoding="utf-8"))


def verdict(training: Training, reference: list[float], tolerance: float) -> Finding:
    """Whether the losses are those of the reference, up to the first update that a scaler skipped."""
    if len(training.losses) != len(reference):
        return differs(f"{len(training.losses)} losses and not {len(reference)}")
    pairs = list(zip(training.losses, reference, strict=True))[: training.skipped]
    worst = max(distance(*pair) for pair in pairs)
    words = f"losses differ by {worst:.1e}, at most {tolerance:.0e}"
    if training.skipped is not None:  # then it is another run
        words += f" up to step {training.skipped}, whose update the scaler skipped"
        fell = sum(training.losses[-5:]) < sum(training.losses[:5])
        worst = worst if fell else float("inf")
        words += "" if fell else "; then the loss does not fall"
    words += f"; {training.rate:.0f} images per second" if training.rate else ""
    return ok(words) if worst <= tolerance else differs(words)


def distance(a: float, b: float) -> float:
    """|a - b| / |b|, infinite if a is not finite."""
    return abs(a - b) / abs(b) if abs(a) < float("inf") else float("inf")
