"""Metrics as a configuration makes them."""

from hydra.utils import instantiate
from omegaconf import OmegaConf

from diffusion_lab.cli.config import conf_dir
from diffusion_lab.metrics import Metric

NAMES = ("fid", "kid", "is", "precision", "recall")


def named(*names: str) -> list[Metric]:
    """The metrics of the yaml files of these names; without any those of conf/metrics/default.yaml."""
    return [instantiate(OmegaConf.load(conf_dir() / "metric" / f"{name}.yaml")) for name in names or NAMES]
