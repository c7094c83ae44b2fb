"""Build the parts of a run, report the errors of their constructors, and check that the parts agree.

The run uses the same objects. Only the network is built twice: here on the meta device, without memory for its weights,
because the check also runs for invalid configurations and for every job of a sweep.
"""

from __future__ import annotations

import torch
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.annealing import Constant
from diffusion_lab.cli.build_model import build_network, network_arguments
from diffusion_lab.cli.checks.compatibility import (
    deleted_faults,
    guidance_fault,
    layer_faults,
    missing_callbacks,
    order_fault,
    other_images,
    sharding_faults,
    time_map_faults,
    typed,
    unfit_callbacks,
)
from diffusion_lab.cli.checks.machine import check_disk
from diffusion_lab.cli.checks.method import MethodCheck
from diffusion_lab.cli.checks.nodes import NETWORK_ARGUMENTS
from diffusion_lab.cli.checks.setting import as_text
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, nearest
from diffusion_lab.cli.load import open_runs, trusted
from diffusion_lab.cli.metric_files import misnamed
from diffusion_lab.cli.processes import world_size
from diffusion_lab.cli.question import metric_fault
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.diffusion.schedules import MAX_TIMESTEPS
from diffusion_lab.optimizers import Weights
from diffusion_lab.training import DiffusionModel, ShardedStrategy
from diffusion_lab.training.auxiliary_losses import accumulation_faults, single_row_faults

MATHS = ("schedule", "prediction", "variance", "preconditioning", "time", "coupling", "weighting")
MATHS += ("sampler", "annealing", "solver")


def check_parts(parts: RunParts, searching: str | None = None) -> list[ConfigError]:
    """Errors of the parts of a run and of the free disk space.

    Args:
        parts: of a configuration whose nodes match their signatures. All valid parts are built.
        searching: the sweeper that needs a value of the run, if one does.
    """
    check = _PartsCheck(parts)
    check.run(searching)
    return check.errors


