"""Bad configurations: one sentence each with key, value, what is allowed and the cure, before anything runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf, open_dict

from diffusion_lab.cli import bfloat16, processes
from diffusion_lab.cli.bfloat16 import slow_bfloat16
from diffusion_lab.cli.checks import machine
from diffusion_lab.cli.compute import compiler_fault
from diffusion_lab.cli.config import config_hash, plain
from diffusion_lab.cli.validate import check, seedless

# overrides; what the sentence starts with; words that must be in it. Numbers are rows of the catalogue of bad inputs.
CASES = {
    "1 data folder missing": (
        ["dataset=image_folder", "dataset.source.root=nowhere", "metrics=none", "network.attention_resolutions=[]"],
        "dataset.source.root=nowhere",
        ["must be a folder"],
    ),
    "2 data set absent": (
        ["dataset=cifar10", "dataset.source.root=none", "metrics=none", "network.attention_resolutions=[]"],
        "dataset.source.root=none",
        ["cifar-10-python.tar.gz", "download=true"],
    ),
    "13 classes without labels": (["+network.num_classes=10"], "network.num_classes=10", ["dataset.conditional=true"]),
    "13 channels of the network": (["+network.in_channels=7"], "network.in_channels=7", ["must be left out", "as 1"]),
    "13 size of the network": (["+network.image_size=9"], "network.image_size=9", ["must be left out", "as 8"]),
    "13 guidance without labels": (["solver=guided"], "solver=guided", ["label_dropout=0.1"]),
    "13 labels withheld that are not given": (
        ["dataset.label_dropout=0.1"],
        "dataset.label_dropout=0.1",
        ["conditional=true"],
    ),
    "13 a low resolution that nobody listens to": (
        ["task=super_resolution"],
        "task=super_resolution",
        ["low_res", "network=adm_sr_tiny"],
    ),
    "13 a factor that does not divide the images": (
        ["task=super_resolution", "network=adm_sr_tiny", "task.factor=3"],
        "task.factor=3",
        ["divide the 8 pixels", "use 2"],
    ),
    "13 labels that do not exist": (
        ["dataset=gaussian", "dataset.conditional=true", "dataset.source.means=[0.0]", "solver.clip=false"],
        "dataset.conditional=true",
        ["must have labels", "conditional=false"],
    ),
    "14 image size against the levels": (
        ["dataset=gaussian", "dataset.source.image_size=7", "network.channel_multipliers=[1,2]", "solver.clip=false"],
        "dataset.source.image_size=7",
        ["multiple of 2", "6 or 8"],
    ),
    "14 clipping of data that are not bounded": (
        ["dataset=gaussian"],
        "solver.clip=true must be false with gaussian",
        ["use solver.clip=false"],
    ),
    "15 channels against the groups": (["network.base_channels=7"], "network.base_channels=7", ["multiple", "use"]),
    "18 timesteps of another schedule": (
        ["sampler.num_timesteps=10"],
        "sampler.num_timesteps=10",
        ["1000", "${schedule.num_timesteps}"],
    ),
    "18 more solver steps than timesteps": (["solver.steps=2000"], "solver.steps=2000", ["at most 1000"]),
    "20 share outside its range": (
        ["sampler=loss_second_moment", "sampler.uniform=1.5"],
        "sampler.uniform=1.5",
        ["[0, 1]", "use 0.001"],
    ),
    "21 division by a probability of zero": (
        ["sampler=logit_normal", "sampler.std=0.001", "sampler.reweight=true"],
        "sampler.reweight=",
        ["zero", "false"],
    ),
    "22 beta outside (0, 1)": (["base=ddpm", "schedule.beta_end=2"], "schedule.beta_end=2", ["(0, 1)", "0.02"]),
    "24 beta_start above beta_end": (["base=ddpm", "schedule.beta_start=0.5"], "schedule.beta_start=0.5", ["beta_end"]),
    "25 EMA decay": (["callbacks.ema.decays=[1.5]"], "callbacks.ema.decays=1.5", ["[0, 1)", "use 0.9999"]),
    "25 Adam's second decay": (["optimizer.betas=[0.9,1.0]"], "optimizer.betas[1]=1.0", ["[0, 1)", "use 0.999"]),
    "25 annealing": (
        ["annealing=warmup", "annealing.warmup_steps=0"],
        "annealing.warmup_steps=0",
        [">= 1", "optimizer steps"],
    ),
    "26 lr negative": (["optimizer.lr=-1"], "optimizer.lr=-1", [">= 0", "use"]),
    "26 lr not a number": (["optimizer.lr=nan"], "optimizer.lr=nan", ["finite", "use"]),
    "26 lr text": (["optimizer.lr=abc"], "optimizer.lr=abc", ["must be a number", "use"]),
    "26 lr empty": (["optimizer.lr="], "optimizer.lr=''", ["must be a number", "use"]),
    "27 batch of zero": (["batch_size=0"], "batch_size=0", [">= 1", "use 64"]),
    "27 batch below the processes": (
        ["batch_size=1", "trainer.devices=2", "trainer.accelerator=cpu"],
        "batch_size=1",
        ["2 processes", "use 2"],
    ),
    "27 batch not divisible": (["batch_size=63", "accumulate=2"], "batch_size=63", ["multiple", "use 62 or 64"]),
    "27 passes not whole": (["images_per_device=24"], "images_per_device=24", ["of batch_size=64", "use 16 or 32"]),
    "28 more images in a batch than there are": (["batch_size=2000"], "batch_size=2000", ["1437", "at most"]),
    "29 no steps": (["max_steps=0"], "max_steps=0", [">= 1", "use 2000"]),
    "37 no room": (["max_steps=1000000000", "keep_every=500"], "paths.root=", ["GB free", "keep_every=0"]),
    "37 no folder": (["paths.root=/dev/null/runs"], "paths.root=/dev/null/runs", ["written to"]),
    "38 accelerator": (["trainer.accelerator=gpuu"], "trainer.accelerator=gpuu", ["cpu, gpu", "did you mean 'gpu'?"]),
    "38 precision": (["precision=fp16"], "precision=fp16", ["bf16-mixed", "use 32-true"]),
    "38 layout": (["channels_last=maybe"], "channels_last=maybe", ["true or false or null", "use null"]),
    "38 compile": (["compile=null"], "compile is missing", ["use compile=false"]),
    "38 strategy": (["trainer.strategy=dpp"], "trainer.strategy=dpp", ["did you mean 'ddp'?"]),
    "38 no devices": (["trainer.devices=0"], "trainer.devices=0", ["at least one", "trainer.devices=1"]),
    "39 samples below twice the dimensions": (
        ["metrics.num_samples=10"],
        "metrics.num_samples=10",
        ["at least 128", "raise it"],
    ),
    "43 key that does not exist": (["++trian.lr=1"], "trian", ["no setting", "did you mean 'trainer'?"]),
    "43 argument that does not exist": (
        ["++optimizer.lrr=1"],
        "optimizer.lrr=1",
        ["Adam has no argument", "did you mean 'lr'?"],
    ),
    "43 seed as text": (["seed=007"], "seed=007", ["integer", "seed=7"]),
    "43 seed as a float": (["seed=1e5"], "seed=100000.0", ["integer", "write seed=100000"]),
    "43 integer as a float": (["schedule.num_timesteps=1.5"], "schedule.num_timesteps=1.5", ["integer", "use 1000"]),
    "43 part left out": (["~sampler"], "sampler=null", ["use sampler=logit_normal"]),
    "43 value in a family of parts": (["+callbacks.foo=3"], "callbacks.foo", ["no _target_"]),
    "43 part that has lost its class": (["~dataset._target_"], "dataset._target_ is missing", ["dataset=..."]),
    "43 list of the wrong length": (["optimizer.betas=[0.9]"], "optimizer.betas=[0.9]", ["a list of 2", "use"]),
    "44 class that does not exist": (
        ["sampler._target_=diffusion_lab.timesteps.Unifrom"],
        "sampler._target_=diffusion_lab.timesteps.Unifrom",
        ["did you mean 'Uniform'?"],
    ),
    "44 list as a class": (["trainer._target_=[[1],[2]]"], "trainer._target_=[[1], [2]]", ["must be a dotted name"]),
    "44 mapping as a class": (["model._target_={a:1}"], "model._target_={'a': 1}", ["must be a dotted name"]),
    "44 mapping as a path": (["trainer.default_root_dir={a:1}"], "trainer.default_root_dir={'a': 1}", ["text or null"]),
    "44 class outside the list": (["sampler._target_=subprocess.run"], "sampler._target_=subprocess.run", ["must be"]),
    "kept ones between checkpoints": (["checkpoint_every=100", "keep_every=150"], "keep_every=150", ["multiple"]),
    "queue without a statistic": (
        ["sampler=learned_beta", "sampler.queue=2"],
        "sampler.queue=2",
        [">= 3", "use 20"],
    ),
    "selection from one row": (
        ["sampler=learned_beta", "sampler.select_from=1"],
        "sampler.select_from=1",
        ["[2, 20]", "use 5"],
    ),
    "more selected timesteps than there are": (
        ["sampler=learned_beta", "sampler.num_selected=101", "schedule.num_timesteps=100"],
        "sampler.num_selected=101",
        ["[1, 100]", "use 3"],
    ),
    "policy without width": (["sampler=learned_beta", "sampler.hidden=0"], "sampler.hidden=0", [">= 1", "128"]),
    "bound of several heads": (
        ["sampler=learned_beta", "prediction=combined"],
        "prediction=combined",
        ["one head", "use prediction=eps"],
    ),
    "negative power of the weight": (["weighting=p2", "weighting.gamma=-1"], "weighting.gamma=-1", ["[0, inf)", "use"]),
    "suppression below 1": (["sampler=speed", "sampler.suppression=0"], "sampler.suppression=0", ["[1, inf)", "use 5"]),
    "floor above beta1": (["method=mdlrc", "annealing.floor=0.9"], "annealing.floor=0.9", ["[0, 0.8)", "below beta1"]),
    "slot that does not exist": (["sampler=slot_restricted", "sampler.slots=[99]"], "sampler.slots=99", ["[1, 10]"]),
    "more slots than timesteps": (
        ["sampler=equal_loss_slots", "sampler.num_slots=5000"],
        "sampler.num_slots=5000",
        ["[1, 1000]", "use 10"],
    ),
    "mean beyond the timesteps": (["sampler=clts", "sampler.mean=1.5"], "sampler.mean=1.5", ["[0, 1]", "0.3"]),
    "21 probability that underflows": (
        ["sampler=power", "sampler.power=400", "sampler.reweight=true"],
        "sampler.reweight=True",
        ["t=0", "use sampler.reweight=false"],
    ),
    "loss that is not a number": (
        ["sampler=equal_loss_slots", "sampler.loss_curve=[1.0,nan,2.0]"],
        "sampler.loss_curve[1]=nan",
        ["finite", "measure"],
    ),
    "images that a batch does not have": (
        ["sampler=gradient_variance", "sampler.images=128"],
        "sampler.images=128",
        ["[8, 64]", "rows in a batch"],
    ),
    "sampler that nothing drives": (
        ["method=speed", "~callbacks.timestep_sampling"],
        "callbacks.timestep_sampling=null",
        ["sampler=speed", "use sampler=uniform"],
    ),
    "annealing that nothing drives": (
        ["method=mdlrc", "callbacks.annealing=null"],
        "callbacks.annealing=null",
        ["annealing=mdlrc", "use annealing=constant"],
    ),
    "normalisation that nothing drives": (
        ["weighting.normalize=mean1_uniform", "~callbacks.weight_normalization"],
        "callbacks.weight_normalization=null",
        ["weighting.normalize=mean1_uniform", "use weighting.normalize=none"],
    ),
    "heads that nothing tracks": (
        ["method=mixed_paper", "~callbacks.head_tracking"],
        "callbacks.head_tracking=null",
        ["HeadTracking", "one head"],
    ),
    "momentum of an optimizer without one": (
        ["method=mdlrc", "optimizer._target_=torch.optim.SGD", *(f"~optimizer.{k}" for k in ("betas", "eps", "fused"))],
        "annealing=mdlrc",
        ["betas", "SGD", "use optimizer=adam"],
    ),
    "weights in half precision": (
        ["precision=bf16-true"],
        "precision=bf16-true",
        ["16-mixed (did you mean 'bf16-mixed'?)"],
    ),
    "attention at a size that does not occur": (
        ["network.attention_resolutions=[3]"],
        "network.attention_resolutions=[3]",
        ["8, 4"],
    ),
    "SNR of all timesteps shifted by nothing": (
        ["schedule=cosine", "schedule.shift=0"],
        "schedule.shift=0",
        ["(0, inf)"],
    ),
    "rectified flow shifted below nothing": (
        ["schedule=rectified_flow", "schedule.shift=-1"],
        "schedule.shift=-1",
        ["(0, inf)", "use 1.0"],
    ),
    "levels of noise that do not rise": (
        ["schedule=edm", "schedule.sigma_min=80"],
        "schedule.sigma_min=80",
        ["below sigma_max"],
    ),
    "cosine that ends at an SNR of 0": (
        ["schedule=cosine", "schedule.max_beta=1.0"],
        "schedule.max_beta=1.0",
        ["0.999"],
    ),
    "logit-normal without width": (["sampler=logit_normal", "sampler.std=0"], "sampler.std=0", ["(0, inf)", "use 1.0"]),
    "log-SNR family without width": (
        ["sampler=log_snr", "sampler.distribution.scale=0"],
        "sampler.distribution.scale=0",
        ["(0, inf)", "use 1.0"],
    ),
    "patches that do not tile the images": (
        ["network=dit_tiny", "network.patch_size=3"],
        "network.patch_size=3",
        ["divide image_size=8", "use network.patch_size=2"],
    ),
    "listed timesteps that rise": (
        ["solver=euler", "solver/spacing=listed", "solver.spacing.timesteps=[10,20]", "solver.steps=null"],
        "solver.spacing.timesteps=[10, 20]",
        ["must fall"],
    ),
    "listed timesteps outside the schedule": (
        ["solver=euler", "solver/spacing=listed", "solver.spacing.timesteps=[1000,3]", "solver.steps=null"],
        "solver.spacing.timesteps=[1000, 3]",
        ["0 to 999"],
    ),
    "solver's noise levels that do not rise": (
        ["solver=heun", "solver.sigma_min=5", "solver.sigma_max=5"],
        "solver.sigma_min=5",
        ["below sigma_max"],
    ),
}


# Faults that are found as another row's are.
TWINS = {
    "2 data set absent",
    "13 classes without labels",
    "25 annealing",
    "26 lr not a number",
    "26 lr empty",
    "27 batch not divisible",
    "38 strategy",
    "38 no devices",
    "43 seed as a float",
    "43 integer as a float",
    "43 list of the wrong length",
    "44 class outside the list",
    "kept ones between checkpoints",
    "queue without a statistic",
    "selection from one row",
    "more selected timesteps than there are",
    "policy without width",
    "negative power of the weight",
    "suppression below 1",
    "annealing that nothing drives",
    "normalisation that nothing drives",
    "heads that nothing tracks",
    "weights in half precision",
    "slot that does not exist",
    "more slots than timesteps",
    "mean beyond the timesteps",
    "21 probability that underflows",
    "attention at a size that does not occur",
}


def test_one_piece_of_advice_at_a_time(composed) -> None:
    (error,) = check(composed("precision=bf16-mxed"))
    assert str(error).endswith("16-mixed (did you mean 'bf16-mixed'?)")  # and not "use 32-true" after it


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow if c in TWINS else ()) for c in CASES])
def test_bad_input_gives_one_sentence(composed, case: str, tmp_path: Path) -> None:
    overrides, start, words = CASES[case]
    errors = [str(error) for error in check(composed(*overrides))]
    assert len(errors) == 1, errors
    assert errors[0].startswith(start)
    assert all(word in errors[0] for word in words), errors[0]
    assert "\n" not in errors[0] and "Traceback" not in errors[0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [("trainer.accelerator=gpu", "trainer=cpu"), ("precision=16-mixed", "use bf16-mixed")],
)
def test_what_needs_a_gpu(composed, override: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (machine, processes):
        monkeypatch.setattr(module, "gpu_count", lambda: 0)
    errors = [str(error) for error in check(composed(override))]
    assert len(errors) == 1 and errors[0].startswith(override) and words in errors[0]


@pytest.mark.parametrize(("accelerator", "gpus", "kind"), [("cpu", 0, "C++"), ("auto", 0, "C++"), ("auto", 1, "C")])
def test_what_compiles_needs_a_compiler(composed, accelerator, gpus, kind, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = composed("compile=true", f"trainer.accelerator={accelerator}")
    monkeypatch.setattr(processes, "gpu_count", lambda: gpus)
    assert compiler_fault(composed()) is None
    for variable in ("CC", "CXX"):
        monkeypatch.setenv(variable, sys.executable)
    assert compiler_fault(cfg) is None
    for variable in ("CC", "CXX"):
        monkeypatch.setenv(variable, "none-of-these")
    text = f"compile=true must have a {kind} compiler (none-of-these), and there is none; use compile=false"
    assert compiler_fault(cfg) == text
    if accelerator == "cpu":
        assert [str(error) for error in check(cfg)] == [text]


@pytest.mark.parametrize(
    ("flags", "override", "warned"),
    [
        ("flags\t: fpu avx512f", "precision=bf16-mixed", True),
        ("flags\t: fpu avx512_bf16", "precision=bf16-mixed", False),
        ("Features\t: fp bf16", "precision=bf16-mixed", False),
        ("flags\t: fpu avx512f", "precision=32-true", False),
    ],
)
def test_bfloat16_on_a_processor_without_it_is_told(composed, flags, override, warned, monkeypatch, tmp_path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr(bfloat16, "CPUINFO", tmp_path / "cpuinfo")
    assert bool(slow_bfloat16(composed(override, "trainer.accelerator=cpu"))) == warned


def test_guidance_is_no_fault_while_the_classes_are_not_here(composed, tmp_path: Path) -> None:
    words = ["dataset=image_folder", f"dataset.source.root={tmp_path}/none", "dataset.conditional=true", "metrics=none"]
    cfg = composed(*words, "dataset.label_dropout=0.1", "solver=guided", "network=unet_small")
    assert all("guided" not in str(error).lower() for error in check(cfg))


def test_float16_gradients_are_not_clipped_before_a_fused_optimizer_unscales_them(composed, monkeypatch) -> None:
    for module in (machine, processes):
        monkeypatch.setattr(module, "gpu_count", lambda: 1)
    (error,) = machine.check_machine(composed("precision=16-mixed"))
    assert str(error).startswith("optimizer.fused=true must be false") and "use optimizer.fused=false" in str(error)
    for words in (["optimizer.fused=false"], ["gradient_clip=null"]):
        assert machine.check_machine(composed("precision=16-mixed", *words)) == []


def test_all_faults_are_told_together(composed) -> None:
    errors = [str(error) for error in check(composed("seed=007", "optimizer.lr=abc", "++foo=1", "batch_size=0"))]
    assert [error.split("=")[0].split(":")[0] for error in errors] == ["foo", "seed", "batch_size", "optimizer.lr"]


@pytest.mark.parametrize("word", ["~question", "question=null"])
def test_a_node_that_is_gone_is_one_fault(composed, word: str) -> None:
    said = ["question must have its settings; leave ~question or question=null out"]
    assert [str(error) for error in check(composed(word))] == said
    assert [str(error) for error in check(composed("~question.alpha"))] == [
        "question.alpha is missing; use question.alpha=0.05"
    ]


def test_a_good_configuration_has_no_fault_and_is_left_alone(composed) -> None:
    cfg = composed()
    before = OmegaConf.to_yaml(cfg)
    state = torch.random.get_rng_state()
    assert check(cfg) == []
    assert OmegaConf.to_yaml(cfg) == before
    assert torch.equal(torch.random.get_rng_state(), state)


def test_missing_inception_weights_are_told_before_training(composed, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    _image_folder(tmp_path / "images")
    cfg = composed(
        "dataset=image_folder",
        "dataset.features._target_=diffusion_lab.metrics.InceptionFeatures",
        f"dataset.source.root={tmp_path}/images",
        f"dataset.source.cache_dir={tmp_path}/cache",
        "dataset.source.test_share=0.5",
        "batch_size=2",
        "metrics.num_samples=4096",
        "network.attention_resolutions=[]",
    )
    errors = [str(error) for error in check(cfg)]
    assert len(errors) == 1
    assert "weights-inception-2015-12-05-6726825d.pth" in errors[0]
    assert "; or type dataset.features=own, for features that are trained from these images" in errors[0]
    assert errors[0].endswith("'metrics.names=[sample_variance]'")
    assert "6726825d" in errors[0] and str(tmp_path) in errors[0]
    before = config_hash(cfg)
    key = errors[0].partition("=")[0]  # the one that is named is one that works, and there is no other in the sentence
    assert "=" not in errors[0].removeprefix(f"{key}=null").partition("; or type ")[0]
    (tmp_path / "fake.pth").write_bytes(b"no weights")
    assert OmegaConf.select(cfg, key, throw_on_missing=True) is None
    OmegaConf.set_struct(cfg, True)
    OmegaConf.update(cfg, key, str(tmp_path / "fake.pth"))
    (error,) = check(cfg)
    assert str(error).startswith(f"{key}={tmp_path}/fake.pth: the sha256 of") and "6726825d" in str(error)
    OmegaConf.update(cfg, key, None)
    with open_dict(cfg):
        cfg.callbacks.generation.every = 0
    assert check(cfg) == []  # not needed when nothing is evaluated
    with open_dict(cfg):
        cfg.callbacks.generation.every = cfg.snapshot_every
    assert config_hash(cfg) == before


def _image_folder(folder: Path) -> None:
    from PIL import Image

    folder.mkdir()
    for i in range(8):
        Image.new("RGB", (32, 32), (i * 20, 0, 0)).save(folder / f"{i}.png")


def test_run_folder_of_another_configuration(composed, tmp_path: Path) -> None:
    old, new = composed("optimizer.lr=0.1"), composed("optimizer.lr=0.2")
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"config": plain(old), "config_hash": config_hash(old)}))
    assert check(old) == []
    errors = [str(error) for error in check(new)]
    assert len(errors) == 1 and errors[0].startswith("optimizer.lr=0.2 must equal the checkpoint's 0.1")
    assert errors[0].endswith(f"train into a new folder, not {folder}")
    assert check(composed("optimizer.lr=0.1", "max_steps=9000")) == []  # a run may be made longer
    (folder / "run.json").write_text("{")
    assert "undamaged run.json" in str(check(old)[0])


def test_a_sampler_whose_probabilities_are_wrong(composed, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "wrong_sampler.py").write_text(
        "import torch\n"
        "from diffusion_lab.timesteps import TimestepSampler\n"
        "class Wrong(TimestepSampler):\n"
        "    def __init__(self, num_timesteps: int, what: str):\n"
        "        super().__init__(num_timesteps)\n"
        "        self.what = what\n"
        "    def probabilities(self, step):\n"
        "        p = torch.full((self.num_timesteps,), 1 / self.num_timesteps, dtype=torch.float64)\n"
        "        if self.what == 'bad': p[3] = float('nan')\n"
        "        if self.what == 'sum': p[3] = 0.5\n"
        "        if self.what == 'raise': return p.nothing\n"
        "        return p\n"
    )
    for what, words in {"bad": "at timestep 3", "sum": "of sum 1", "raise": "cannot be used"}.items():
        cfg = composed("sampler=uniform", "sampler._target_=wrong_sampler.Wrong", f"+sampler.what={what}")
        errors = [str(error) for error in check(cfg)]
        assert len(errors) == 1 and errors[0].startswith("sampler") and words in errors[0], errors
    assert check(composed("sampler=uniform", "sampler._target_=wrong_sampler.Wrong", "+sampler.what=fine")) == []


def test_another_seed_of_a_faultless_configuration_is_not_built_again(composed, monkeypatch, tmp_path) -> None:
    from diffusion_lab.cli.checks import parts

    built, passed = [], set()

    real = parts.check_parts
    monkeypatch.setattr(parts, "check_parts", lambda *args: built.append(args) or real(*args))
    assert check(composed("seed=0"), None, passed) == [] and len(passed) == 1
    others = (["seed=1"], ["stream_seeds.noise=7"], ["dataset.seed=7", "stream_seeds.init=7"])
    assert [check(composed(*words), None, passed) for words in others] == [[], [], []]
    assert len(built) == 1
    assert "stream_seeds.noise=-1" in str(check(composed("stream_seeds.noise=-1"), None, passed)[0])
    assert "seed=-1" in str(check(composed("dataset.seed=-1"), None, passed)[0])
    first, second = (seedless(composed("init_from='a-${seed}.pt'", f"seed={n}")) for n in (0, 1))
    assert first != second
    for sampler in ("uniform", "learned_beta"):  # the second has a seed of its own, which is the run's
        assert len({seedless(composed(f"sampler={sampler}", f"seed={n}")) for n in (0, 1)}) == 1
    built.clear()
    assert check(composed("seed=1", "batch_size=32"), None, passed) == []
    assert len(built) == 1
    # What no group of the report depends on is looked at too.
    assert "logger" in str(check(composed("seed=1", "+logger.jsonl.wrong=1"), None, passed))
    assert "seed=-1" in str(check(composed("seed=-1"), None, passed)[0])
    folder = tmp_path / "run"  # what concerns the folder is looked at for every seed
    folder.mkdir()
    (folder / "run.json").write_text("{")
    seed = composed("seed=2")
    seed.paths.run_dir = str(folder)
    assert "undamaged run.json" in str(check(seed, None, passed)[0])
    assert check(composed("optimizer.lr=-1"), None, passed) and len(passed) == 2  # a faulty group is looked at again


def test_the_disk_is_that_of_the_run_folder_wherever_the_runs_of_its_record_are(composed, tmp_path) -> None:
    """`verify`, in a working folder that cannot be written to, repeats a run elsewhere."""
    cfg = composed("scale=smoke", "metrics=none")
    cfg.paths.root, cfg.paths.run_dir = "/dev/null/runs", str(tmp_path / "again")
    assert machine.check_disk(cfg, 1000) == []
    cfg.paths.root, cfg.paths.run_dir = str(tmp_path), "/dev/null/again"
    assert [str(fault) for fault in machine.check_disk(cfg, 1000)] == [
        "hydra.run.dir=/dev/null/again must be a folder that can be written to; use another"
    ]
