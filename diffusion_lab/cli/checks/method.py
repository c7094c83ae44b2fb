"""Build the parts that make the objective of a diffusion model, report the errors of their constructors, and check what
they give before step 1. `train` and `show` ask these questions; this module imports neither Lightning nor callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from diffusion_lab.cli.checks.typed_keys import with_keys_to_type
from diffusion_lab.cli.errors import ConfigError, MissingHere, at, is_named
from diffusion_lab.cli.own_code import raised_in
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.diffusion import Weighting
from diffusion_lab.diffusion.weighting import native_scales
from diffusion_lab.failure import WrongResult

METHOD = ("schedule", "prediction", "weighting", "sampler")


def check_method(parts: RunParts) -> list[ConfigError]:
    """Errors of schedule, prediction, weighting and sampler, which are built if they are valid."""
    check = MethodCheck(parts)
    for path in METHOD:
        check.build(path)
    check.check_method()
    return check.errors


class MethodCheck:
    """Builds parts in `objects`; `errors` has the errors of those that are not valid."""

    def __init__(self, parts: RunParts) -> None:
        self.parts, self.cfg = parts, parts.cfg
        self.errors: list[ConfigError] = []
        self.objects: dict[str, Any] = {}

    def build(self, path: str) -> None:
        """Build the part of a node."""
        try:
            self.objects[path] = self.parts[path]
        except Exception as error:  # a user's constructor may raise anything
            self._keep(path, error)

    def attempt(self, path: str, check: Callable[..., Any], *arguments: Any) -> None:
        """Call a check; what it raises is an error of the node at `path`."""
        try:
            check(*arguments)
        except Exception as error:  # as above
            self._keep(path, error)

    def say(self, *texts: str | None) -> None:
        """Record errors, with the words to type."""
        for text in filter(None, texts):
            self.errors.append(ConfigError(with_keys_to_type(self.cfg, text)))

    def _keep(self, path: str, error: Exception) -> None:
        """Record an error of the node at `path`, once and with the key to type."""
        if self.errors and not isinstance(error, ValueError | FileNotFoundError | WrongResult):
            return  # probably a consequence of an error that is recorded
        said = on_command_line(path, error, self.cfg)
        if str(said) not in map(str, self.errors):
            self.errors.append(said)

    def check_method(self) -> None:
        """Check those that are built: the number of timesteps, the sampler's probabilities, the weights."""
        if "schedule" in self.objects and self.objects.get("sampler") is not None:
            self._check_sampler()
        if self.objects.keys() >= {"schedule", "prediction", "weighting"}:
            self.attempt("weighting", self._check_weighting)

    def _check_sampler(self) -> None:
        sampler, total = self.objects["sampler"], self.objects["schedule"].num_timesteps
        if sampler.num_timesteps != total:
            self.say(self._other_timesteps(type(sampler).__name__, sampler.num_timesteps, total))
        self.attempt("sampler", lambda: sampler.check(self.cfg.batch_size))
        self.attempt("sampler", lambda: self.say(*probability_faults(sampler)))

    def _other_timesteps(self, kind: str, found: int, total: int) -> str:
        """The message for a sampler of another number of timesteps: the fault of its yaml file, or of its class."""
        if self.cfg.sampler.get("num_timesteps") == total:
            return (
                f"sampler={kind} must have num_timesteps={total}, as it is given, and has {found}, the number of its "
                f"probabilities; correct {self.cfg.sampler['_target_']}"
            )
        cure = "${schedule.num_timesteps}"
        if "num_timesteps" in self.cfg.sampler:
            return f"sampler.num_timesteps={found} must be {total}, as schedule.num_timesteps; use {cure}"
        return (
            f"sampler={kind} must have {total} timesteps, as the schedule, and has {found}; let its class take "
            f"num_timesteps, with num_timesteps: {cure} in its yaml file"
        )

    def _check_weighting(self) -> None:
        schedule = self.objects["schedule"]
        scale = native_scales(schedule, self.objects["prediction"])
        self.say(weight_fault(self.objects["weighting"], schedule.snr, scale))