class _PartsCheck(MethodCheck):
    """Builds all valid parts; `errors` has the errors of the others."""

    def run(self, searching: str | None) -> None:
        callbacks, auxiliary = (self._family(name) for name in ("callbacks", "auxiliary"))
        self.build("model")
        kind = type(self.objects.get("model", DiffusionModel()))
        maths = [path for path in MATHS if path not in kind.unused]
        for path in (*maths, *auxiliary, "metrics", "dataset", *callbacks):
            self.build(path)
            if path == "schedule" and self.errors and self.cfg.schedule.get("num_timesteps", 0) > MAX_TIMESTEPS:
                return  # the others would make tables of as many numbers first: 20 s and gigabytes
        if "metrics" in self.objects:
            self.say(*misnamed(self.cfg, self.objects["metrics"].metrics))
        if not self.errors:
            acting = {path.partition(".")[2]: self.objects[path] for path in callbacks}
            self.say(*missing_callbacks(self.objects, acting.values()), *unfit_callbacks(kind, acting))
            asked = next((word for word in typed() if word.startswith("averaging=") and word != "averaging=null"), None)
            if asked and "${averaging}" not in OmegaConf.to_yaml(self.cfg.get("callbacks") or {}):
                self.say(f"{asked} must have a callback that averages; add callbacks=default, or leave it out")
            data = self.objects["dataset"]
            results = [name for one in acting.values() for name in getattr(one, "results", lambda data: ())(data)]
            self._check_sweep_metric(results, searching)
            beside = [name for name in results if name.startswith("val/")]
            self.say(metric_fault(self.cfg, self.objects["metrics"], data, beside, typed()))
        self.say(*deleted_faults(self.cfg, typed()))
        self.say(*time_map_faults(kind, self.objects))
        self._losses = {path: self.objects[path] for path in auxiliary if path in self.objects}
        compared = {"model": kind.trains, "coupling": self.objects.get("coupling")} | self._losses
        self.say(*accumulation_faults(self.cfg.accumulate, compared))
        if self._losses:
            self.say(*single_row_faults(self.cfg.batch_size, self._losses))
        self._check_optimizer()
        self._open_runs()
        if "dataset" in self.objects:
            self._check_data()
        self.check_method()
        if "schedule" in self.objects and self.objects.get("solver") is not None:
            self.attempt("solver", self.objects["solver"].check, self.objects["schedule"])
        if "network" in self.objects and not self.errors:
            kind = self.objects["model"]
            model = kind.generating(kind.whole(self.objects["network"], self.parts))
            if self.objects.get("solver") is not None:
                self.attempt("solver", self.objects["solver"].check_model, model)
            self.attempt("metrics", self.objects["metrics"].check_model, model)
        if "annealing" in self.objects and "optimizer" in self.objects:
            self.attempt("annealing", self._check_annealing)
        if isinstance(self.cfg.trainer.get("strategy"), DictConfig):
            self.attempt("trainer.strategy", self._check_sharding)
        if "network" in self.objects and "optimizer" in self.objects:
            weights = sum([parameter.numel() for parameter in self.objects["network"].parameters()])
            self.errors += check_disk(self.cfg, weights)

    def _family(self, name: str) -> list[str]:
        """Paths of the parts of a family, without those that are null."""
        return [f"{name}.{key}" for key, node in (self.cfg.get(name) or {}).items() if node is not None]

    def _open_runs(self) -> None:
        """Load the trained runs that parts use, and compare their images with those of this run."""
        known = len(self.errors)
        try:
            open_runs(self.parts, trusted(self.cfg))
        except InvalidConfig as error:
            self.errors += error.errors
        except ConfigError as error:
            self.errors.append(error)
        if "dataset" in self.objects:
            self.attempt("dataset", lambda: self.say(*other_images(self.parts, self.objects["dataset"])))
        if len(self.errors) > known:
            self._losses = {}  # which might ask a run that is not loaded, or is not of such images

    def _check_sweep_metric(self, names: list[str], searching: str | None) -> None:
        """The key `objective` must be one of the `names` that this run measures, and one is needed by a sweeper that
        searches."""
        wanted = self.cfg.get("objective")
        if wanted is None and searching is None:
            return
        if wanted is None:
            which = f"one of {', '.join(names)}" if names else "a metric, and this run measures none"
            cure = f"use objective={names[0]}" if names else "leave callbacks.validation as it is"
            self.say(f"objective=null must be what {searching} searches by, {which}; {cure}")
        elif wanted not in names:
            which = f"one of {', '.join(names)}, which" if names else "null:"
            what = "measures" if names else "measures nothing"
            cure = f"use objective={(names or ['null'])[0]}"
            self.say(f"objective={wanted} must be {which} this run {what}{nearest(wanted, names)}; {cure}")

    def _check_optimizer(self) -> None:
        """Check common arguments here, because the messages of torch's optimizers do not name the key."""
        node, faults = self.cfg.optimizer, []
        for key, default in (("lr", 2e-4), ("eps", 1e-8), ("weight_decay", 0.0)):
            value = node.get(key)
            if isinstance(value, int | float) and not 0 <= value < float("inf"):
                faults.append(f"optimizer.{key}={value} must be a finite number >= 0; use {default:g}")
        for i, beta in enumerate(node.get("betas") or []):
            if not 0 <= beta < 1:
                faults.append(f"optimizer.betas[{i}]={beta} must lie in [0, 1); use {(0.9, 0.999)[min(i, 1)]}")
        self.say(*faults)
        if not faults:
            # A hidden matrix and a bias, for an optimizer that takes them apart; without the run's random numbers.
            weights = Weights(torch.nn.ModuleList([torch.nn.utils.skip_init(torch.nn.Linear, 1, 1)]))
            self.attempt("optimizer", lambda: self.objects.update(optimizer=self.parts["optimizer"](weights)))

    def _check_data(self) -> None:
        """Check the data set, its agreement with the network, and the reference of the metrics."""
        data, objects = self.objects["dataset"], self.objects
        known = len(self.errors)
        self.attempt("dataset", data.check, max(1, world_size(self.cfg)))
        if self.cfg.get("order") is not None:
            self.say(order_fault(self.cfg, data))
        for path, loss in self._losses.items() if len(self.errors) == known else ():
            self.attempt(path, loss.check, data.shape)
        solver = objects.get("solver")
        if solver is not None:
            own = data.source
            self.attempt("dataset.source", lambda: self.say(solver.clip_fault("solver", own.name, own.value_range)))
            self.say(guidance_fault(solver, data.conditions))
        if "model" in objects and objects.keys() >= set(objects["model"].parts):
            self.attempt("network", self._check_network)
        generation = self.cfg.callbacks.get("generation")
        if "metrics" in objects and generation is not None and generation.get("every"):
            known = len(self.errors)
            self.attempt("dataset.features", objects["metrics"].check_weights, data)
            if len(self.errors) == known:
                self.attempt("metrics", objects["metrics"].check, data)

    def _check_network(self) -> None:
        """Build the network of this run on the meta device."""
        self.objects["network"] = meta_network(self.parts.without("network"))
        typed = [name for name in ("num_classes", *NETWORK_ARGUMENTS) if self.cfg.network.get(name) is not None]
        arguments = network_arguments(self.parts) if typed else {}
        for name in typed:
            if self.cfg.network[name] != (defined := arguments.get(name)):
                self.say(
                    f"network.{name}={self.cfg.network[name]} must be left out, because the run defines it as "
                    f"{as_text(defined)}{'; set dataset.conditional=true for labels' if defined is None else ''}"
                )
        self.say(*self.objects["model"].faults(self.objects["network"], self.parts))
        self.say(*layer_faults(self.objects["network"], self._losses))

    def _check_annealing(self) -> None:
        """Check lr factor and betas at up to 65 steps of the run, including the first and the last."""
        annealing, optimizer = self.objects["annealing"], self.objects["optimizer"]
        if type(annealing) is Constant:
            return
        last, name = self.cfg.max_steps - 1, f"annealing={type(annealing).__name__}"
        moved = [beta for beta in ("beta1", "beta2") if getattr(annealing(0), beta) is not None]
        if moved and "betas" not in optimizer.defaults:
            kind = type(optimizer).__name__
            raise ConfigError(
                f"{name} must have an optimizer with betas, because it moves {moved[0]}, and {kind} has none; "
                "use optimizer=adam or another annealing"
            )
        for step in sorted({round(i * last / 64) for i in range(65)}):
            hyper = annealing(step)
            betas = {beta: value for beta in moved if (value := getattr(hyper, beta)) is not None}
            if not 0 <= hyper.lr_factor < float("inf") or not all(0 <= value < 1 for value in betas.values()):
                given = "".join(f" and {beta} {value:g}" for beta, value in betas.items())
                raise ConfigError(
                    f"{name} must give an lr factor >= 0 and betas in [0, 1) at every step, and gives lr factor "
                    f"{hyper.lr_factor:g}{given} at step {step}; change its arguments"
                )

    def _check_sharding(self) -> None:
        if isinstance(self.parts["trainer.strategy"], ShardedStrategy):
            self.say(*sharding_faults(self.cfg, self.objects.get("sampler")))


def meta_network(parts: RunParts) -> torch.nn.Module:
    """The network of the run on the meta device, without memory for its weights."""
    for path in ("dataset", *parts["model"].parts):
        parts[path]  # not on the meta device
    with torch.device("meta"):
        return build_network(parts)
