"""`train init_from=`: a run that starts from trained weights."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.load import load_run
from diffusion_lab.cli.main import main
from diffusion_lab.training.checkpoint_io import load, save
from tests.cli.test_foreign_folders import CONFIGURATIONS, Payload, change, refused
from tests.harness import TINY, Child, configuration, differences, final_state, train_child, wait_for_step

SMALL = [*TINY, "solver.steps=20"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of six steps with snapshots."""
    folder = tmp_path_factory.mktemp("source") / "run"
    train_child(configuration(folder, "max_steps=6", "keep_every=3")).succeed()
    return folder


@pytest.fixture
def source(trained: Path, in_folder: Path) -> Path:
    """A copy of it in the working folder."""
    shutil.copytree(trained, in_folder / "source")
    return Path("source")


def command(*words: str) -> int:
    """The exit code of `diffusion-lab train` with a tiny network, in a child."""
    return Child(lambda: exit_with(["train", *SMALL, *words]), Path("log")).wait()


def exit_with(words: list[str]) -> None:
    raise SystemExit(main(words))


def state(folder: Path | str, name: str = "last") -> dict:
    return load(Path(folder) / "checkpoints" / f"{name}.ckpt", map_location="cpu")


def model(content: dict) -> dict:
    return {k.removeprefix("denoiser."): v for k, v in content["state_dict"].items() if k.startswith("denoiser.")}


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(
    ("words", "name", "average"),
    [
        ("", "last", "0.9"),
        (":step-00000003:raw", "step-00000003", None),
        pytest.param(":raw", "last", None, marks=pytest.mark.slow),
        pytest.param(":0.99", "last", "0.99", marks=pytest.mark.slow),
    ],
)
def test_no_step_from_its_own_checkpoint_gives_equal_weights(words, name, average, trained, tmp_path):
    """And the averages start there; the optimizer is fresh."""
    folder = tmp_path / "run"
    train_child(configuration(folder, "max_steps=0", f"init_from={trained}{words}")).succeed()
    theirs, ours = state(trained, name), state(folder)
    expected = model(theirs) | ({} if average is None else theirs["callbacks"]["EMA"][average])
    assert equal(model(ours), expected) and ours["global_step"] == 0
    parameters = ours["callbacks"]["EMA"]["0.9"]
    assert all(equal(kept, {key: expected[key] for key in parameters}) for kept in ours["callbacks"]["EMA"].values())
    assert ours["optimizer_states"][0]["state"] == {}
    recorded = json.loads((folder / "run.json").read_text())["config"]["init_from"]
    loaded = load_run(trained, name, words.rpartition(":")[2] or "ema").identity()
    assert {key: recorded[key] for key in ("config_hash", "step", "weights", "digest")} == {
        key: loaded[key] for key in ("config_hash", "step", "weights", "digest")
    }
    assert json.loads((folder / "result.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_killed_and_resumed_is_the_same_to_the_bit_also_without_the_source(source):
    """The source is moved before the run is resumed, and the path in its options is not read."""
    more = ["init_from=source:raw", "max_steps=8", "seed=3", "solver.steps=20"]
    train_child(configuration(Path("whole"), *more)).succeed()
    child = Child(lambda: exit_with(["train", *SMALL, *more, "hydra.run.dir=cut"]), Path("log"))
    wait_for_step(child, Path("cut"), 5)
    child.kill()
    source.rename("elsewhere")
    assert command(*more, "hydra.run.dir=other") == 2
    Child(lambda: exit_with(["train", "resume=cut"]), Path("log")).succeed()
    assert differences(final_state(Path("whole")), final_state(Path("cut"))) == []
    recorded = json.loads(Path("cut/run.json").read_text())["config"]["init_from"]
    assert recorded["source"] == "source:raw" and recorded["weights"] == "raw"
    Child(lambda: exit_with(["train", "resume=cut", "max_steps=10"]), Path("log")).succeed()  # its options once more
    assert state("cut")["global_step"] == 10


@pytest.mark.slow
def test_a_run_is_not_the_one_without_a_start_and_starts_at_step_0(trained, tmp_path):
    """The first batches, noises and timesteps are those of any run of this seed; the weights are not."""
    lines = {}
    for name, more in {"fresh": [], "started": [f"init_from={trained}:raw"]}.items():
        train_child(configuration(tmp_path / name, "max_steps=1", *more)).succeed()
        lines[name] = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines["fresh"]] == [line["step"] for line in lines["started"]]
    keys = [key for key in lines["fresh"][0] if key.startswith("timesteps")]
    assert all(lines["fresh"][0][key] == lines["started"][0][key] for key in keys)
    assert lines["fresh"][0]["train/loss"] != lines["started"][0]["train/loss"]


def test_the_hash_is_of_the_weights_and_not_of_their_place(source, in_folder):
    cfg = configuration(Path("run"), "max_steps=6")

    def hashed(start: str | None) -> str:
        cfg.init_from = start
        return config_hash(cfg)

    plain, ours = hashed(None), hashed("source")
    shutil.copytree(source, "copy")
    assert hashed("copy") == hashed(f"{in_folder}/source:last:ema") == ours
    others = {hashed(f"source{words}") for words in (":raw", ":step-00000003", ":0.99")}
    assert len(others | {plain, ours}) == 5
    content = state("copy")
    content["callbacks"]["EMA"]["0.9"]["network.conv_out.bias"] += 1
    save(content, "copy/checkpoints/last.ckpt")
    assert not {hashed("copy"), hashed("copy:raw")} & (others | {ours})


def test_another_head_and_other_classes_are_named_and_the_rest_is_loaded(source, capfd):
    words = ["init_from=source:raw", "max_steps=0", "prediction=combined", "dataset.conditional=true"]
    assert command(*words, "hydra.run.dir=run") == 0
    log, theirs, ours = Path("log").read_text(), model(state(source)), model(state("run"))
    recorded = json.loads(Path("run/run.json").read_text())["config"]["init_from"]["not_loaded"]
    assert recorded in log and "which keep their initial values" in recorded
    names = {name for name in theirs if name.startswith("network.") and torch.equal(theirs[name], ours[name])}
    network = {name for name in ours if name.startswith("network.")}
    assert all(name in recorded for name in network - names)
    assert {name for name in network - names} == {name for name in network if "conv_out" in name or "label" in name}
    assert recorded.startswith(f"{len(names)} tensors are loaded, all but ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["init_from=source", "network.base_channels=16"],
            "tensors do not fit: network.time.hidden.weight is (64, 16)",
        ),
        (["init_from=source", "network.channel_multipliers=[1,2,2]"], "tensors do not fit: network."),
        (["init_from=source", "network=uvit_tiny"], "tensors do not fit: network."),
        (
            ["init_from=nowhere"],
            "init_from=nowhere must be the folder of a run or a file of weights, and there is none",
        ),
        (["init_from=source:step-00000004"], "checkpoint=step-00000004 must be one of last, previous, "),
        (["init_from=source:0.5"], "weights=0.5 must be one of ema, raw, "),
        (["init_from=."], "init_from=. must be the folder of a run, with a run.json in it"),
        (["init_from=[source]"], "init_from=['source'] must be text"),
        (["init_from={digest: a}"], "must hold a checkpoint, because it started from other weights"),
        (["resume=source", "init_from=source"], "init_from=source must be left out with resume=source"),
        (["resume=source", "hydra.run.dir=x"], "hydra.run.dir=x must be left out with resume=source"),
        (["resume=source", "paths.root=x"], "paths.root=x must be left out with resume=source"),
        (["init_from=weights.pt:raw"], "init_from=weights.pt:raw must be the file alone"),
        (["init_from=evil.pt"], "evil.pt must hold tensors by name and nothing else"),
        (["init_from=list.pth"], "list.pth must hold tensors by name, and holds a list"),
        (["init_from=nan.pt"], "network.conv_out.bias must be finite"),
        (["init_from=other.pt"], "must hold the weights of this run's network"),
    ],
)
def test_what_cannot_be_a_start_is_one_sentence(words, sentence, source, capsys):
    weights = model(state(source))
    torch.save(weights, "weights.pt")
    torch.save([1], "list.pth")
    torch.save(weights | {"network.conv_out.bias": torch.tensor([torch.nan])}, "nan.pt")
    torch.save({"weight": torch.ones(3)}, "other.pt")
    Path("evil.pt").write_bytes(pickle.dumps(Payload()))
    tiny = [word for word in SMALL if not any(word.startswith(f"{w.split('=')[0]}=") for w in words)]
    tiny = [word for word in tiny if "network=uvit_tiny" not in words or not word.startswith("network.")]
    message = refused(["train", *([] if "resume=source" in words else tiny), *words, "max_steps=6"], capsys)
    assert sentence in message and len(message.splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt", "pth", "safetensors", "wrapped"])
def test_a_file_of_weights_alone(kind, source):
    """With the names of the network, or below a common prefix."""
    theirs = {k: v for k, v in model(state(source)).items() if k.startswith("network.")}
    if kind == "safetensors":
        from safetensors.torch import save_file

        save_file({k.removeprefix("network."): v.contiguous() for k, v in theirs.items()}, "weights.safetensors")
    elif kind == "wrapped":
        torch.save({"state_dict": {f"module.{k}": v for k, v in theirs.items()}, "epoch": 3}, "weights.pt")
    else:
        torch.save(theirs, f"weights.{kind}")
    file = next(Path().glob("weights.*"))
    train_child(configuration(Path("run"), "max_steps=0", f"init_from={file}")).succeed()
    ours = {k: v for k, v in model(state("run")).items() if k.startswith("network.")}
    assert equal(ours, theirs)
    recorded = json.loads(Path("run/run.json").read_text())["config"]["init_from"]
    assert (recorded["weights"], recorded["config_hash"], recorded["not_loaded"]) == ("file", None, None)


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_the_folder_of_a_source_executes_nothing(case, source, capsys):
    (Path("evil.npy")).write_bytes(pickle.dumps(Payload()))
    change(source, CONFIGURATIONS[case])
    refused(["train", *SMALL, "init_from=source", "max_steps=6"], capsys)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused_and_no_other_takes_its_place(source):
    """Its end, which counts in the hash, is whole: the weights of another file would have the name of these."""
    last = source / "checkpoints" / "last.ckpt"
    assert last.with_name("previous.ckpt").is_file()
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    assert command("init_from=source") == 2
    said = Path("log").read_text()
    assert "init_from" in said and "last.ckpt" in said and "init_from=DIR:step-00001000" in said, said


def test_a_path_in_a_record_is_not_read(source, capsys):
    """On the command line `init_from` names a file; a record that does so was not written by a run."""
    change(source, lambda record: record["config"].update(init_from="/etc/passwd"))
    for words in (["train", "resume=source"], ["sample", "run=source"], ["train", *SMALL, "init_from=source"]):
        assert "init_from=/etc/passwd in run.json must be what a run records there" in refused(words, capsys)
    assert main(["report", "source"]) == 0
    change(source, lambda record: record["config"].update(init_from=None))
    options = ["init_from=/etc/passwd", "max_steps=6", "keep_every=3", *TINY, "~callbacks.validation"]
    change(source, lambda record: record.update(overrides=options))
    assert "passwd" not in refused(["train", "resume=source"], capsys)  # only that there is no validation


@pytest.mark.slow
def test_a_sweep_over_sources(source):
    shutil.copytree(source, "again")
    more = ["-m", "init_from=source:raw,source:step-00000003:raw", "max_steps=2", "name=two"]
    assert command(*more) == 0
    folders = sorted(path.parent for path in Path("runs/two").glob("*/run.json"))
    steps = [json.loads((folder / "run.json").read_text())["config"]["init_from"]["step"] for folder in folders]
    assert sorted(steps) == [3, 6]
    assert command("-m", "init_from=again:raw,again:step-00000003:raw", *more[2:]) == 0  # the same weights: done before
    assert sorted(path.parent for path in Path("runs/two").glob("*/run.json")) == folders
