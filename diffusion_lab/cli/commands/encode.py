"""`diffusion-lab encode dataset=... autoencoder=... outdir=DIR`: encode images as latents for training."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from diffusion_lab.cli.checks.setting import Setting, faults_of
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, config_errors
from diffusion_lab.cli.inference import pick_device
from diffusion_lab.cli.output_folders import writable
from diffusion_lab.cli.run_parts import part
from diffusion_lab.held_folder import hold
from diffusion_lab.runs.shell_commands import command, setting

WHEN_REPEATED = "goes on from the last finished piece"  # the same command, after a signal
SETTINGS = {
    "outdir": Setting(str, "use outdir=data/latents"),
    "device": Setting(str, "use device=auto"),
}


def run(cfg: DictConfig) -> None:
    """Write the latents of both splits and their header, and print the command that trains on them.

    An interrupted encoding continues where it was stopped; a finished one is not repeated.
    """
    from diffusion_lab.data import Encoding

    if not cfg.get("dataset"):
        raise ConfigError("dataset=null must be the images to encode; use e.g. dataset=image_folder")
    if faults := faults_of(cfg, SETTINGS):
        raise InvalidConfig(faults)
    source = part(cfg, "dataset.source")  # without the data module: nothing is trained or measured here
    autoencoder = part(cfg, "autoencoder")
    device, folder = pick_device(cfg.device), Path(str(cfg.outdir))
    with config_errors(""):
        encoding = Encoding(source, autoencoder, folder, cfg.flips, cfg.posterior, cfg.seed, cfg.num_workers)
    with config_errors("dataset.source"):
        source.check()
        source.prepare()
    with config_errors("autoencoder"):
        autoencoder.identity()
    with config_errors("dataset"):
        encoding.check()
    writable("outdir", folder)
    with hold(folder), config_errors(""):
        header = encoding.run(device)
    train, test = (header.splits[split]["shape"] for split in ("train", "test"))
    mirrored = ", half of them mirrored" if header.flips else ""
    print(f"{train[0]} training latents {tuple(train[1:])}{mirrored} and {test[0]} test latents in {folder}")
    words = ("dataset=latents", setting("dataset.source.root", folder), "solver.clip=false")
    print(f"next: {command('train', *words)}")
