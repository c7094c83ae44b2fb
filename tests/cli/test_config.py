"""Names and hashes of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose
from omegaconf import OmegaConf, open_dict

from diffusion_lab.cli import conf_folder
from diffusion_lab.cli.config import conf_dir, config_hash, group_hash, plain, register_resolvers, run_name, without
from diffusion_lab.cli.hydra_version import initialized

NOT_IN_HASH = (
    "trainer.accelerator=cpu",
    "trainer.devices=2",
    "dry_run=true",
    "name=other",
    "threads=1",
    "objective=val/loss",
    "dataset.num_workers=2",
    "dataset.features.batch_size=256",
    "~callbacks.progress",
    "logger=none",
    "paths.root=elsewhere",
    "channels_last=true",
    "compile=true",
)


def test_what_cannot_change_a_number_is_not_in_the_hash(composed) -> None:
    assert config_hash(composed(*NOT_IN_HASH)) == config_hash(composed())


@pytest.mark.parametrize("override", ["max_steps=7", "seed=1", "precision=bf16-mixed", "sampler=stratified"])
def test_what_can_change_a_number_is_in_the_hash(composed, override: str) -> None:
    assert config_hash(composed(override)) != config_hash(composed())


def test_group_hash_is_shared_by_the_seeds_of_one_method_alone(composed) -> None:
    first, second, other = composed("seed=1"), composed("seed=2"), composed("seed=1", "optimizer.lr=0.1")
    assert group_hash(first) == group_hash(second) != group_hash(other)
    assert group_hash(first) == config_hash(composed("seed=0"))
    assert first.seed == 1  # the configuration itself is left alone


def test_hash_is_the_same_before_the_run_folder_is_known_and_after_it_is_read_back(composed) -> None:
    cfg = composed()
    before = OmegaConf.merge(cfg)
    with open_dict(before):
        before.paths.run_dir = "${hydra:runtime.output_dir}"
    saved = OmegaConf.create(plain(cfg))
    assert str(cfg.paths.run_dir) in str(saved.callbacks)  # the folder is written out in what a run saves
    assert config_hash(before) == config_hash(cfg) == config_hash(saved)
    assert without(saved) == without(cfg)


def test_the_same_values_are_resolved_once(composed, monkeypatch: pytest.MonkeyPatch) -> None:
    first = config_hash(composed("seed=77"))
    monkeypatch.setattr(OmegaConf, "create", None)
    assert config_hash(composed("seed=77")) == first
    with pytest.raises(TypeError):
        config_hash(composed("seed=78"))


def test_what_a_file_holds_is_read_for_each_hash(composed, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    cfg = composed("sampler=from_file", f"sampler.path={path}", "schedule.num_timesteps=2")
    hashes = []
    for numbers in ("0.5\n0.5\n", "0.25\n0.75\n"):
        path.write_text(numbers)
        hashes.append(config_hash(cfg))
    assert hashes[0] != hashes[1]


def test_plain_is_made_of_builtin_types_only(composed) -> None:
    def check(node: object) -> None:
        assert type(node) in (dict, list, str, int, float, bool, type(None))
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
            check(child)

    check(plain(composed()))


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "digits-logit_normal-v-min_snr-s0"),
        (["sampler=uniform", "seed=3"], "digits-uniform-v-min_snr-s3"),
        (["base=ddpm"], "digits-uniform-s0"),
        (["base=ddpm", "sampler=logit_normal"], "digits-logit_normal-s0"),
        (["weighting=unit", "prediction=eps"], "digits-logit_normal-s0"),
        (["method=min_snr", "dataset=gaussian"], "gaussian-min_snr-s0"),
        (["base=ddpm", "schedule=cosine"], "digits-uniform-cosine-s0"),
        (["base=ddpm", "schedule=cosine", "precision=bf16-mixed"], "digits-uniform-cosine-bf16-mixed-s0"),
        (["schedule=linear", "prediction=x0"], "digits-logit_normal-x0-min_snr-linear-s0"),
        (["method=ddpm", "schedule=cosine"], "digits-ddpm-cosine-s0"),
        (["method=ddpm", "prediction=x0"], "digits-ddpm-x0-s0"),
        (["method=ddpm", "schedule=linear", "prediction=eps"], "digits-ddpm-s0"),  # what it says itself
        (["method=iddpm"], "digits-iddpm-s0"),  # cosine by its own word
        (["method=iddpm", "schedule=linear"], "digits-iddpm-linear-s0"),
        (["method=min_snr", "model=gan"], "digits-min_snr-gan-s0"),  # another model than the method's
        (["method=biggan"], "digits-biggan-s0"),  # gan by its task's word
        (["experiment=demo"], "digits-uniform-v-s0"),  # cosine by the preset's word
        (["experiment=demo", "method=p2", "schedule=linear"], "digits-p2-linear-s0"),
        (["experiment=adaptive_beta/table1", "method=ddpm", "schedule=quadratic"], "cifar10-ddpm-s0"),  # it sweeps it
        (["experiment=adaptive_beta/table3_ours"], "imagenet256_latent-min_snr_learned_beta-s0"),  # by its first file
    ],
)
def test_run_name(composed, overrides: list[str], name: str) -> None:
    assert run_name(composed(*overrides)) == name


def test_resolvers_name_the_run_and_the_sweep_folder() -> None:
    register_resolvers()
    with initialized():
        cfg = compose("train", overrides=["seed=5"], return_hydra_config=True)
        demo = compose("train", overrides=["experiment=demo"], return_hydra_config=True)
    assert cfg.hydra.run.dir == f"runs/digits-logit_normal-v-min_snr-s5-{config_hash(cfg)[:8]}"
    assert cfg.hydra.sweep.dir == "runs/sweep-digits"
    assert cfg.hydra.sweep.subdir == f"digits-logit_normal-v-min_snr-s5-{config_hash(cfg)[:8]}"
    assert demo.hydra.sweep.dir == "runs/demo"


def test_conf_dir_prefers_the_one_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf_folder, "__file__", str(tmp_path / "diffusion_lab" / "cli" / "conf_folder.py"))
    with pytest.raises(FileNotFoundError, match="reinstall"):
        conf_dir()
    for folder in (tmp_path / "conf", tmp_path / "diffusion_lab" / "conf"):  # a checkout, then a wheel
        folder.mkdir(parents=True)
        (folder / "train.yaml").touch()
        assert conf_dir() == folder
