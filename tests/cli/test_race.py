"""`diffusion-lab race`: seeds in blocks, its page a function of the runs, and what is no race refused."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hydra.core.utils import JobReturn
from omegaconf import OmegaConf

from diffusion_lab import racing
from diffusion_lab.cli.commands.race import _fault, translated
from diffusion_lab.cli.conf_folder import conf_dir, yaml_file
from diffusion_lab.cli.errors import ConfigError, JobsFailed
from diffusion_lab.cli.main import main
from diffusion_lab.cli.race_page import (
    Field,
    Values,
    check_folder,
    has_ended,
    page,
    question_of_race,
    short_names,
    where_they_stand,
)
from diffusion_lab.racing import Standing, gaps
from diffusion_lab.reports import make_report, read_runs, sections_of
from diffusion_lab.reports.pages.notes import next_command
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome
from hydra_plugins.diffusion_lab_launcher.launcher import job_return
from hydra_plugins.diffusion_lab_sweeper import race as race_sweeper
from hydra_plugins.diffusion_lab_sweeper.race import RaceSweeper, methods_and_seeds
from tests.harness import Child

WORDS = [
    *("race", "sampler=uniform,mode,beta", "seed=0..3", "name=race", "max_steps=4", "snapshot_every=2", "log_every=2"),
    *("metrics_every=0", "metrics.names=[fid]", "metrics.num_samples=128", "network.base_channels=8", "threads=1"),
    *("network.channel_multipliers=[1,2]", "schedule.num_timesteps=40", "solver.steps=2", "trainer.accelerator=cpu"),
    *("batch_size=16", "dataset.val_images=32", "checkpoint_every=4"),
]


def race(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a race in a process of its own."""

    def work() -> None:
        os.chdir(folder)
        raise SystemExit(main([*WORDS, *words]))

    child = Child(work, folder / "log")
    return child.wait(), child.log.read_text()


