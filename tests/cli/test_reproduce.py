"""`diffusion-lab reproduce`: what it lists and refuses, and a table from its runs to its pages, also when killed."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from diffusion_lab import progress
from diffusion_lab.cli import table_plan
from diffusion_lab.cli.commands.reproduce import _chosen
from diffusion_lab.cli.config import plain
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main
from diffusion_lab.cli.processes import in_a_process
from diffusion_lab.cli.table_files import conf_folders, load_scale, load_table, table_names
from diffusion_lab.cli.table_jobs import Jobs
from diffusion_lab.cli.table_pages import print_plan
from diffusion_lab.cli.table_plan import Plan
from diffusion_lab.failure import Failure
from diffusion_lab.files import write_json
from diffusion_lab.runs.find import read_runs
from diffusion_lab.runs.folder import is_locked
from tests.harness import Child


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(["reproduce", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_list_has_eight_tables_and_five_figures(capsys) -> None:
    code, out, _ = run(capsys, "--list")
    parts = {}
    for line in out.splitlines():
        if not line.startswith(" "):
            parts[line] = names = []
        else:
            names.append(line.split()[0])
    assert code == 0
    assert parts["tables"] == [
        *(f"adaptive_beta/table{i}" for i in (1, 2, 3, 4)),
        *(f"clts_mdlrc/table{i}" for i in (1, 2, 3)),
        "equal_loss_slots/table1",
    ]
    assert parts["figures"] == [
        "adaptive_beta/figure1",
        "adaptive_beta/figure7",
        "clts_mdlrc/figure6",
        "equal_loss_slots/figure1",
        "equal_loss_slots/predictions",
    ]
    assert {"smoke", "mini", "small", "paper"} <= set(parts["scales"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["adaptive_beta/tabel1"], "table=adaptive_beta/tabel1 must be one of .*did you mean 'adaptive_beta/table1'"),
        (["clts_mdlrc/table3", "scale=tiny"], "scale=tiny must be one of .*smoke"),
        (
            ["clts_mdlrc/table3", "--only", "our"],
            "only=our must be a row; use one of id, fdm, ours .did you mean 'ours'",
        ),
        (["clts_mdlrc/table3", "--seeds", "0,0"], "seeds=0,0 must be different integers >= 0; use e.g. --seeds 0,1,2"),
        (["clts_mdlrc/table3", "--seeds", "x"], "seeds=x must be different integers"),
        (["clts_mdlrc/table3", "method=ddpm"], "method=ddpm must be left to the rows and columns of clts_mdlrc/table3"),
        (["adaptive_beta/table1", "schedule=cosine"], "schedule=cosine must be left to the rows and columns"),
        (["clts_mdlrc/table3", "experiment=clts_mdlrc/table2"], "experiment=.* must be left to the rows"),
        (
            ["clts_mdlrc/table3", "sampler=uniform"],
            "sampler=uniform must be left to the rows and columns of clts_mdlrc",
        ),
        (["clts_mdlrc/table3", "seed=3"], "seed=3 must be left to the table; use --seeds"),
        (["clts_mdlrc/table3", "max_steps=40"], "max_steps=40 must be left to the table; use another scale"),
        (["clts_mdlrc/table3", "hydra.sweep.dir=x"], "hydra.sweep.dir=x must be left to the table; use paths.root"),
        (["clts_mdlrc/table3", "+name=x"], ".name=x must be left to the table; use paths.root"),
        (["clts_mdlrc/table3", "paths.run_dir=x"], "paths.run_dir=x must be left to the table; use paths.root"),
        (["clts_mdlrc/table3", "resume=x"], "resume=x must be left to the table; use the same command"),
        (["clts_mdlrc/table3", "hydra.sweeper.file=x"], "hydra.sweeper.file=x must be left to the table; use --only"),
        (["clts_mdlrc/table3", "--list"], "clts_mdlrc/table3 must be left out with --list"),
        (["clts_mdlrc/table3", "dry_run=1"], "dry_run=1 must be true or false; use --dry-run"),
        (["clts_mdlrc/table3", "--config-dir", "/nowhere"], "--config-dir=/nowhere must be a folder"),
        (["clts_mdlrc/table3", "--seed", "0"], "--seed must be an option of this command .did you mean '--seeds'"),
        (["clts_mdlrc/table3", "--onyl=ours"], "--onyl must be an option of this command .did you mean '--only'"),
        (["clts_mdlrc/table3", "scale=smoke", "optimizer.lrr=1"], "optimizer.lrr"),
    ],
)
def test_bad_words_are_one_sentence(capsys, words: list[str], sentence: str, tmp_path: Path) -> None:
    import re

    code, _, err = run(capsys, *words, f"paths.root={tmp_path}")
    assert code == 2
    assert re.search(sentence, err) and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_what_is_about_a_table_is_refused_without_one(capsys) -> None:
    code, out, err = run(capsys, "--seeds", "0", "--dry-run")
    assert (code, out) == (2, "") and "PAPER/TABLE must be given with --seeds; " in err and err.count("\n") == 1


WHOLE = """
title: own
kind: ablation
says: own
experiment: clts_mdlrc/table3
measure: {_target_: diffusion_lab.tables.MetricAtSteps, metric: fid}
baseline: id
columns: {c: {at: [500000]}}
rows: {id: {overrides: [method=iddpm]}}
"""


@pytest.mark.parametrize(
    ("there", "instead", "sentence"),
    [
        ("MetricAtSteps", "MetricAtStep", "has no MetricAtStep (did you mean 'MetricAtSteps'?)"),
        ("metric: fid", "metrik: fid", "measure of own/table must make a subclass of diffusion_lab.tables.Measure"),
        ("diffusion_lab.tables.MetricAtSteps, metric: fid", "builtins.dict", "must be a class of diffusion_lab or"),
        ("diffusion_lab.tables.MetricAtSteps, metric: fid", "own_measure.rejecting", "measure.size=0 must be 1"),
        ("MetricAtSteps, metric: fid", "Table", "must make a subclass of diffusion_lab.tables.Measure"),
        ("title: own", "like: own/table", "like=own/table of own/table must be another table"),
        ("columns: {c: {at: [500000]}}", "", "columns=None of own/table must be one or more names"),
    ],
)
def test_a_fault_in_a_table_of_ones_own_is_said_before_the_runs(
    capsys, tmp_path: Path, monkeypatch, there: str, instead: str, sentence: str
) -> None:
    (tmp_path / "own_measure.py").write_text("def rejecting():\n    raise ValueError('size=0 must be 1')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "conf" / "table" / "own" / "table.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(WHOLE.replace(there, instead))
    code, _, err = run(capsys, "own/table", "--config-dir", str(tmp_path / "conf"), f"paths.root={tmp_path / 'runs'}")
    assert code == 2 and sentence in err and "Traceback" not in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_dry_run_prints_the_plan_and_writes_nothing(capsys, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "clts_mdlrc/table3", "scale=smoke", "--dry-run", f"paths.root={tmp_path}")
    assert code == 0
    assert "6 runs with seeds 0 and 1; 0 of them are done" in out
    assert "schedule cosine" in out and "solver steps 4" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_papers_scale_says_what_is_missing_before_it_starts(capsys, tmp_path: Path) -> None:
    words = ["clts_mdlrc/table2", "scale=paper", f"dataset.source.root={tmp_path}/none", f"paths.root={tmp_path}"]
    code, out, err = run(capsys, *words)
    assert code == 2
    assert "GPU hours" in out and "ImageNet" in err
    assert not list(tmp_path.iterdir())


TWO_ROWS = ["clts_mdlrc/table3", "scale=smoke", "--only", "id,ours", "metrics.num_samples=128"]
PLACE = Path("reproduce", "smoke", "tables", "clts_mdlrc", "table3")


def numbers_of(root: Path) -> list[bytes]:
    return [(root / PLACE / name).read_bytes() for name in ("table.csv", "per_seed.csv")]


@pytest.fixture(scope="module")
def of_one_seed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A folder with the runs of two rows and one seed, and the table's numbers of them."""
    root = tmp_path_factory.mktemp("seed ü, 'a'=(1)")
    assert main(["reproduce", *TWO_ROWS, "--seeds", "0", f"paths.root={root}"]) == 0
    return root, numbers_of(root)