@contextmanager
def part_errors(path: str, cfg: DictConfig) -> Iterator[None]:
    """Report whatever is raised inside as an error of the node at `path`."""
    try:
        yield
    except Exception as error:  # of a user's class
        raise on_command_line(path, error, cfg) from error


def on_command_line(path: str, error: Exception, cfg: DictConfig) -> ConfigError:
    """What an exception of the node at `path` is on the command line: of an argument, if a constructor rejects it, else
    of the line in the user's own code that raised it."""
    if isinstance(error, WrongResult):
        return ConfigError(with_keys_to_type(cfg, f"{path}={error.kind.__name__}: {error}"))
    if isinstance(error, ValueError | FileNotFoundError):
        said = error if isinstance(error, ConfigError) else at(path, error)
        bug = not (is_named(str(said)) or isinstance(said, MissingHere))
        own = raised_in(error.__cause__ or error, cfg) if bug else ""
        return type(said)(with_keys_to_type(cfg, f"{said}; correct {own}" if own else str(said)))
    what = f"{type(error).__name__}: {' '.join(str(error).split())}"
    own = raised_in(error, cfg)
    return ConfigError(f"{path} cannot be used: {what}; {f'correct {own}' if own else 'check its arguments'}")


@torch.no_grad()
def weight_fault(weighting: Weighting, snr: Tensor, scale: Tensor) -> str | None:
    """The weights of all timesteps at step 0 must be finite and >= 0, and not all 0.

    A weight of 0 is allowed, although `diffusion_lab.testing.check_weighting` is stricter: it leaves timesteps out. A
    negative one would make the loss of its timesteps grow.

    Args:
        weighting: whose weights are checked, before normalisation and in the precision of a training.
        snr: (T,) of the schedule.
        scale: (T,) the prediction's native scale.

    Raises:
        WrongResult: the weights have another shape.
    """
    weights = torch.as_tensor(weighting.native_weight(snr.float(), scale.float(), 0))
    if weights.shape not in (snr.shape, ()):
        raise WrongResult.of(weighting, "native_weight", f"a tensor of the shape of snr, {tuple(snr.shape)}", weights)
    name, weights = f"weighting={type(weighting).__name__}", weights.expand(snr.shape)
    bad = (~torch.isfinite(weights) | (weights < 0)).nonzero().flatten()
    if len(bad):
        t = int(bad[0])
        at = f"gives {weights[t]:g} at timestep {t}, where SNR is {snr[t]:g}"
        return f"{name} must give finite weights >= 0, and {at}; correct its formula or its arguments"
    if not weights.any():
        return f"{name} must give some timestep a weight above 0, and gives 0 to all; correct its formula"
    return None


def probability_faults(sampler: Any) -> Iterable[str]:
    """The probabilities at step 0 must be a distribution that gives every t a finite weight."""
    name = f"sampler={type(sampler).__name__}"
    p = torch.as_tensor(sampler.probabilities(0), dtype=torch.float64)
    if p.shape != (sampler.num_timesteps,):
        wanted = f"a probability for each of the {sampler.num_timesteps} timesteps"
        yield f"{name} must give {wanted}, and gives {tuple(p.shape)}; fix it"
        return
    bad, zero = (~torch.isfinite(p) | (p < 0)).nonzero().flatten(), (p == 0).nonzero().flatten()
    if len(bad):
        t = int(bad[0])
        yield f"{name} must give finite probabilities >= 0, and gives {p[t]:g} at timestep {t}; fix it"
    elif abs(float(p.sum()) - 1) > 1e-6:
        yield f"{name} must give probabilities of sum 1, and gives {float(p.sum()):g}; fix it"
    elif getattr(sampler, "reweight", False) and len(zero):
        yield (
            "sampler.reweight=true must have no timestep of probability 0, whose weight 1/(T p) is infinite, and "
            f"timestep {int(zero[0])} has; use sampler.reweight=false or a wider distribution"
        )
