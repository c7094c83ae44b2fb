"""How the global batch is cut up, and who the first process is."""

from __future__ import annotations

import pytest

from diffusion_lab.cli.checks.machine import check_machine
from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.dry_run import describe_batch
from diffusion_lab.cli.processes import RANK_VARIABLES, is_first
from diffusion_lab.cli.validate import check

TWO = "trainer=ddp_cpu"
SLURM = ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_JOB_NAME")


@pytest.mark.parametrize(
    ("overrides", "accumulate", "words"),
    [
        ([], 1, "64 images = 1 processes x 1 microbatches x 64"),
        (["accumulate=4"], 4, "64 images = 1 processes x 4 microbatches x 16"),
        (["images_per_device=16"], 4, "64 images = 1 processes x 4 microbatches x 16"),
        ([TWO, "images_per_device=16"], 2, "64 images = 2 processes x 2 microbatches x 16"),
        ([TWO, "trainer.num_nodes=4", "images_per_device=8"], 1, "64 images = 8 processes x 1 microbatches x 8"),
        ([TWO, "images_per_device=16", "accumulate=2"], 2, "64 images = 2 processes x 2 microbatches x 16"),
    ],
)
def test_passes_follow_from_images_per_device(composed, overrides: list[str], accumulate: int, words: str) -> None:
    cfg = composed(*overrides)
    assert cfg.accumulate == cfg.dataset.accumulate == cfg.trainer.accumulate_grad_batches == accumulate
    assert describe_batch(cfg) == words
    assert check_machine(cfg, here=False) == []


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            [TWO, "images_per_device=24"],
            "images_per_device=24 must divide the 32 images that each of 2 processes has of batch_size=64; "
            "use 16 or 32, or batch_size=48 or 96",
        ),
        (
            ["images_per_device=100"],
            "images_per_device=100 must divide the 64 images that each of 1 processes has of batch_size=64; "
            "use 64, or batch_size=100",
        ),
        (
            [TWO, "images_per_device=16", "accumulate=4"],
            "accumulate=4 must be 2, which is batch_size=64 / (2 processes x images_per_device=16); leave it out, or "
            "use images_per_device=null",
        ),
    ],
)
def test_a_batch_that_does_not_divide_is_one_sentence(composed, overrides: list[str], sentence: str) -> None:
    assert [str(error) for error in check_machine(composed(*overrides))] == [sentence]


def test_a_run_is_the_same_run_on_other_devices_and_in_other_passes(composed) -> None:
    ways = [[], ["accumulate=2"], ["images_per_device=16"], [TWO], [TWO, "images_per_device=8"]]
    assert len({config_hash(composed(*way)) for way in ways}) == 1
    assert config_hash(composed("batch_size=32")) != config_hash(composed())


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "0", "RANK": "0"}, True),
        ({"LOCAL_RANK": "1"}, False),  # Lightning
        ({"RANK": "8", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, False),  # torchrun on the second machine
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "1"}, False),  # srun
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}, True),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_NAME": "interactive"}, True),
    ],
)
def test_who_is_first(variables: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANK_VARIABLES, *SLURM):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_first() is first


def test_what_needs_the_whole_network_is_refused_with_sharded_weights(composed) -> None:
    sharded = ["trainer=fsdp", "trainer.accelerator=cpu"]
    assert check(composed(*sharded)) == []
    for name in ("gradient_variance", "learned_beta"):
        (error,) = check(composed(*sharded, f"sampler={name}"))
        assert str(error).startswith(f"sampler={name} must have the whole network") and "use trainer=ddp" in str(error)
    for key in ("channels_last", "compile"):
        (error,) = check(composed(*sharded, f"{key}=true"))
        assert str(error).startswith(f"{key}=true must be false with trainer=fsdp")
    messages = [str(error) for error in check(composed(*sharded, "precision=16-mixed"))]
    assert any("must be bf16-mixed or 32-true with trainer=fsdp" in error for error in messages)