@pytest.mark.slow
def test_one_row_of_a_table_reaches_its_pages(capsys, of_one_seed: tuple[Path, list[bytes]]) -> None:
    root = of_one_seed[0]
    words = [*TWO_ROWS, f"paths.root={root}"]
    code, out, _ = run(capsys, *words)
    place = root / PLACE
    assert "4 runs with seeds 0 and 1; 2 of them are done" in out
    assert code == 0  # FDM, which was not asked for, has no numbers, which is said
    assert "FDM: seed" in out and "ID + Ours: the paper claims 2.76 against 3.32 of ID (FID, over training)" in out
    lines = list(csv.DictReader((place / "table.csv").read_text().splitlines()))
    assert [line["n"] for line in lines if line["row"] == "ours"] == ["2"] * 6  # over training too
    assert "http" not in (place / "page.html").read_text().replace("http://www.w3.org", "")
    runs = read_runs(root / "reproduce" / "smoke").runs
    assert len(runs) == 4 and all(one.status == "done" for one in runs)
    # the folders are those that the table expects: a second time nothing is trained
    code, out, _ = run(capsys, *words)
    assert "4 runs with seeds 0 and 1; 4 of them are done" in out
    # fewer seeds take none away from the page, whose command has no folder of this machine
    numbers = numbers_of(root)
    code, out, _ = run(capsys, *words, "--seeds", "0")
    assert code == 0 and "2 runs with seed 0; 2 of them are done" in out
    assert "with seed 1, which the page had before" in out
    assert numbers == numbers_of(root)
    command = "diffusion-lab reproduce clts_mdlrc/table3 scale=smoke --only=id,ours metrics.num_samples=128\n"
    assert command in (place / "table.md").read_text()


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    """One folder for all tables, in which a run that two of them have is trained once."""
    return tmp_path_factory.mktemp("shared ü, [a]=(1)")