def finished(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/race/*/result.json"))


@pytest.mark.slow
def test_a_race_stopped_anywhere_ends_with_the_same_page(tmp_path: Path) -> None:
    code, said = race(tmp_path)
    assert code == 0, said
    path = tmp_path / "runs/race/race.md"
    whole, runs = path.read_text(), finished(tmp_path)
    assert whole.count("\n| `sampler=") == 3 and "4 seeds" in whole and "leads" in whole
    assert (
        6 <= len(runs) <= 12
        and said.count("written to")
        == max(len([one for one in runs if f"-{name}-" in one.parent.name]) for name in ("uniform", "mode", "beta")) - 1
    )
    times = {one: one.stat().st_mtime_ns for one in runs}
    path.unlink()
    assert race(tmp_path)[0] == 0 and path.read_text() == whole
    assert {one: one.stat().st_mtime_ns for one in finished(tmp_path)} == times  # nothing was trained
    lost = runs[len(runs) // 2].parent  # as if the race had been killed before this run
    shutil.rmtree(lost)
    path.unlink()
    assert race(tmp_path)[0] == 0 and path.read_text() == whole and finished(tmp_path) == runs
    question = json.loads((tmp_path / "runs/race/sweep.json").read_text())["question"]
    assert question["seeds"] == 4 and question["stopping"] == "race" and question["alpha"] == 0.05
    runs = read_runs(tmp_path / "runs/race")
    report = make_report(runs, sections_of(runs.runs, recorded=runs.questions))
    (part,) = report.parts
    assert "These runs are a race" in part.table.answer and "verdict" not in part.table.titles
    command, why = next_command(report.folder, part.section.groups, part.section.metric)
    assert "seed=" not in command and why == "the same, by another metric"


@pytest.mark.parametrize(
    ("word", "as_train_has_it"),
    [
        ("seed=0..3", "seed=0,1,2,3"),
        ("seed=5..2", "seed=5..2"),
        ("seed=3,4", "seed=3,4"),
        ("margin=null", "hydra.sweeper.margin=null"),
        ("hours=6", "hydra.sweeper.hours=6"),
        ("alpha=0.1", "hydra.sweeper.alpha=0.1"),
        ("sampler=uniform,mode", "sampler=uniform,mode"),
        ("--config-dir", "--config-dir"),
    ],
)
def test_its_own_words_are_settings_of_the_sweeper(word: str, as_train_has_it: str) -> None:
    assert translated(word) == as_train_has_it


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("margin=1.1,1.2", "margin=1.1,1.2 must be one value, as the race is one; use e.g. margin=1.1"),
        ("hours=1,2", "hours=1,2 must be one value"),
        ("budget=6h", "budget=6h: there is no setting budget; use hours=6"),
        ("question.seeds=5", "question.seeds=5 must be left out, because a race sets it"),
        ("question.stopping=rase", "question.stopping=rase must be left out"),
        ("question.alpha=0.1", "question.alpha=0.1 must be left out, because a race sets it; use seed=0..9 and alpha="),
        ("alpha=0.05,0.1", "alpha=0.05,0.1 must be one value"),
        ("aplha=0.1", "aplha: there is no setting aplha (did you mean 'alpha'?); `diffusion-lab race --help` lists"),
        ("--config-dir", "--config-dir must have a value, and is the last word"),
    ],
)
def test_words_that_cannot_be_those_of_a_race_are_refused(
    word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["race", "sampler=uniform,mode", "seed=0..3", word]) == 2
    assert capsys.readouterr().err.startswith(f"config error: {message}")


def test_no_setting_of_a_training_is_taken_for_a_misspelled_one_of_a_race() -> None:
    conf = conf_dir()
    names = [*yaml_file(conf / "train.yaml"), *(path.name for path in conf.iterdir() if path.is_dir())]
    assert len(names) > 40 and [name for name in names if _fault([f"{name}=x"])] == []
    assert _fault(["--config-dir", "alphas"]) is None


def test_jobs_are_methods_and_seeds() -> None:
    jobs = [["sampler=a", "seed=0"], ["sampler=a", "seed=1"], ["sampler=b", "seed=0"], ["sampler=b", "seed=1"]]
    assert methods_and_seeds(jobs) == ([("sampler=a",), ("sampler=b",)], [0, 1])


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([["sampler=a", "seed=0"], ["sampler=a", "seed=1"]], "race must have two methods or more"),
        ([["sampler=a", "seed=0"], ["sampler=b", "seed=0"]], "seed=0 must be two seeds or more"),
        ([["sampler=a"], ["sampler=b"]], "seed= must be two seeds or more"),
        ([["sampler=a", "seed=5..2"], ["sampler=b", "seed=5..2"]], "seed=5..2 must be integers >= 0"),
        ([[f"sampler={a}", f"seed={n}"] for a in "ab" for n in (-1, 0, 1)], "seed=-1,0,1 must be integers >= 0"),
        (
            [[f"sampler={a}", f"seed={n}"] for a in "ab" for n in (0, 0)],
            "seed=0,0 must be two seeds or more, each once",
        ),
    ],
)
def test_what_is_no_race_is_refused(jobs: list[list[str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        methods_and_seeds(jobs)


@pytest.mark.parametrize(
    ("key", "value"), [("margin", 1.0), ("margin", math.inf), ("margin", "abc"), ("hours", 0.0), ("hours", True)]
)
def test_margin_and_hours_are_in_their_ranges(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"hydra\.sweeper\.{key}={value} must be a number >"):
        RaceSweeper(**{key: value})


@pytest.mark.parametrize("alpha", [0.0, 0.019, 0.21, math.nan, True, "five"])
def test_alpha_is_in_its_range(alpha: object) -> None:
    with pytest.raises(ConfigError, match=rf"hydra\.sweeper\.alpha={alpha} must be a number from 0.02 to 0.2"):
        RaceSweeper(**{"alpha": alpha})


def test_a_race_without_a_metric_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    code, said = race(tmp_path, "metrics.names=[]")
    assert code == 2 and "metric" in said and not (tmp_path / "runs").exists(), said


@pytest.mark.parametrize("metric", ["val/loss", "precision"])
def test_what_is_not_compared_by_ratios_is_refused_before_anything_is_trained(metric: str, tmp_path: Path) -> None:
    code, said = race(tmp_path, "metrics.names=[fid,precision]", f"question.metric={metric}")
    assert code == 2 and f"question.metric={metric} must be a metric that is compared by ratios" in said, said
    assert not (tmp_path / "runs").exists()


def test_a_folder_keeps_the_seeds_the_error_and_the_metric_of_its_race(tmp_path: Path) -> None:
    field = Field(tmp_path, [("a",), ("b",)], [0, 1, 2, 3], 1.1, 0.05)
    check_folder(field, "fd1k_digits")  # nothing is there
    trial = {"metric": "fd1k_digits", "seeds": 2}  # decides nothing
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": [], "question": trial}))
    check_folder(field, "fd1k_digits")
    with pytest.raises(ConfigError, match="question.metric=kid1k_digits must be fd1k_digits"):
        check_folder(field, "kid1k_digits")
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": [], "question": trial | {"seeds": 3}}))
    with pytest.raises(ConfigError, match=f"name={tmp_path.name} must not be the folder of a sweep whose number"):
        check_folder(field, "fd1k_digits")
    other = {"metric": "fd1k_digits", "seeds": 3, "stopping": "race"}  # also before its first block has ended
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": [], "question": other}))
    with pytest.raises(ConfigError, match="seed=0,1,2,3 must be the 3 seeds with which the race in .* began"):
        check_folder(field, "fd1k_digits")
    question = {"metric": "fd1k_digits", "seeds": 4, "stopping": "race"}
    for recorded in (question, question | {"alpha": 0.05}):  # the first as before there was alpha
        (tmp_path / "sweep.json").write_text(json.dumps({"jobs": [], "question": recorded}))
        check_folder(field, "fd1k_digits")
        with pytest.raises(ConfigError, match=r"alpha=0.1 must be 0.05, with which the race in .* began"):
            check_folder(field._replace(alpha=0.1), "fd1k_digits")


def test_the_error_is_recorded_to_its_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the same command would be refused when it goes on."""
    words = list[str]()

    class Launcher:
        def launch(self, jobs: list[list[str]], initial_job_idx: int) -> list[object]:
            words.extend(jobs[0])
            raise InterruptedError

    sweeper = RaceSweeper(alpha=1 / 30)
    sweeper.launcher, sweeper.config = Launcher(), OmegaConf.create({"hydra": {"sweep": {"dir": "runs/race"}}})
    jobs = [[f"sampler={a}", f"seed={n}"] for a in "ab" for n in (0, 1)]
    monkeypatch.setattr(sweeper, "_jobs", lambda arguments: jobs)
    monkeypatch.setattr(sweeper, "_check_question", lambda field: None)
    with pytest.raises(InterruptedError):
        sweeper.sweep([])
    (alpha,) = [float(word.partition("=")[2]) for word in words if word.startswith("question.alpha=")]
    assert alpha == 1 / 30


@pytest.mark.parametrize(
    "statuses", [["failed", "not started", "not started", "not started"], ["done", "done", "done", "failed"]]
)
def test_jobs_that_were_not_started_have_lost_nothing(statuses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With fail_fast the first failure ends the race, and no method is out whose job was only to be started."""

    class Launcher:
        fail_fast = True

        def launch(self, jobs: list[list[str]], initial_job_idx: int) -> list[JobReturn]:
            found = [job_return(Outcome(job(), status)) for _, status in zip(jobs, statuses, strict=True)]
            assert not initial_job_idx, "a further block was begun"
            return found

    def job() -> Job:
        return Job(0, [], OmegaConf.create({"hydra": {}}), Path("x"))

    sweeper = RaceSweeper()
    sweeper.launcher, sweeper.config = Launcher(), OmegaConf.create({"hydra": {"sweep": {"dir": "runs/race"}}})
    monkeypatch.setattr(sweeper, "_jobs", lambda _: [[f"sampler={a}", f"seed={n}"] for a in "ab" for n in (0, 1)])
    monkeypatch.setattr(sweeper, "_check_question", lambda field: None)
    monkeypatch.setattr(sweeper, "_look", lambda *_: pytest.fail("it was judged"))
    with pytest.raises(JobsFailed):
        sweeper.sweep([])


def test_a_race_by_a_loss_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "race"
    folder.mkdir()
    for question in ({"metric": None}, {"metric": "val/loss"}):
        (folder / "sweep.json").write_text(json.dumps({"jobs": [], "question": question}))
        with pytest.raises(ConfigError, match="must be a metric that the runs measure, because a loss does not decide"):
            question_of_race(folder)


def field_of(*rows: tuple[str, ...], seeds: int = 5, alpha: float = 0.05) -> Field:
    return Field(Path("runs/race"), list(rows), list(range(seeds)), 1.1, alpha)


def values(y: list[list[float]], failed: dict[int, int] | None = None) -> Values:
    array = np.array([[math.log(one) if one else 0.0 for one in row] for row in y])
    there = np.array([[one != 0 for one in row] for row in y])
    return Values(array, there, failed or {}, 60.0)


def test_the_page_says_who_lost_to_whom() -> None:
    field = field_of(("sampler=a", "x=1"), ("sampler=b", "x=1"), ("sampler=c", "x=1"), seeds=3)
    found = values([[1.0, 1.1, 1.05], [1.5, 1.64, 0], [9.0, 9.9, 0]])
    lines = page(field, found, {"metric": "fd1k_digits", "estimand": "training"})
    assert lines[1].startswith("fd1k_digits over training, at most 3 seeds")
    assert lines[3] == "| `sampler=a` | 3 | 1.000 |  | leads |"
    b, c = ([cell.strip() for cell in line.split("|")] for line in lines[4:])
    assert b[1:4] == ["`sampler=b`", "2", "1.495"] and c[1:4] == ["`sampler=c`", "2", "9.000"]
    apart = gaps(found.y, found.there, 3, leader=0)[2]
    ends = [math.exp(apart.size - apart.half), math.exp(apart.size + apart.half)]
    assert c[4] == f"[{ends[0]:.3g}, {ends[1]:.3g}]" and c[5].startswith("worse than `sampler=a`") and ends[0] > 1


def test_with_a_larger_error_intervals_are_narrower_and_rows_leave_earlier() -> None:
    rows, found = [("sampler=a",), ("sampler=b",)], values([[1.0, 1.1, 1.05, 1], [1.2, 1.3, 1.35, 1.1]])
    strict, lax = (field_of(*rows, seeds=4, alpha=alpha)._replace(margin=None) for alpha in (0.02, 0.2))
    question = {"metric": "fd1k_digits"}
    assert "with an error of 2 %" in page(strict, found, question)[1]
    lines = page(lax, found, question)
    assert "with an error of 20 %" in lines[1] and "80 % interval" in lines[2]
    (_, before), (_, after) = (where_they_stand(field, found) for field in (strict, lax))
    assert before == Standing() and after is not None and after.word == "worse"
    widths = [gaps(found.y, found.there, 4, 0, alpha)[1].half for alpha in (0.02, 0.05, 0.2)]
    assert widths == sorted(widths, reverse=True) and widths[0] > 1.2 * widths[2]


def test_a_failed_method_is_out_and_the_others_go_on() -> None:
    field = field_of(("sampler=a",), ("sampler=b",), ("sampler=c",), seeds=3)
    found = values([[1.0, 1.1, 0], [0, 1.6, 0], [1.3, 1.2, 0]], {1: 0})
    stand = where_they_stand(field, found)
    assert stand[1] is None and {stand[0], stand[2]} <= {Standing(), *(s for s in stand if s and s.by in (0, 2))}
    assert "failed with seed 0" in "\n".join(page(field, found, {"metric": "fid"}))


def test_a_race_that_has_ended_leaves_no_method_in_it() -> None:
    field = field_of(("sampler=a",), ("sampler=b",), seeds=4)
    question = {"metric": "fid"}
    told = values([[1.0, 1.1, 0, 0], [1.4, 1.1, 0, 0]])
    assert not has_ended(field, told) and page(field, told, question)[-1].endswith("| in the race |")
    for ended in (
        values([[1.0, 1.2, 1.1, 1.0], [1.1, 1.1, 1.1, 1.1]]),  # no seeds are left
        values([[1.0, 1.1, 1.0, 0], [1.15, 1.15, 1.25, 0]]),  # or they would hardly matter
    ):
        lines = page(field, ended, question)
        assert has_ended(field, ended) and lines[-1].endswith("| undecided |") and lines[3].endswith("| leads |")
        assert "would improve the choice by less than 0.48 % on average" in lines[1]
    whole = field._replace(margin=None)
    assert not has_ended(whole, ended) and "on average" not in page(whole, ended, question)[1]


def test_the_sweeper_and_the_statistic_look_first_after_equally_many_seeds() -> None:
    assert race_sweeper.FIRST == racing.FIRST


def test_methods_are_named_by_what_differs() -> None:
    assert short_names([("sampler=a", "x=1"), ("sampler=b", "x=1")]) == ["sampler=a", "sampler=b"]
