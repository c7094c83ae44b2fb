"""The parts built as training builds them, the network without memory, so that their constructors can object; then
what must agree between them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from omegaconf import DictConfig

from diffusion_lab.cli.build import build_network, part
from diffusion_lab.cli.checks.bounds import clip_fault
from diffusion_lab.cli.checks.carried import missing_callbacks
from diffusion_lab.cli.checks.conditions import condition_faults, guidance_fault
from diffusion_lab.cli.checks.deleted import deleted_faults, typed
from diffusion_lab.cli.checks.instances import build
from diffusion_lab.cli.checks.origin import by_origin
from diffusion_lab.cli.errors import ConfigError, config_errors, nearest
from diffusion_lab.data import Conditions

PARTS = (
    "schedule",
    "prediction",
    "variance",
    "preconditioning",
    "weighting",
    "sampler",
    "annealing",
    "solver",
    "metrics",
    "dataset",
)


class Parts:
    """Builds what can be built; the faults of the rest are in `errors`.

    Args:
        cfg: a configuration whose nodes agree with their signatures.
        world_size: processes of the run.
    """

    def __init__(self, cfg: DictConfig, world_size: int) -> None:
        # `instantiate` resolves the references that lead to the key that was typed
        self._typed, self.cfg, self.world_size = cfg, copy.deepcopy(cfg), world_size
        self.errors: list[ConfigError] = []
        self.objects: dict[str, Any] = {}
        for name in PARTS:
            with self._collect(name):
                self.objects[name] = build(self.cfg[name])
        callbacks = []
        for name in cfg.callbacks:
            if cfg.callbacks[name] is not None:
                with self._collect(f"callbacks.{name}"):
                    callbacks.append(build(self.cfg.callbacks[name]))
        if not self.errors:
            self.errors += [ConfigError(text) for text in missing_callbacks(self.objects, callbacks)]
            self._check_objective(callbacks)
        self.errors += [ConfigError(text) for text in deleted_faults(cfg, typed())]
        self._check_optimizer()
        self._check_data()
        self._check_clip()
        self._check_network()
        self._check_timesteps()
        with self._collect("annealing"):
            self._check_annealing()
        self._check_metrics()

    @contextmanager
    def _collect(self, path: str) -> Iterator[None]:
        """Keep a fault of the node at `path` and go on; it is told by the key that was typed, once."""
        kind = ConfigError
        try:
            with config_errors(path):
                yield
        except ConfigError as error:
            text, kind = by_origin(self._typed, str(error)), type(error)
        except Exception as error:  # noqa: BLE001  a constructor of anybody's may stumble over anything
            cause = error.__cause__ or error
            told = f" cannot be used: {type(cause).__name__}: {' '.join(str(cause).split())}; check its arguments"
            if self.errors:
                return  # perhaps what has been said already, seen from another part
            text = path + told
        else:
            return
        if text not in map(str, self.errors):
            self._fault(text, kind)

    def _fault(self, text: str, kind: type[ConfigError] = ConfigError) -> None:
        self.errors.append(kind(text))

    def _have(self, *names: str) -> bool:
        return all(name in self.objects for name in names)

    def _check_objective(self, callbacks: Sequence[Any]) -> None:
        """A sweeper's metric is one that this run will measure."""
        wanted = self.cfg.get("objective")
        if wanted is None or "dataset" not in self.objects:
            return
        names = [name for c in callbacks for name in getattr(c, "results", lambda data: ())(self.objects["dataset"])]
        if wanted not in names:
            allowed = (
                f"one of {', '.join(names)}, which this run measures" if names else "null: this run measures nothing"
            )
            self._fault(
                f"objective={wanted} must be {allowed}{nearest(wanted, names)}; use objective={(names or ['null'])[0]}"
            )

    def _check_optimizer(self) -> None:
        """torch's optimizers object with their own words, so the common values are checked here."""
        node = self.cfg.optimizer
        before = len(self.errors)
        for key, default in (("lr", 2e-4), ("eps", 1e-8), ("weight_decay", 0.0)):
            value = node.get(key)
            if isinstance(value, int | float) and not 0 <= value < float("inf"):
                self._fault(f"optimizer.{key}={value} must be a finite number >= 0; use {default:g}")
        for i, beta in enumerate(node.get("betas") or []):
            if not 0 <= beta < 1:
                self._fault(f"optimizer.betas[{i}]={beta} must lie in [0, 1); use {(0.9, 0.999)[min(i, 1)]}")
        if len(self.errors) > before:
            return
        with self._collect("optimizer"):
            self.objects["optimizer"] = part(self.cfg, "optimizer")([torch.nn.Parameter(torch.zeros(1))])

    def _check_data(self) -> None:
        if not self._have("dataset"):
            return
        with self._collect("dataset"):
            self.objects["dataset"].check(self.world_size)

    def _check_clip(self) -> None:
        """No estimate of x0 is cut off at [-1, 1] where the data leave that range."""
        if not self._have("solver", "dataset"):
            return
        with self._collect("dataset.source"):
            fault = clip_fault(self.objects["solver"], self.objects["dataset"].source)
            if fault is not None:
                self._fault(fault)

    def _check_network(self) -> None:
        """A network without memory for the images and heads of this run."""
        if not self._have("dataset", "prediction", "variance"):
            return
        with self._collect("network"):
            given = (self.objects[name] for name in ("dataset", "prediction", "variance"))
            self.objects["network"] = meta_network(self.cfg, *given)
        if self._have("network"):
            self._check_conditions(self.objects["dataset"].conditions)

    def _check_conditions(self, conditions: Conditions) -> None:
        """What the data tell is what the network listens to."""
        given, told = self.cfg.network.get("num_classes"), conditions.num_labels
        if given not in (None, told):
            self._fault(
                f"network.num_classes={given} must be left out, because the data say it, and they say "
                f"{'null' if told is None else told}; set dataset.conditional=true for labels"
            )
        for fault in condition_faults(self.objects["network"], conditions):
            self._fault(fault)

    def _check_timesteps(self) -> None:
        """Sampler, solver and schedule speak of the same T timesteps."""
        if self._have("sampler", "schedule"):
            given, total = self.objects["sampler"].num_timesteps, self.objects["schedule"].num_timesteps
            if given != total:
                self._fault(
                    f"sampler.num_timesteps={given} must be {total}, as schedule.num_timesteps; "
                    "use ${schedule.num_timesteps}"
                )
            with self._collect("sampler"):
                self.objects["sampler"].check(self.cfg.batch_size)
            with self._collect("sampler"):
                self._check_probabilities()
        if self._have("solver", "schedule"):
            with self._collect("solver"):
                self.objects["solver"].check(self.objects["schedule"])
        if self._have("solver", "dataset"):
            fault = guidance_fault(self.objects["solver"], self.objects["dataset"].conditions)
            if fault is not None:
                self._fault(fault)

    def _check_probabilities(self) -> None:
        sampler = self.objects["sampler"]
        key = f"sampler={type(sampler).__name__}"
        p = torch.as_tensor(sampler.probabilities(0), dtype=torch.float64)
        bad = (~torch.isfinite(p) | (p < 0)).nonzero().flatten()
        if len(bad):
            t = int(bad[0])
            self._fault(f"{key} must give finite probabilities >= 0, and gives {p[t]:g} at timestep {t}; mend it")
        elif abs(float(p.sum()) - 1) > 1e-6:
            self._fault(f"{key} must give probabilities of sum 1, and gives {float(p.sum()):g}; mend it")
        elif getattr(sampler, "reweight", False) and bool((p == 0).any()):
            t = int((p == 0).nonzero()[0])
            self._fault(
                f"sampler.reweight=true must have no timestep of probability 0, whose weight 1/(T p) is infinite, and "
                f"timestep {t} has; use sampler.reweight=false or a wider law"
            )

    def _check_annealing(self) -> None:
        """lr factor and beta1 at up to 65 steps of the run, first and last included."""
        if not self._have("annealing", "optimizer"):
            return
        last = self.cfg.max_steps - 1
        name, optimizer = type(self.objects["annealing"]).__name__, self.objects["optimizer"]
        _, beta1 = self.objects["annealing"](0)
        if beta1 is not None and "betas" not in optimizer.defaults:
            self._fault(
                f"annealing={name} must have an optimizer with betas, because it moves beta1, and "
                f"{type(optimizer).__name__} has none; use optimizer=adam or another annealing"
            )
            return
        for step in sorted({round(i * last / 64) for i in range(65)}):
            factor, beta1 = self.objects["annealing"](step)
            if not 0 <= factor < float("inf") or (beta1 is not None and not 0 <= beta1 < 1):
                shown = f"lr factor {factor:g}" + ("" if beta1 is None else f" and beta1 {beta1:g}")
                self._fault(
                    f"annealing={name} must give an lr factor >= 0 and beta1 in [0, 1) at every step, and gives "
                    f"{shown} at step {step}; change its arguments"
                )
                return

    def _check_metrics(self) -> None:
        """Evaluation during training finds its feature extractor and has enough samples for it."""
        generation = self.cfg.callbacks.get("generation")
        if not self._have("metrics", "dataset") or generation is None or not generation.get("every"):
            return
        with self._collect("metrics"):
            self.objects["metrics"].check(self.objects["dataset"])


def meta_network(cfg: DictConfig, data: Any, prediction: Any, variance: Any) -> torch.nn.Module:
    """The network that the run would build, without memory for its weights."""
    with torch.device("meta"):
        return build_network(cfg, data, prediction, variance)
