"""What cannot be trained with weights that are cut up among the processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from diffusion_lab.training import ShardedStrategy


def against_sharding(cfg: DictConfig, objects: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each part of a sharded run that needs the whole network on each process.

    Args:
        cfg: a configuration whose nodes agree with their signatures.
        objects: the parts by their names, as far as they could be built.
    """
    node = cfg.trainer.get("strategy")
    if not isinstance(node, DictConfig) or not isinstance(instantiate(node), ShardedStrategy):
        return
    if cfg.precision == "16-mixed":
        yield "precision=16-mixed must be bf16-mixed or 32-true with trainer=fsdp: its loss scale is each process's own"
    for key in ("channels_last", "compile"):
        if cfg[key]:
            yield f"{key}=true must be false with trainer=fsdp, which cuts up plain tensors of a plain network"
    sampler = objects.get("sampler")
    if sampler is not None and any(getattr(part, "looks", False) for part in sampler.modules()):
        yield (
            f"sampler={type(sampler).__name__} must find the whole network on each process, because it looks at its "
            "loss beside training; use trainer=ddp, or another sampler"
        )
