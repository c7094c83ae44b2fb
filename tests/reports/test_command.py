"""`diffusion-lab report` as a user meets it."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.cli.main import main as command_line
from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.pages.notes import next_command, warnings
from diffusion_lab.runs.signature import signed
from tests.reports.synthetic import write_run


def test_table_missing_runs_page_and_next_command(report):
    text, out = report
    lines = text.strip().splitlines()
    assert lines[0].endswith("8 done, 1 failed, 1 running, 1 lost, 1 pending")
    assert "fd1k_digits ↓" in text and "ratio to uniform" in text
    assert "failed      digits-uniform-s9-fail" in text and "log: " in text
    assert lines[-3] == f"page: {out}" and out.is_file()
    assert lines[-2].startswith("next: diffusion-lab train -m sampler=uniform,")


def test_metric_and_key_can_be_chosen(tmp_path, capsys, without_figures):
    write_run(tmp_path / "run", "uniform", 0, steps=250)
    assert main([str(tmp_path), "--metric", "precision", "--by", "sampler", "--out", str(tmp_path / "p.html")]) == 0
    text = capsys.readouterr().out
    assert "precision1k_digits ↑" in text and "sampler  " in text


def test_the_baseline_heads_the_table(sweep, tmp_path, capsys, drawn):
    arguments = ["--baseline", "logit_normal", "--out", str(tmp_path / "p.html"), "--table", str(tmp_path / "t.md")]
    assert main([str(sweep), *arguments]) == 0
    text = capsys.readouterr().out
    assert "ratio to logit_normal" in text and text.endswith(
        f"table: {tmp_path / 't.md'}\nper seed: {tmp_path / 't.per_seed.csv'}\n"
    )
    table = (tmp_path / "t.md").read_text()
    assert table.splitlines()[2].startswith("| logit_normal | n=2 (1 lost)") and "--baseline logit_normal" in table
    assert "Ratio to logit_normal" in (tmp_path / "p.html").read_text()


def test_many_jobs_that_have_not_started_are_counted(tmp_path, capsys, without_figures):
    write_run(tmp_path / "run", "uniform", 0, steps=250)
    jobs = [{"dir": str(k), "overrides": [f"seed={k}"], "config_hash": str(k)} for k in range(1, 13)]
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "s", "commands": ["c"], "jobs": jobs}))
    assert main([str(tmp_path), "--out", str(tmp_path / "p.html")]) == 0
    assert "pending     12 runs that have not started" in capsys.readouterr().out
    assert "<summary>12 have not started</summary>" in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{tmp}/nowhere"], "must be an existing folder"),
        (["{tmp}"], "must hold runs"),
        (["{sweep}", "--metric", "fid"], "metric=fid must be one that the runs have; use one of fd1k_digits"),
        (["{sweep}", "--baseline", "ddpm"], "use one of uniform, logit_normal, loss_second_moment, stratified"),
        (["{sweep}", "--by", "smapler"], "by=smapler must be a key of the configuration"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(sweep, tmp_path, capsys, arguments, says):
    assert main([a.format(tmp=tmp_path, sweep=sweep) for a in arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and says in shown.err


def test_help_and_unknown_options_return_their_code(capsys):
    assert command_line(["report", "--help"]) == 0 and command_line(["report", "--nonsense"]) == 2
    assert "--metric" in capsys.readouterr().out


def test_no_torch_is_imported(tmp_path):
    write_run(tmp_path / "run", "uniform", 0, steps=50)
    code = (
        "import sys; from diffusion_lab.cli.commands.report import main; light = set(sys.modules); "
        f"code = main([{str(tmp_path)!r}]); "
        "assert not {'numpy', 'matplotlib', 'rich', 'jinja2'} & light, light; "
        "assert not {'torch', 'lightning', 'wandb', 'matplotlib.pyplot'} & set(sys.modules); sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def next_of(path):
    folder = read_runs(path)
    return next_command(folder, group_runs(folder.runs), "fd1k_digits")[0]


def test_the_next_command_follows_the_state(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=250)
    assert next_of(tmp_path) == "diffusion-lab train -m sampler=uniform seed=1,2"
    reason = next_command(read_runs(tmp_path / "a"), group_runs(read_runs(tmp_path / "a").runs), "fd1k_digits")[1]
    assert reason.endswith(f"; then, for all of them: diffusion-lab report {tmp_path}")  # the new ones lie beside it
    write_run(tmp_path / "b", "uniform", 1, steps=250, result="interrupted")
    assert next_of(tmp_path) == "diffusion-lab train sampler=uniform seed=1"
    shutil.rmtree(tmp_path / "b")
    for seed in (1, 2):
        write_run(tmp_path / str(seed), "uniform", seed, steps=250)
    assert next_of(tmp_path) == f"diffusion-lab report {tmp_path} --metric precision1k_digits"


def test_no_more_seeds_for_a_metric_without_a_better_side(tmp_path):
    for seed, better in enumerate(("lower", "neither")):
        write_run(tmp_path / better, "uniform", seed, steps=250)
        lines = (tmp_path / better / "evaluations.jsonl").read_text()
        (tmp_path / better / "evaluations.jsonl").write_text(lines.replace('"lower"', f'"{better}"'))
        command = next_of(tmp_path / better)
        assert ("seed=" in command) == (better == "lower") and ("--metric" in command) == (better == "neither")


def test_more_seeds_are_of_the_method_that_lacks_them_and_those_of_the_others(tmp_path):
    for seed in (0, 4, 5):
        write_run(tmp_path / f"z{seed}", "uniform", seed, steps=250)
    write_run(tmp_path / "a", "stratified", 0, steps=250)
    assert next_of(tmp_path) == "diffusion-lab train -m sampler=stratified seed=4,5"


def test_more_seeds_and_missing_runs_are_evaluated_on_latents_by_the_rule_of_those_that_are_there(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=250, metrics={"seed": 0})
    assert next_of(tmp_path) == "diffusion-lab train -m sampler=uniform metrics.seed=0 seed=1,2"
    write_run(tmp_path / "b", "uniform", 1, steps=250, result="interrupted", metrics={"seed": 0})
    assert next_of(tmp_path) == "diffusion-lab train sampler=uniform seed=1 metrics.seed=0"
    for name, seed in (("a", 0), ("b", 1)):
        shutil.rmtree(tmp_path / name)
        result = "done" if seed == 0 else "interrupted"
        write_run(tmp_path / name, "uniform", seed, steps=250, result=result, metrics={"seed": None})
    assert next_of(tmp_path) == "diffusion-lab train sampler=uniform seed=1"


def test_another_metric_is_one_that_every_method_has_and_another(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"u{seed}", "uniform", seed, steps=250)
        write_run(tmp_path / f"s{seed}", "stratified", seed, steps=250)
    extra = {"name": "is1k_digits", "value": 1.0, "step": 250, "better": "higher", "units": "", "protocol": {}}
    lines = (tmp_path / "u0" / "evaluations.jsonl").read_text()
    (tmp_path / "u0" / "evaluations.jsonl").write_text(f"{json.dumps(extra)}\n{lines}")
    assert next_of(tmp_path) == f"diffusion-lab report {tmp_path} --metric precision1k_digits"
    folder = read_runs(tmp_path)
    for run in folder.runs:
        run.__dict__["metric_names"] = []
    command, _ = next_command(folder, group_runs(folder.runs), "val/loss")
    assert command == f"diffusion-lab sample run={folder.runs[-1].folder} seeds=0-63"


def test_a_metric_of_before_a_run_went_on_has_a_note(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=250)
    for step, said in ((250, False), (200, True)):
        line = {"name": "is1k_digits", "value": 1.0, "step": step, "better": "higher", "units": "", "protocol": {}}
        (tmp_path / "a" / "evaluations.jsonl").write_text(f"{json.dumps(line)}\n")
        folder = read_runs(tmp_path)
        found = warnings(folder, group_runs(folder.runs), "is1k_digits")
        assert any("was measured at step 200, and the run has gone on" in one for one in found) is said


def test_metrics_that_are_not_in_the_table_of_one_run_are_named_with_the_word_that_shows_them(
    tmp_path, capsys, without_figures
):
    write_run(tmp_path / "a", "uniform", 0, steps=250)
    protocol = {"samples": 20, "solver": "ddim-4-eta0", "ema_decay": 0.9999, "seed": 0}
    lines = [
        {"name": f"own{step}", "value": 1.0, "step": step, "better": "neither", "units": "", "protocol": protocol}
        for step in (200, 250)
    ]
    (tmp_path / "a" / "evaluations.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    page = tmp_path / "page.html"
    for metric, said in (("val/loss", "own200, own250; "), ("own250", "own200; ")):
        assert main([str(tmp_path / "a"), "--metric", metric, "--out", str(page)]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert f"Also measured: fd1k_digits, precision1k_digits, {said}use --metric fd1k_digits for a table" in printed
    shown = re.sub(r"<[^>]+>", " ", page.read_text())
    assert "(at step 200)" in shown and "(at step 250)" not in shown
    assert shown.count("not needed") == 4  # extractor and reference of both


def test_of_two_sweep_commands_the_one_that_asks_for_the_run_is_named(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=250)
    jobs = '[{"dir": "b", "overrides": ["sampler=uniform", "seed=7"], "config_hash": "x"}]'
    commands = '["diffusion-lab train -m sampler=uniform seed=6,7", "diffusion-lab train -m sampler=x seed=0"]'
    (tmp_path / "sweep.json").write_text(f'{{"commands": {commands}, "jobs": {jobs}}}')
    assert next_of(tmp_path) == "diffusion-lab train -m sampler=uniform seed=6,7"


@pytest.mark.parametrize("place", ["table", "figures"])
def test_a_place_that_cannot_be_written_is_said_before_any_file(place, sweep, tmp_path, capsys):
    (tmp_path / "t.per_seed.csv").mkdir()
    (tmp_path / "file").touch()
    given = {"table": tmp_path / "t.md", "figures": tmp_path / "file" / "x"}[place]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main([str(sweep), f"--{place}", str(given), "--out", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err.startswith("config error: ")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_figures_of_the_page_are_written_as_files(tmp_path, capsys):
    write_run(tmp_path / "run", "uniform", 0, steps=250)
    assert main([str(tmp_path), "--figures", str(tmp_path / "figures")]) == 0
    course = tmp_path / "figures" / "quality-against-images-seen.svg"
    assert f"figure: {course}" in capsys.readouterr().out
    assert "images seen" in course.read_text() and len(list(course.parent.iterdir())) >= 4
    (tmp_path / "file").touch()
    assert main([str(tmp_path), "--figures", str(tmp_path / "file")]) == 2
    assert "figures=" in capsys.readouterr().err


def test_a_run_of_the_users_own_is_repeated_with_its_config_dir(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=50, result="failed")
    path, own = tmp_path / "a" / "run.json", {"config_dirs": ["/x/my conf"], "modules": {"ramp": "/x"}}
    record = json.loads(path.read_text()) | {"own_parts": own}
    path.write_text(json.dumps(signed(record)))
    expected = "diffusion-lab train --config-dir '/x/my conf' sampler=uniform seed=0"
    assert next_of(tmp_path) == read_runs(tmp_path).runs[0].command == expected
    path.write_text(json.dumps(record))  # somebody else's: no folder of theirs in a command to paste
    assert next_of(tmp_path) == "diffusion-lab train sampler=uniform seed=0"


def test_more_seeds_of_a_table_are_named_as_its_command_takes_them(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"u{seed}", "uniform", seed, steps=250)
    path = tmp_path / "u1" / "run.json"
    words = ["experiment=some/table3", "sampler=uniform", "seed=1"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"overrides": words}))
    typed = "diffusion-lab reproduce {} scale=smoke --seeds 0"
    commands = [typed.format(table) for table in ("some/table3", "some/table1", "other/table1")]
    jobs = [{"dir": f"u{seed}", "overrides": [], "config_hash": "x"} for seed in (0, 1)]
    (tmp_path / "sweep.json").write_text(json.dumps({"commands": commands, "jobs": jobs}))
    assert next_of(tmp_path) == "diffusion-lab reproduce some/table3 scale=smoke --seeds 0,1,2"
