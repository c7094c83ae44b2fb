"""`diffusion-lab show RUN_DIR`, and distributions of a file in a run folder that is not trusted."""

import json

import pytest
import torch

from diffusion_lab.cli.config import compose_train, config_hash, plain
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.main import main
from diffusion_lab.cli.same_run import check_same_run
from diffusion_lab.cli.untrusted_run import recorded_config, resume_overrides
from diffusion_lab.distribution_file import read_distribution
from diffusion_lab.training.checkpoint_io import save

T = 40
SMALL = (f"schedule.num_timesteps={T}", "schedule=cosine")


def written(path, first):
    path.write_text("\n".join(map(str, [first] + [1.0] * (T - 1))))
    return f"sampler.path={path}"


def trained(folder, history):
    """A run as training leaves it: its record, and a checkpoint with the sampler's state."""
    cfg = plain(compose_train(["sampler=loss_second_moment", "sampler.history_per_timestep=3", *SMALL], folder))
    folder.mkdir(parents=True)
    split = {"images": 100, "fingerprint": "0", "labels": None}
    data = {"name": "digits", "shape": [1, 8, 8], "train": split, "test": split, "classes": None}
    (folder / "run.json").write_text(json.dumps({"config": cfg, "config_hash": "0", "data": data}))
    state = {"history": history, "count": torch.full((T,), 3)}
    callbacks = {"RunRecord": {"config": cfg}, "TimestepSampling/LossSecondMoment": state}
    weighting = {"weighting.factor": torch.ones(())}
    content = {"state_dict": weighting, "callbacks": callbacks, "global_step": 9}
    save(content, folder / "checkpoints" / "step-00000009.ckpt")


def test_a_changed_file_is_another_run_and_is_refused_on_resume(tmp_path):
    words = ["sampler=from_file", *SMALL]
    before = compose_train([*words, written(tmp_path / "p", 1.0)], tmp_path / "run")
    saved, name = json.loads(json.dumps(plain(before))), config_hash(before)
    check_same_run(before, saved, 0)
    after = compose_train([*words, written(tmp_path / "p", 2.0)], tmp_path / "run")
    assert config_hash(after) != name
    with pytest.raises(InvalidConfig, match=r"sampler\.probabilities=.* must equal the checkpoint's"):
        check_same_run(after, saved, 0)


@pytest.mark.parametrize("wrapped", [(), ("stratified",), ("stratified", "mixture")])
def test_the_place_of_the_file_is_not_in_the_hash(tmp_path, wrapped):
    hashes = []
    for name in ("a", "b"):
        node = "sampler" + ".base" * len(wrapped)
        groups = ["sampler", *(f"sampler@sampler{'.base' * (i + 1)}" for i in range(len(wrapped)))]
        words = [f"{group}={option}" for group, option in zip(groups, [*wrapped, "from_file"], strict=True)]
        path = written(tmp_path / name, 1.0).replace("sampler", node, 1)
        hashes.append(config_hash(compose_train([*words, *SMALL, path], tmp_path / "run")))
    assert hashes[0] == hashes[1]


def test_a_foreign_folder_makes_nothing_read_a_file(tmp_path):
    path = written(tmp_path / "p", 1.0)
    saved = json.loads(json.dumps(plain(compose_train(["sampler=from_file", *SMALL, path], tmp_path / "run"))))
    saved["sampler"]["probabilities"] = "${numbers_of:/etc/hostname}"
    with pytest.raises(ConfigError, match="holds no reference"):
        recorded_config(saved)
    with pytest.raises(ConfigError, match="lies outside of the folder"):
        resume_overrides(tmp_path / "run", ["sampler=from_file", path], [])


def test_no_message_quotes_the_file(tmp_path, capsys):
    (tmp_path / "key").write_text("secret\n")
    assert main(["show", "sampler=from_file", f"sampler.path={tmp_path / 'key'}"]) == 2
    error = capsys.readouterr().err
    assert "has no number in line 1" in error and "secret" not in error
    with pytest.raises(ValueError, match="line 1"):
        read_distribution(tmp_path / "key")


def test_a_run_shows_what_its_sampler_has_learned_beside_step_0(tmp_path, capsys):
    """p of timestep t is in proportion to sqrt(mean of its squared losses), beside the share that stays uniform."""
    loss = torch.linspace(1, 5, T, dtype=torch.float64)
    trained(tmp_path / "run", loss[:, None].expand(T, 3).contiguous())
    assert main(["show", str(tmp_path / "run")]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    p = {n: torch.tensor([float(r[3]) for r in rows if r[0] == n and len(r) == 6]) for n in ("step 9", "step 0")}
    expected = 0.999 * loss / loss.sum() + 0.001 / T
    assert torch.allclose(p["step 9"].double(), expected.view(20, -1).sum(1), rtol=1e-5)
    assert torch.allclose(p["step 0"], torch.full((20,), 1 / 20), rtol=1e-5)


def test_a_checkpoint_of_other_parts_is_one_sentence(tmp_path, capsys):
    trained(tmp_path / "run", torch.ones(T + 1, 3))
    assert main(["show", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "must have a checkpoint of its own parts" in error and error.count("\n") == 1