@pytest.mark.pages
@pytest.mark.parametrize("name", table_names(conf_folders(None)))
def test_a_row_of_each_table_has_its_numbers_at_smoke_scale(capsys, name: str, shared: Path) -> None:
    table = load_table(name, conf_folders(None))
    late = next((row for row in table.rows if row.start), None)
    rows = [late.start, late.name] if late else [table.baseline or table.rows[0].name]
    words = [name, "scale=smoke", "--only", ",".join(rows), "--seeds", "0", f"paths.root={shared}"]
    code, out, err = run(capsys, *words)
    assert code == 0 and "Traceback" not in err, err
    lines = list(csv.DictReader((shared / f"reproduce/smoke/tables/{name}/table.csv").read_text().splitlines()))
    numbers = [line["mean"] for line in lines if line["row"] == rows[-1]]
    assert numbers and all(numbers), out
    assert (shared / f"reproduce/smoke/tables/{name}/page.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_killed_while_it_trains_it_ends_with_the_same_table(
    kills: int, of_one_seed: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    def start() -> Child:
        words = [*TWO_ROWS, "--seeds", "0", f"paths.root={killed}"]
        return Child(lambda: sys.exit(main(["reproduce", *words])), tmp_path / "log")

    def states() -> set[tuple[str, int]]:
        return {(str(path), path.stat().st_mtime_ns) for path in killed.rglob("checkpoints/last.ckpt")}

    killed = tmp_path / "killed"
    for _ in range(kills):
        child, before = start(), states()
        while states() == before and child.poll() is None:
            time.sleep(0.005)
        child.kill()
        while any(is_locked(path.parent) for path in killed.rglob("run.json")):  # its jobs end when it has ended
            time.sleep(0.01)
    start().wait()
    assert numbers_of(killed) == of_one_seed[1]


def test_a_place_that_cannot_be_written_is_one_sentence_before_anything_runs(capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ["clts_mdlrc/table3", "scale=smoke", f"paths.root={tmp_path}/runs", "--out", str(tmp_path / "file")]
    code, _, err = run(capsys, *words)
    assert code == 2 and "out=" in err and "must be a folder that can be written to" in err


OWN = """
title: My table
kind: ablation
says: Late timesteps help.
experiment: mine
measure: {_target_: measured.Measured}
baseline: base
columns: {only: {at: [4]}}
rows:
  base: {overrides: [sampler=uniform]}
  late: {overrides: [sampler=late]}
"""
OWN_PRESET = """
# @package _global_
max_steps: 4
snapshot_every: 4
"""


@pytest.mark.slow
def test_a_table_of_ones_own_with_parts_of_ones_own(capsys, in_folder: Path, tmp_path_factory) -> None:
    """Its classes are in and beside the --config-dir, which is not in the working folder."""
    tmp_path = tmp_path_factory.mktemp("own")
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "measured.py").write_text(
        "from diffusion_lab.tables import MetricAtSteps\nclass Measured(MetricAtSteps): pass\n"
    )
    (tmp_path / "later.py").write_text("from diffusion_lab.timesteps import Power\nclass Later(Power): pass\n")
    for name, text in {
        "table/me/mine.yaml": OWN,
        "experiment/mine.yaml": OWN_PRESET,
        "sampler/late.yaml": "_target_: later.Later\nnum_timesteps: 1000\npower: 2.0\n",
    }.items():
        (conf / name).parent.mkdir(parents=True, exist_ok=True)
        (conf / name).write_text(text)
    words = ["me/mine", "scale=smoke", "--seeds", "0", f"--config-dir={conf}", f"paths.root={tmp_path}/runs"]
    code, out, err = run(capsys, *words)
    assert code == 0, err
    lines = (tmp_path / "runs/reproduce/smoke/tables/me/mine/table.csv").read_text().splitlines()
    assert [(line["row"], line["n"]) for line in csv.DictReader(lines)] == [("base", "1"), ("late", "1")]


@pytest.mark.slow
@pytest.mark.exhaustive  # the suite of the pages trains such a row of each table
def test_a_row_brings_its_start_along(capsys, tmp_path: Path) -> None:
    words = ["equal_loss_slots/figure1", "scale=smoke", "--seeds", "0", "--only", "power1", f"paths.root={tmp_path}"]
    code, out, _ = run(capsys, *words)
    place = tmp_path / "reproduce/smoke/tables/equal_loss_slots/figure1"
    lines = list(csv.DictReader((place / "table.csv").read_text().splitlines()))
    assert [line["n"] for line in lines if line["row"] == "power1"] == ["1"] * 3
    assert code == 0 and "power 2: seed 0 is missing" in out
    command = "reproduce equal_loss_slots/figure1 scale=smoke --seeds=0 --only=base,power1\n"
    assert command in (place / "table.md").read_text()


def test_the_plan_counts_runs_names_rows_and_says_where_it_writes(capsys, tmp_path: Path) -> None:
    found = load_table("clts_mdlrc/table1", conf_folders(None))
    scale = load_scale("smoke", conf_folders(None))
    study = SimpleNamespace(table=found, scale=scale, seeds=[0, 1], root=tmp_path)
    print_plan(study, Plan([], [], 0.0, 0.0, 0.0, "", [], "seed=1 (now 2)"), [], tmp_path / "place")
    out = capsys.readouterr().out
    assert "0 runs with seeds 0 and 1; 0 of them are done" in out
    assert "finished runs of these rows are here with seed=1 (now 2); they are not used" in out
    assert "gd (Guided diffusion, two structures)" in out and f"table in {tmp_path / 'place'}" in out


def test_the_plan_names_finished_runs_with_another_setting(tmp_path: Path) -> None:
    """As left by the command of yesterday, or with another conf/; not what tells the rows of a table apart."""
    found, scale = load_table("clts_mdlrc/figure6", conf_folders(None)), load_scale("smoke", conf_folders(None))
    rows = [row for row in found.rows if row.name in ("id", "mean1")]
    for job in Jobs(found, scale, ["metrics.num_samples=64"]).of(rows, [0], {}):
        (tmp_path / job.folder).mkdir(exist_ok=True)
        write_json(tmp_path / job.folder / "run.json", {"config": plain(job.config)})
        write_json(tmp_path / job.folder / "result.json", {"status": "done", "step": job.config.max_steps})

    def beside(words: list[str], names: list[str]) -> str:
        rows = [row for row in found.rows if row.name in names]
        return table_plan._beside(list(Jobs(found, scale, words).of(rows, [0, 1], {})), tmp_path)

    assert beside(["metrics.num_samples=128"], ["id", "mean1"]) == "metrics.num_samples=64 (now 128)"
    assert beside(["metrics.num_samples=64"], ["mean2"]) == ""  # mean 0.1 T is finished
    assert beside(["metrics.num_samples=128"], ["id", "md"]) == ""  # nothing of the name of md


def test_the_plan_says_what_it_waits_for(monkeypatch, tmp_path: Path) -> None:
    from diffusion_lab.cli.cost import cost

    said: list[str] = []
    monkeypatch.setattr(progress, "waiting", lambda text: said.append(text) or nullcontext())
    monkeypatch.setattr(table_plan, "_missing", lambda jobs: [])
    monkeypatch.setattr(table_plan, "_beside", lambda jobs, root: "")
    cost_here = lambda *_: SimpleNamespace(seconds=1.0, basis=str(os.getpid()), gpus=0, disk=1)  # noqa: E731
    monkeypatch.setattr(cost, "cost_of", cost_here)
    monkeypatch.setattr(cost, "counted_flops", lambda cfg: 1.0)
    config = OmegaConf.create({"max_steps": 1, "prediction": {}})
    plan = table_plan.plan_of([SimpleNamespace(folder="a", config=config)], tmp_path)
    assert plan.seconds == 1.0 and plan.basis != str(os.getpid())  # the threads of a step would hang in a forked job
    assert said == ["checking what is here", "timing some steps of the first run, and counting the operations of all"]


def test_a_plan_is_made_where_pytorch_has_two_threads(tmp_path: Path) -> None:
    """The copy of the process that times some steps would wait for threads that its original had started."""

    # An interpreter of its own: a copy of this process would wait for threads that another test has started here.
    words = ["reproduce", "clts_mdlrc/table3", "scale=smoke", "--dry-run", f"paths.root={tmp_path}"]
    program = f"import torch; from diffusion_lab.cli.main import main; torch.set_num_threads(2); code = main({words})"
    program += "; assert torch.get_num_threads() == 2; raise SystemExit(code)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_finished_table_is_planned_again_if_asked(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(table_plan, "_missing", lambda jobs: [])
    monkeypatch.setattr(table_plan, "_beside", lambda jobs, root: "")
    monkeypatch.setattr(table_plan, "_measured", lambda jobs, missing, threads: (float(len(jobs)), 0, 1, ""))
    for name in "ab":
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "result.json", {"status": "done", "step": 1})
    for anew, left in ((False, []), (True, ["a", "b"])):
        config = OmegaConf.create({"max_steps": 1, "prediction": {}, "anew": anew})
        plan = table_plan.plan_of([SimpleNamespace(folder=name, config=config) for name in "ab"], tmp_path)
        assert [job.folder for job in plan.open] == left


