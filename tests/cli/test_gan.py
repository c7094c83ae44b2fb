"""task=gan on the command line: what it refuses, what a run folder may name, and that its images become digits."""

import json
from pathlib import Path

import pytest

from diffusion_lab.cli.config import compose_train, config_hash, run_name
from diffusion_lab.cli.errors import InvalidConfig
from diffusion_lab.cli.load import load_run
from diffusion_lab.cli.main import main
from diffusion_lab.cli.validate import check
from tests.harness import Child

NO_TIMESTEPS = "must be null, because a GAN has no timesteps; leave it out, and use task=gan"


@pytest.fixture
def faults(composed):
    return lambda *overrides: [str(error) for error in check(composed(*overrides, "trainer.accelerator=cpu"))]


@pytest.mark.parametrize(
    ("group", "option"),
    [
        ("schedule", "cosine"),
        ("prediction", "x0"),
        ("variance", "learned_range"),
        ("preconditioning", "fdm"),
        ("weighting", "p2"),
        ("sampler", "clts"),
        ("solver", "ddim"),
    ],
)
def test_parts_of_timesteps_are_refused_by_name(group, option, faults):
    assert faults("task=gan", f"{group}={option}") == [f"{group}={option} {NO_TIMESTEPS}"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["task=gan", "network=unet_tiny"], "network=unet_tiny must be a generator with its discriminator"),
        (["network=dcgan"], "network=dcgan must be a denoiser"),
        (["task=gan", "gradient_clip=1.0"], "gradient_clip=1.0 must be null, because a GAN's two networks"),
        (["task=gan", "accumulate=2"], "accumulate=2 must be 1, because a GAN's norms are of a whole batch"),
        (["task=gan", "trainer.devices=2"], "trainer.devices=2 must be 1"),
        (["task=gan", "precision=bf16-mixed"], "precision=bf16-mixed must be 32-true"),
        (["task=gan", "dry_run=true"], "dry_run=true must be false, because only the cost of a denoiser"),
        (["task=gan", "metrics.names=[bits_per_dim]"], "metrics.names=[bits_per_dim] must be measured on a Denoiser"),
        (["task=gan", "dataset.conditional=true"], "num_classes=10 is unknown to this network"),
        (["task=gan", "model.discriminator_steps=3"], "model.discriminator_steps=3 must divide batch_size=64"),
        (["task=gan", "dataset=gaussian"], "must have values in "),
        (
            ["base=ddpm", "callbacks=gan"],
            "callbacks.adversarial_log=AdversarialLog must be null, because it works with",
        ),
        (["task=gan", "+callbacks.v._target_=diffusion_lab.callbacks.Validation"], "works with DiffusionModule"),
    ],
)
def test_what_does_not_fit_is_one_sentence(overrides, words, faults):
    (fault,) = faults(*overrides)
    assert words in fault


@pytest.mark.parametrize("overrides", [["task=gan"], ["task=gan", "scale=smoke"], ["method=biggan", "scale=small"]])
def test_what_fits_is_accepted(overrides, faults):
    assert faults(*overrides) == []


def test_the_exit_code_is_2(in_folder, tmp_path, capsys):
    words = ["train", "task=gan", "sampler=clts", f"paths.root={tmp_path}"]
    assert main(words) == 2
    assert capsys.readouterr().err == f"config error: sampler=clts {NO_TIMESTEPS}\n"
    assert not tmp_path.exists() or not list(tmp_path.iterdir())


def test_names_and_hashes(tmp_path):
    one = compose_train(["task=gan"], tmp_path / "run")
    other = compose_train(["task=gan", "network=biggan_tiny"], tmp_path / "run")
    assert run_name(one) == "digits-gan-s0" and config_hash(one) != config_hash(other)
    assert run_name(compose_train(["method=biggan"], tmp_path / "run")) == "digits-biggan-s0"


TINY = ["task=gan", "network.base_channels=8", "batch_size=16", "max_steps=2", "trainer.accelerator=cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gan") / "run"
    words = ["train", *TINY, "metrics=none", "snapshot_every=1", "log_every=1", f"hydra.run.dir={folder}"]

    def work() -> None:
        raise SystemExit(main(words))

    Child(work, folder.parent / "log").succeed()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("model._target_", "os.system", "model._target_=os.system must be a class of diffusion_lab"),
        ("model._target_", "diffusion_lab.training.AdversarialModule", "must be a ModelKind"),
        ("model._target_", "diffusion_lab.networks.DCGAN", "must be a ModelKind"),
        ("network.loss._target_", "diffusion_lab.networks.DCGAN", "must be a AdversarialLoss"),
        ("model._target_", "diffusion_lab.training.DiffusionModel", "schedule._target_ is missing"),
    ],
)
def test_a_run_folder_may_name_only_what_belongs_there(run, place, value, words, tmp_path):
    record = json.loads((run / "run.json").read_text())
    node = record["config"]
    *parents, key = place.split(".")
    for parent in parents:
        node = node[parent]
    node[key] = value
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    with pytest.raises(InvalidConfig) as caught:
        load_run(tmp_path / "run")
    assert any(words in str(error) for error in caught.value.errors), caught.value.errors


@pytest.mark.slow
def test_sample_repeats_the_grid_of_training_and_refuses_a_solver(run, in_folder, tmp_path, capsys):
    words = ["sample", f"run={run}", "device=cpu", f"outdir={tmp_path}/out"]
    assert main(words) == 0
    assert (tmp_path / "out" / "grid.png").read_bytes() == (run / "samples" / "step-00000002.png").read_bytes()
    capsys.readouterr()
    assert main([*words, "solver=ddim"]) == 2
    assert "solver must be null, because" in capsys.readouterr().err
    assert main(["analyze", "analysis=slots", f"run={run}", "device=cpu"]) == 2
    assert (
        "must be left out: this analysis takes diffusion models, and it is one of the GANs" in capsys.readouterr().err
    )


@pytest.mark.learning
def test_a_short_training_is_five_times_nearer_to_the_digits_than_none(tmp_path, monkeypatch):
    """80 and 6.1 after 250 steps; 1.3 after 3,000 steps of 64 images."""
    monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    words = ["task=gan", "max_steps=150", "batch_size=32", "optimizer.lr=1e-3", "metrics.names=[fid]"]
    places = ["trainer.accelerator=cpu", "snapshot_every=0", f"hydra.run.dir={folder}"]

    def work() -> None:
        raise SystemExit(main(["train", *words, *places]))

    Child(work, tmp_path / "log").succeed()
    line, *_ = map(json.loads, (folder / "evaluations.jsonl").read_text().splitlines())
    untrained = tmp_path / "untrained"

    def start() -> None:
        raise SystemExit(main(["train", *words, *places[:2], "max_steps=1", f"hydra.run.dir={untrained}"]))

    Child(start, tmp_path / "log2").succeed()
    first, *_ = map(json.loads, (untrained / "evaluations.jsonl").read_text().splitlines())
    assert line["name"] == first["name"] == "fd1k_digits"
    assert 5 * line["value"] < first["value"]
