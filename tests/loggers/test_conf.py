"""Each logger file gives exactly the loggers that it names."""

import pytest
from hydra import compose
from hydra.utils import instantiate

from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.hydra_version import initialized


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", {"jsonl": "JsonlLogger"}),
        ("default", {"jsonl": "JsonlLogger"}),
        ("wandb", {"jsonl": "JsonlLogger", "wandb": "WandbLogger"}),
        ("tensorboard", {"jsonl": "JsonlLogger", "tensorboard": "TensorBoardLogger"}),
        ("many", {"jsonl": "JsonlLogger", "wandb": "WandbLogger", "tensorboard": "TensorBoardLogger"}),
    ],
)
def test_loggers_of_a_file(name, expected, tmp_path):
    register_resolvers()
    with initialized():
        cfg = compose("train", overrides=[f"logger={name}", f"paths.run_dir={tmp_path}"], return_hydra_config=True)
    loggers = {key: instantiate(cfg.logger[key], _convert_="all") for key in cfg.logger}
    assert {key: type(logger).__name__ for key, logger in loggers.items()} == expected
    assert all(logger.directory == tmp_path for logger in loggers.values())
    if "wandb" in loggers:
        assert loggers["wandb"].run_name == "digits-logit_normal-v-min_snr-s0"
        assert loggers["wandb"].group == "sweep-digits"
