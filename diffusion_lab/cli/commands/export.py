"""`diffusion-lab export run=DIR format=safetensors`: a trained model as files for other programs, with a model card."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from diffusion_lab.cli.config import choices_of
from diffusion_lab.cli.dry_run import size
from diffusion_lab.cli.errors import ConfigError, config_errors
from diffusion_lab.cli.output_folders import all_or_nothing, writable
from diffusion_lab.runs.names import EXPORTED


def run(cfg: DictConfig) -> None:
    """Write the model's files and README.md, and print where they are."""
    from diffusion_lab.cli.inference import load_trained
    from diffusion_lab.cli.run_parts import part
    from diffusion_lab.export import card
    from diffusion_lab.export.card import write_card
    from diffusion_lab.export.latents import write_decoder
    from diffusion_lab.runs.find import read_run
    from diffusion_lab.training import TrainedDiffusion

    form = part(cfg, "format")
    trained = load_trained(cfg, reads_data=False)
    if not isinstance(trained, TrainedDiffusion):
        raise ConfigError(f"run={cfg.run} must be a diffusion model, and is one of {trained.kind}; use another run")
    if not trained.denoiser.sees_only_x_t:
        kind = type(trained.denoiser).__name__
        raise ConfigError(
            f"run={cfg.run} must have a network that is given x_t, and that of a {kind} is given more; use "
            "`diffusion-lab sample`"
        )
    with config_errors(""):
        form.check(trained)
    with config_errors("dataset.source"):
        decoding = trained.data.source.decoding()
    read = read_run(Path(cfg.run))
    if cfg.outdir:
        folder = writable("outdir", Path(cfg.outdir))
    else:
        folder = writable("run", Path(cfg.run) / EXPORTED / Path(choices_of(cfg)["format"]).name, Path(cfg.run))
    with all_or_nothing(folder) as place:
        form.write(trained, place)
        write_decoder(place, decoding)
        write_card(place, card(trained, read, form))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        print(f"  {path.relative_to(folder)}  {size(path.stat().st_size)}")
    print(f"step {trained.step} of {trained.name} is in {folder}; its README.md says how to read it")
