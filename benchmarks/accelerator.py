"""Training on a GPU beside diffusers: `python -m benchmarks.accelerator`.

    images/s     of `diffusion-lab train`, and of a plain loop around diffusers' network of equal shapes
    memory       the allocator's peak

At the batch size of each network's paper. Steps are timed in chunks, after a warm-up that includes compilation, with
the device synchronised before and after each chunk. `--device cpu` tests the same code without a GPU; memory is then
left out. `--out FILE` writes each row as it is measured.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from lightning.pytorch import Trainer

from benchmarks import peers
from benchmarks.paired import Ratio
from benchmarks.table import versions
from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.config import compose_train
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule

WARMUP = 5  # steps


class Setting(NamedTuple):
    """A network at its paper's batch."""

    words: list[str]  # overrides of `diffusion-lab train`
    batch: int
    micro: int  # rows of one forward pass, limited by memory
    size: int  # pixels per side
    peer: Callable[[], torch.nn.Module] | None  # the same shapes from diffusers, which has no U-ViT of this kind


SETTINGS = {
    "unet_ddpm": Setting(["network=unet_ddpm"], 128, 128, 32, peers.unet_ddpm),
    "adm_64": Setting(["network=adm_64", "variance=learned_range"], 2048, 64, 64, peers.adm_64),
    "uvit_small": Setting(["network=uvit_small"], 128, 128, 32, None),
}
OPTIONS = {
    "float32": [],
    "bf16": ["precision=bf16-mixed"],
    "bf16, channels_last": ["precision=bf16-mixed", "channels_last=true"],
    "bf16, compile": ["precision=bf16-mixed", "compile=true"],
    "bf16, channels_last, compile": ["precision=bf16-mixed", "channels_last=true", "compile=true"],
}


class Figures(NamedTuple):
    """Results of one training."""

    images_per_second: Ratio
    gigabytes: float | None


class Stopwatch(StepCallback):
    """Seconds of each `steps` optimizer steps after the warm-up."""

    def __init__(self, device: str, steps: int) -> None:
        self.device, self.steps, self.seconds = device, steps, list[float]()

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        if step >= WARMUP and (step - WARMUP) % self.steps == 0:
            now = _now(self.device)
            if step > WARMUP:
                self.seconds.append(now - self._start)
            self._start = now


def ours(setting: Setting, words: list[str], device: str, steps: int, chunks: int) -> Figures:
    """A training by `diffusion-lab train` without validation, samples and checkpoints."""
    watch = Stopwatch(device, steps)
    quiet = ["~callbacks.generation", "~callbacks.validation", "~callbacks.checkpoint"]
    data = ["dataset=gaussian", "dataset.source.channels=3", f"dataset.source.image_size={setting.size}"]
    data += ["dataset.source.num_images=4096", f"batch_size={setting.batch}", f"images_per_device={setting.micro}"]
    accelerator = f"trainer.accelerator={'gpu' if device == 'cuda' else 'cpu'}"
    with tempfile.TemporaryDirectory() as folder:
        more = [f"max_steps={WARMUP + steps * chunks}", accelerator]
        everything = ["base=ddpm", *data, *setting.words, *words, *quiet, *more]
        cfg = compose_train(everything, Path(folder) / "run")
        run = build_run(cfg, facts(cfg), [watch])
        run.trainer.fit(run.module, datamodule=run.data)
    return Figures(_rate(setting, steps, watch.seconds), _peak(device))


def theirs(setting: Setting, precision: torch.dtype, device: str, steps: int, chunks: int) -> Figures:
    """diffusers' network in a plain loop, with the batch on the device."""
    assert setting.peer is not None
    x0 = torch.randn(setting.batch, 3, setting.size, setting.size, device=device)
    step = peers.training_step(setting.peer().to(device), x0, precision, setting.micro)
    for _ in range(WARMUP):
        step()
    seconds = []
    for _ in range(chunks):
        start = _now(device)
        for _ in range(steps):
            step()
        seconds.append(_now(device) - start)
    return Figures(_rate(setting, steps, seconds), _peak(device))


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _rate(setting: Setting, steps: int, seconds: list[float]) -> Ratio:
    return Ratio.of([setting.batch * steps / value for value in seconds])


def _peak(device: str) -> float | None:
    if device != "cuda":
        return None
    gigabytes = torch.cuda.max_memory_allocated() / 1e9
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return gigabytes


def _row(network: str, who: str, figures: Figures, peer: Figures | None) -> str:
    over = "" if peer is None else f"{figures.images_per_second.median / peer.images_per_second.median:.2f}"
    memory = "" if figures.gigabytes is None else f"{figures.gigabytes:.1f} GB"
    return f"| {network} | {who} | {figures.images_per_second} | {over} | {memory} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerator", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", choices=tuple(SETTINGS), help="one network")
    parser.add_argument("--batch", type=int, help="batch size; default: the paper's")
    parser.add_argument("--steps", type=int, default=20, help="steps of one chunk (20)")
    parser.add_argument("--chunks", type=int, default=3, help="(3)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is visible to PyTorch; --device cpu runs the same code without one")
    quiet_libraries()
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    command = " ".join(["python -m benchmarks.accelerator", *sys.argv[1:]])
    lines = [f"{datetime.date.today()}, {name}. {versions()}. `{command}`.", ""]
    lines += ["| network, batch | training | images/s | over diffusers | memory |", "|" + " --- |" * 5]
    print("\n".join(lines), flush=True)

    def say(row: str) -> None:
        lines.append(row)
        print(row, flush=True)
        if options.out:
            options.out.write_text("\n".join(lines) + "\n")

    timing = (options.device, options.steps, options.chunks)
    for network, setting in SETTINGS.items():
        if options.only in (None, network):
            if options.batch:
                setting = setting._replace(batch=options.batch, micro=min(options.batch, setting.micro))
            _compare(f"{network}, {setting.batch}", setting, timing, say)
    return 0


def _compare(name: str, setting: Setting, timing: tuple[str, int, int], say: Callable[[str], None]) -> None:
    """Rows of one network: diffusers in both precisions, ours with every option, over diffusers in the same
    precision."""
    diffusers: dict[str, Figures] = {}
    for precision, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        if setting.peer is not None:
            diffusers[precision] = theirs(setting, dtype, *timing)
            say(_row(name, f"diffusers, {precision}", diffusers[precision], None))
    for option, words in OPTIONS.items():
        figures = ours(setting, words, *timing)
        say(_row(name, f"diffusion-lab, {option}", figures, diffusers.get(option.split(",")[0])))


if __name__ == "__main__":
    sys.exit(main())
