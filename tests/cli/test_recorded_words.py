"""What a command that reads a run takes over from its record: --config-dir, the metrics' names and the extractor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.cli.main import KEYED
from diffusion_lab.cli.recorded_words import with_recorded_words, words_for_train
from diffusion_lab.cli.untrusted_run import resume_overrides
from diffusion_lab.runs.record import write_record

INCEPTION = {"dataset": {"features": {"_target_": "diffusion_lab.metrics.InceptionFeatures", "weights": None}}}


def run(folder: Path, own: bool = True, names: Any = None, config: dict[str, Any] | None = None) -> str:
    """The word that names a run with a record."""
    folder.mkdir(parents=True)
    conf = folder.parent / "my conf"
    (conf / "metric").mkdir(parents=True, exist_ok=True)
    (conf / "metric" / "contrast.yaml").write_text("_target_: contrast.Contrast\n")
    metrics = {} if names is None else {"metrics": {"names": names}}
    record = {"config": metrics | (config or {}), "own_parts": {"config_dirs": [str(conf)], "modules": {}}}
    write_record(folder, record, own=own)
    return f"run={folder}"


@pytest.mark.parametrize("command", KEYED)
def test_the_config_dir_of_ones_own_run_is_not_asked_for_again(command: str, tmp_path: Path) -> None:
    word = run(tmp_path / "a")
    given = ["--config-dir", str(tmp_path / "my conf")]
    assert with_recorded_words(command, [word]) == [word, *given]
    assert with_recorded_words(command, [f"run={tmp_path}"]) == [f"run={tmp_path}", *given]  # a folder of runs
    assert with_recorded_words(command, [word, "--config-dir", "x"]) == [word, "--config-dir", "x"]
    (tmp_path / "my conf").rename(tmp_path / "gone")
    assert with_recorded_words(command, [word]) == [word]  # it may not be needed


@pytest.mark.parametrize("command", KEYED)
def test_that_of_somebody_elses_run_is_not_used_also_beside_ones_own(command: str, tmp_path: Path) -> None:
    mine, theirs = run(tmp_path / "a"), run(tmp_path / "b", own=False)
    assert with_recorded_words(command, [theirs]) == [theirs]
    for words in ([f"run=[{tmp_path}/a,{tmp_path}/b]"], [f"run={tmp_path}/a,{tmp_path}/b"], [f"run={tmp_path}"]):
        assert with_recorded_words(command, words) == words
    edited = json.loads((tmp_path / "a" / "run.json").read_text())
    edited["own_parts"]["config_dirs"] = ["/elsewhere"]
    (tmp_path / "a" / "run.json").write_text(json.dumps(edited))
    assert with_recorded_words(command, [mine]) == [mine]


def test_a_run_is_evaluated_with_its_metrics_unless_others_are_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = run(tmp_path / "a", names=["bits_per_dim", "contrast"])
    assert with_recorded_words("evaluate", [word])[-1] == "metrics.names=[bits_per_dim,contrast]"
    assert with_recorded_words("sample", [word])[-1] == str(tmp_path / "my conf")
    for typed in ("metrics=paper", "metrics.names=[fid]"):
        assert with_recorded_words("evaluate", [word, typed])[-1] == str(tmp_path / "my conf")
    assert (
        with_recorded_words("evaluate", [word, "metrics.num_samples=5"])[-1] == "metrics.names=[bits_per_dim,contrast]"
    )
    theirs = run(tmp_path / "b", own=False, names=["fid", "contrast", "a\x1b]52;c"])
    assert with_recorded_words("evaluate", [theirs]) == [theirs, "metrics.names=[fid]"]
    assert "not measured: contrast, a\\x1b]52;c, of the run" in capsys.readouterr().out
    for i, names in enumerate(([], None, "fid", [["fid"]], ["../fid"], [{}])):
        alone = run(tmp_path / f"c{i}", own=False, names=names)
        assert with_recorded_words("evaluate", [alone]) == [alone]


def test_the_weights_of_the_extractor_have_one_key_in_both_commands(tmp_path: Path) -> None:
    word, weights = run(tmp_path / "a", own=False, config=INCEPTION), "dataset.features.weights=x.pth"
    assert with_recorded_words("evaluate", [word, weights]) == ["features=inception", word, "features.weights=x.pth"]
    typed = [word, "features=dinov2", weights]
    assert with_recorded_words("evaluate", typed) == [word, "features=dinov2", "features.weights=x.pth"]
    assert words_for_train(["dataset=cifar10", "features.weights=x.pth"]) == ["dataset=cifar10", weights]
    assert words_for_train(["features=dinov2", weights]) == ["+features@dataset.features=dinov2", weights]
    assert words_for_train(["dataset.features=own"]) == ["+features@dataset.features=own"]
    assert words_for_train(["dataset.features=null"]) == ["dataset.features=null"]
    assert resume_overrides(tmp_path / "a", words_for_train(["features=dinov2"]), [], own=True) == [
        "+features@dataset.features=dinov2"
    ]