def test_what_fails_in_a_copy_of_the_process_is_raised_here() -> None:
    with pytest.raises(ConfigError, match="batch_size=3 must be"):
        in_a_process(lambda: fail("batch_size=3 must be 2"))
    with pytest.raises(Failure, match="ended with exit code 5"):
        in_a_process(lambda: os._exit(5))
    assert in_a_process(lambda: [1, "a"]) == [1, "a"]


def fail(text: str) -> None:
    raise ConfigError(text)


def test_models_of_a_row_say_what_differs_where_room_lacks() -> None:
    jobs = Jobs(load_table("clts_mdlrc/table1", conf_folders(None)), load_scale("smoke", conf_folders(None)))
    made = list(jobs.of([jobs.table.row("id"), jobs.table.row("gd")], [0], {}))
    _, titles, lines = table_plan.common_and_different(made)
    assert titles[:2] == ["row", "further"] and len({tuple(line[:2]) for line in lines}) == len(lines) == 3


def test_a_job_of_a_table_is_composed_once(monkeypatch) -> None:
    jobs = Jobs(load_table("clts_mdlrc/table3", conf_folders(None)), load_scale("smoke", conf_folders(None)))
    row = jobs.table.row("id")
    first = [job.folder for job in jobs.of([row], [0, 1], {})]

    def again(*_, **__):
        raise AssertionError("it has been composed")

    monkeypatch.setattr("hydra.compose", again)
    assert [job.folder for job in jobs.of([row], [0, 1], {})] == first


def test_rows_are_chosen_by_their_names_or_titles() -> None:
    rows = load_table("clts_mdlrc/table1", conf_folders(None)).rows
    for only in ("gd,dcgan", "Guided diffusion, two structures", "U-ViT, large and huge"):
        assert {row.name for row in _chosen(rows, only)} in ({"gd", "dcgan"}, {"gd"}, {"uvit"})
