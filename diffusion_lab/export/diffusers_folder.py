"""A folder that the diffusers library reads: the network as one of its models, with its DDIM scheduler."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from diffusion_lab.arguments import check_overrides
from diffusion_lab.diffusion import X0, Denoiser, Epsilon, NoiseSchedule, Prediction, V
from diffusion_lab.export.form import Form
from diffusion_lab.networks.for_diffusers import ForDiffusers, InDiffusers
from diffusion_lab.solvers import Around, Guided, Solver
from diffusion_lab.training import TrainedDiffusion

PREDICTION_TYPES: dict[type[Prediction], str] = {Epsilon: "epsilon", X0: "sample", V: "v_prediction"}
ELSE = "use format=safetensors"


class DiffusersFolder(Form):
    """The network and a DDIMScheduler with the run's noise schedule, as the library's `save_pretrained` writes them.

    An unconditional U-Net of images is a whole DDIMPipeline; of other models the model card has the loop. The scheduler
    visits T, T - T/N, .. ("trailing", `solver/spacing=trailing` here) for N that divides T, and
    `use_clipped_model_output=True` in a call derives eps again from the clipped x0, as our solvers do.
    """

    def check(self, trained: TrainedDiffusion) -> None:
        if importlib.util.find_spec("diffusers") is None:
            raise FileNotFoundError(
                "format=diffusers needs diffusers; run: python -m pip install 'diffusion-lab[diffusers]'"
            )
        denoiser, schedule = trained.denoiser, trained.denoiser.schedule
        other_noise = schedule.norm is not None or type(schedule).perturb is not NoiseSchedule.perturb
        for name, wrong, allowed in (
            ("model", type(denoiser) is not Denoiser, "diffusion, with no Denoiser of its own"),
            ("schedule", other_noise, "variance preserving, such as linear or cosine"),
            ("prediction", type(denoiser.prediction) not in PREDICTION_TYPES, "eps, x0 or v"),
            ("variance", denoiser.variance.channels > 0, "fixed, because the library's DDIM takes no learned one"),
            ("preconditioning", denoiser.preconditioning.input_scale(schedule) is not None, "none"),
            ("time", denoiser.time.values(schedule) is not None, "the index of the timestep"),
        ):
            if wrong:
                raise ValueError(f"{name} must be {allowed} for format=diffusers, and this run's is not; {ELSE}")
        kind = type(denoiser.network)
        if not isinstance(denoiser.network, InDiffusers):
            raise ValueError(
                f"network must be one that diffusers has for format=diffusers, and {kind.__name__} is not; {ELSE}"
            )
        check_overrides(denoiser.network, "forward", "for_diffusers")
        denoiser.network.for_diffusers()

    def write(self, trained: TrainedDiffusion, folder: Path) -> None:
        library = _library()
        found, scheduler = _found(trained), _scheduler(trained)
        model = getattr(library, found.architecture)(**found.arguments, sample_size=trained.data.shape[1])
        model.load_state_dict(dict(found.tensors))
        if _has_pipeline(trained, found):
            library.DDIMPipeline(unet=model, scheduler=scheduler).save_pretrained(folder)
        else:
            model.save_pretrained(folder / _place(found))
            scheduler.save_pretrained(folder / "scheduler")

    def usage(self, trained: TrainedDiffusion) -> str:
        return "\n".join([*_left_out(trained), self._usage(trained)])

    def _usage(self, trained: TrainedDiffusion) -> str:
        found, clip = _found(trained), _clip(trained)
        if _has_pipeline(trained, found):
            adjusted = f"model = pipeline.unet\n{found.adjustment}\n" if found.adjustment else ""
            steps = _steps(trained.denoiser.num_timesteps)
            call = f"pipeline(batch_size=16, num_inference_steps={steps}, use_clipped_model_output={clip}).images"
            imports = "import torch\nfrom diffusers import DDIMPipeline"
            return f'{imports}\n\npipeline = DDIMPipeline.from_pretrained(".")\n{adjusted}images = {call}'
        channels, size, _ = trained.data.shape
        labels = trained.data.conditions.num_classes
        needs = bool(labels or found.needs_label)
        asked = f"torch.arange(16) % {labels}" if labels else "torch.zeros(16, dtype=torch.int64)"
        lines = [
            "import torch",
            f"from diffusers import DDIMScheduler, {found.architecture}",
            "",
            f'model = {found.architecture}.from_pretrained(".", subfolder="{_place(found)}").eval()',
            *([found.adjustment] if found.adjustment else []),
            'scheduler = DDIMScheduler.from_pretrained(".", subfolder="scheduler")',
            f"scheduler.set_timesteps({_steps(trained.denoiser.num_timesteps)})",
            f"x = torch.randn(16, {channels}, {size}, {size})",
            *([f"labels = {asked}"] if needs else []),
            "with torch.no_grad():",
            "    for t in scheduler.timesteps:",
            *(f"        {line}" for line in _calls(trained, needs)),
            f"        x = scheduler.step(out, t, x, use_clipped_model_output={clip}).prev_sample",
        ]
        if trained.data.source.decoding() is None:
            lines.append("images = x / 2 + 0.5  # in [0, 1]")
        return "\n".join(lines)


def _left_out(trained: TrainedDiffusion) -> list[str]:
    """A comment on what the run's own samples have and the code of the card has not, such as a second network."""
    found = [type(one).__name__ for one in _solvers(trained) if isinstance(one, Around) and not isinstance(one, Guided)]
    if not found:
        return []
    return [f"# The run's own samples, and the numbers below, are made with {' and '.join(found)}; these are not.", ""]


