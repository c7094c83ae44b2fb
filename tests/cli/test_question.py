"""The question that a sweep answers: checked before step 1, recorded before the first run, and no part of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from diffusion_lab.cli.config import conf_dir, config_hash
from diffusion_lab.cli.main import main
from diffusion_lab.cli.question import question_of, words
from diffusion_lab.cli.validate import check
from diffusion_lab.runs.names import SWEEP
from diffusion_lab.runs.record import read_question, write_sweep
from hydra_plugins.diffusion_lab_launcher._jobs import Job, name_jobs

ASKED = ["question.metric=fid", "question.estimand=training", "question.margin=1.2"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("question.metric=fif", "question.metric=fif must be one of fid, kid"),
        ("question.metric=psnr", "question.metric=psnr must be one of fid, kid"),
        ("question.estimand=middle", "question.estimand=middle must be one of end, training"),
        ("question.margin=1.0", "question.margin=1.0 must be a number > 1; use question.margin=1.1"),
        ("question.seeds=0", "question.seeds=0 must be an integer >= 1 or null"),
        ("+question.seed=3", "question.seed: there is no setting question.seed"),
    ],
)
def test_what_cannot_be_asked_is_refused(composed, typed: str, said: str) -> None:
    (fault,) = map(str, check(composed(typed)))
    assert fault.startswith(said), fault


@pytest.mark.parametrize("typed", ["question.metric=fid", "question.metric=val/loss"])
def test_what_is_measured_can_be_asked_for(composed, typed: str) -> None:
    assert check(composed(typed)) == []


def test_a_run_that_measures_nothing_is_valid_whatever_its_preset_asks(composed) -> None:
    cfg = composed("metrics=none", "question.metric=fid")
    assert check(cfg) == [] and question_of([cfg])["metric"] is None and question_of([cfg])["samples"] is None


def test_a_metric_that_was_typed_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "question.metric=fid", "metrics=none", "dry_run=true"]) == 2
    said = capsys.readouterr().err
    assert "question.metric=fid must be one of val/loss" in said and "use question.metric=val/loss" in said


def test_what_is_recorded(composed) -> None:
    cfgs = [composed(*ASKED, f"seed={seed}") for seed in (0, 1, 2, 0)]
    asked = question_of(cfgs)
    assert asked == {"metric": "fd1k_digits", "estimand": "training", "margin": 1.2, "seeds": 3, "samples": 1000}
    assert words(asked) == "fd1k_digits over training; equal up to a ratio of 1.2; 3 seeds, 1,000 samples"
    assert question_of([composed("question.seeds=5", "question.metric=val/loss")]) == {
        "metric": "val/loss",
        "estimand": "end",
        "margin": 1.1,
        "seeds": 5,
        "samples": 1000,
    }
    two = [composed("question.metric=fid"), composed("question.metric=fid", "metrics.num_samples=2000")]
    assert question_of(two)["metric"] is None and question_of(two)["samples"] is None


@pytest.mark.parametrize("metric", ["bits_per_dim", "excess_loss"])
def test_a_loss_that_is_a_metric_may_decide(composed, metric: str) -> None:
    cfg = composed(f"metrics.names=[fid,{metric}]", f"question.metric={metric}", "metrics.num_samples=200")
    assert check(cfg) == [] and question_of([cfg])["metric"] == f"{metric}200"


def test_by_default_the_first_metric_decides(composed, tmp_path: Path) -> None:
    of = [composed("dataset=image_folder", f"dataset.source.root={tmp_path}", f"seed={seed}") for seed in (0, 1)]
    assert question_of(of)["metric"] == "fd1k_own"
    assert question_of([*of, composed()])["metric"] is None
    other = [composed("metrics.names=[sample_variance,kid]"), composed("question.metric=copying")]
    assert [question_of([cfg])["metric"] for cfg in other] == ["kd1k_digits", "copying1k"]
    assert question_of([composed("metrics=none")])["metric"] is None


def test_a_metric_that_is_not_defined_for_the_model_is_refused(composed) -> None:
    (fault,) = map(str, check(composed("metrics.names=[fid,excess_loss]", "schedule=laplace")))
    words = "metrics.names=[excess_loss] must have a schedule with log SNRs from -5.75 to 5.75, and this one has -10.1"
    assert fault.startswith(words)


def test_the_question_is_no_part_of_a_run(composed) -> None:
    assert config_hash(composed(*ASKED)) == config_hash(composed())


def test_the_first_question_of_a_sweep_stays(tmp_path: Path) -> None:
    first, second = {"metric": "fd1k_digits", "margin": 1.1}, {"metric": "kd1k_digits", "margin": 1.1}
    assert write_sweep(tmp_path, "a", [{"dir": "x"}]) is None
    assert write_sweep(tmp_path, "b", [{"dir": "y"}], first) == first
    assert write_sweep(tmp_path, "c", [{"dir": "z"}], second) == first
    content = json.loads((tmp_path / SWEEP).read_text())
    assert content["question"] == first and len(content["jobs"]) == 3


def test_a_trial_states_no_number_of_seeds(tmp_path: Path) -> None:
    """Of a sweep with one seed, then two, then five and eight: five."""
    asked = {"metric": "fd1k_digits", "estimand": "end"}
    found = [write_sweep(tmp_path, "a", [], asked | {"seeds": seeds}) for seeds in (1, 2, 5, 8)]
    assert found == [asked | {"seeds": seeds} for seeds in (1, 2, 5, 5)]
    assert write_sweep(tmp_path, "a", [], {"metric": "kd1k_digits", "seeds": 8}) == found[-1]


def test_the_seeds_of_a_trial_count(tmp_path: Path) -> None:
    """One seed, then four others: five."""
    for number, seeds in ((1, [0]), (5, [1, 2, 3, 4])):
        jobs = [{"dir": f"{i}", "overrides": ["sampler=uniform", f"seed={i}"]} for i in seeds]
        found = write_sweep(tmp_path, "a", jobs, {"metric": "fd1k_digits", "seeds": len(seeds)})
        assert found and found["seeds"] == number


def test_a_trial_may_become_a_race(tmp_path: Path) -> None:
    """With the number of seeds of the race, whatever the trial had, so that its report has no verdicts for a number."""
    asked = {"metric": "fd1k_digits", "estimand": "end"}
    write_sweep(tmp_path, "a", [{"dir": "x", "overrides": ["seed=7"]}], asked | {"seeds": 1})
    race = asked | {"seeds": 4, "stopping": "race", "alpha": 0.1}
    jobs = [{"dir": f"{seed}", "overrides": [f"seed={seed}"]} for seed in range(4)]
    assert write_sweep(tmp_path, "b", jobs, race) == race == read_question(tmp_path)


def test_a_race_of_two_seeds_and_a_trial_without_a_metric(tmp_path: Path) -> None:
    """The first stays what it was; the second takes the metric of what follows it."""
    race = {"metric": "fd1k_digits", "seeds": 2, "stopping": "race", "alpha": 0.05}
    write_sweep(tmp_path / "a", "a", [], race)
    assert write_sweep(tmp_path / "a", "b", [], {"metric": "fd1k_digits", "seeds": 5}) == race
    write_sweep(tmp_path / "b", "a", [], {"metric": None, "seeds": 1})
    assert write_sweep(tmp_path / "b", "b", [], {"metric": "fid", "seeds": 5}) == {"metric": "fid", "seeds": 5}


def test_a_sweep_writes_its_question_and_a_command_with_another_one_is_told(composed, tmp_path: Path, capsys) -> None:
    def command(*overrides: str) -> str:
        cfgs = [composed("question.metric=fid", *overrides, f"seed={seed}") for seed in (0, 1)]
        with open_dict(cfgs[0]):
            cfgs[0].hydra = HydraConfig.instance().cfg.hydra
        name_jobs(tmp_path, ["train", "-m"], [Job(i, [], cfg, tmp_path / f"{i}") for i, cfg in enumerate(cfgs)])
        return capsys.readouterr().out

    assert command() == ""
    first = {"metric": "fd1k_digits", "estimand": "end", "margin": 1.1, "seeds": 2, "samples": 1000}
    assert json.loads((tmp_path / SWEEP).read_text())["question"] == first
    assert command() == ""
    assert "keeps the first" not in command("question.seeds=5") + command()
    first |= {"seeds": 5}
    assert f"keeps the first: {json.dumps(first)}" in command("question.seeds=8")
    said = command("question.estimand=training")
    assert said.startswith("question: fd1k_digits over training;") and f"keeps the first: {json.dumps(first)}" in said
    assert json.loads((tmp_path / SWEEP).read_text())["question"] == first


def test_a_preset_that_sweeps_methods_and_measures_says_what_decides() -> None:
    """Those without are named here with the reason."""
    without = {
        "demo_analyses.yaml",  # for analyses
        "samplers_digits.yaml",  # pictures of distributions
        "figure1.yaml",  # losses and pictures, as the figure
        "figure1_base.yaml",
        "predictions.yaml",  # measured by the table
        "super_resolution.yaml",
    }
    texts = {path.name: path.read_text() for path in (conf_dir() / "experiment").rglob("*.yaml")}
    inherits = {name for name, text in texts.items() if "- /experiment/" in text}
    assert {name for name, text in texts.items() if "\nquestion:" not in text} - inherits == without
