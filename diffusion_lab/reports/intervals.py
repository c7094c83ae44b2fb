"""`diffusion_lab.metrics.uncertainty` without the rest of its package, which imports torch.

A report takes a few seconds; importing torch would double that. The module needs the standard library only.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType


def _load() -> ModuleType:
    name = "diffusion_lab.metrics.uncertainty"
    loader = SourceFileLoader(name, str(Path(__file__).resolve().parents[1] / "metrics" / "uncertainty.py"))
    module = module_from_spec(ModuleSpec(name, loader, origin=loader.path))
    loader.exec_module(module)
    return module


_uncertainty = _load()
Interval = _uncertainty.Interval
mean_interval = _uncertainty.mean_interval
paired_difference = _uncertainty.paired_difference
holm = _uncertainty.holm
seeds_needed = _uncertainty.seeds_needed
width_ratio = _uncertainty.width_ratio