def _steps(num_timesteps: int) -> int:
    """About 20 steps, of a number that divides T: from t the library steps to t - T//N, whatever it visits next."""
    divisors = [n for n in range(1, num_timesteps + 1) if num_timesteps % n == 0]
    few = [n for n in divisors if n <= 20]
    return few[-1] if few[-1] >= 10 or num_timesteps <= 20 else divisors[len(few)]


def _calls(trained: TrainedDiffusion, labelled: bool) -> list[str]:
    """Python that gives `out` (16,c,h,w) at x, t and labels, guided as the run's own samples are."""
    solver = next((one for one in _solvers(trained) if isinstance(one, Guided)), None)
    null = trained.data.conditions.null_label
    if solver is None or null is None:
        return [f"out = model(x, t.expand(16){', class_labels=labels' if labelled else ''}).sample"]
    kept = [] if solver.channels is None else [f"out[:, {solver.channels}:] = with_label[:, {solver.channels}:]"]
    if solver.interval is not None:
        levels = trained.denoiser.schedule.noise_level
        inside = ((levels > solver.interval[0]) & (levels <= solver.interval[1])).nonzero().flatten().tolist()
        kept.append(f"out = out if {inside[0]} <= t <= {inside[-1]} else with_label")
    return [
        f"both = torch.cat([labels, torch.full_like(labels, {null})])  # {null}: no class",
        "with_label, without = model(torch.cat([x, x]), t.expand(32), class_labels=both).sample.chunk(2)",
        f"out = without + {solver.scale:g} * (with_label - without)  # guidance, as in the run's own samples",
        *kept,
    ]


def _found(trained: TrainedDiffusion) -> ForDiffusers:
    network: Any = trained.denoiser.network
    return network.for_diffusers()


def _place(found: ForDiffusers) -> str:
    return "unet" if found.architecture.startswith("UNet") else "transformer"


def _has_pipeline(trained: TrainedDiffusion, found: ForDiffusers) -> bool:
    """Whether DDIMPipeline, which gives no labels and clips its output to pixels, can call it."""
    pixels = trained.data.source.decoding() is None
    return pixels and found.architecture == "UNet2DModel" and trained.data.conditions.num_labels is None


def _clip(trained: TrainedDiffusion) -> bool:
    return bool(getattr(_solvers(trained)[-1], "clip", True))


def _solvers(trained: TrainedDiffusion) -> list[Solver | None]:
    """The one that the run samples with, and those inside it; [None] if it has none."""
    found: list[Solver | None] = [None if trained.own_solver is None else trained.own_solver()]
    while isinstance(found[-1], Around):
        found.append(found[-1].base)
    return found


def _library() -> Any:
    return importlib.import_module("diffusers")  # which takes seconds


def _scheduler(trained: TrainedDiffusion) -> Any:
    denoiser = trained.denoiser
    given: dict[str, Any] = {
        "num_train_timesteps": denoiser.num_timesteps,
        "trained_betas": denoiser.schedule.betas.tolist(),
        "prediction_type": PREDICTION_TYPES[type(denoiser.prediction)],
        "clip_sample": _clip(trained),
        "timestep_spacing": "trailing",
        "set_alpha_to_one": True,
    }
    return _library().DDIMScheduler(**given)
