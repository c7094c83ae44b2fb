"""`report --watch`: what it renews, what it reads again, and how it ends."""

import re
import sys
from types import SimpleNamespace

import pytest

from diffusion_lab.cli import report_watch
from diffusion_lab.cli.commands.report import main
from diffusion_lab.cli.report_watch import Remembered
from diffusion_lab.reports import read_runs
from diffusion_lab.runs.names import DIGEST, FILES
from tests.reports.synthetic import write_run


def test_only_what_has_changed_is_read_again(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / str(seed), "uniform", seed, steps=250)
    read = Remembered()
    first, second = read_runs(tmp_path, read).runs
    assert first.step == 250
    again = read_runs(tmp_path, read).runs
    assert again[0] is first and again[1] is second
    with (tmp_path / "1" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 300, "train/loss": 0.1}\n')
    unchanged, changed = read_runs(tmp_path, read).runs
    assert unchanged is first and changed is not second and changed.step == 300
    (tmp_path / "0" / "result.json").unlink()
    assert [run.status for run in read_runs(tmp_path, read).runs] == ["lost", "done"]
    assert read_runs(tmp_path).runs[0] is not first  # the control: without a memory


@pytest.mark.parametrize("pattern", FILES)
def test_any_file_that_a_run_writes_changes_it_but_what_reading_writes(tmp_path, pattern):
    write_run(tmp_path / "0", "uniform", 0, steps=250)
    read = Remembered()
    run = read_runs(tmp_path, read).runs[0]
    assert run.step == 250 and read_runs(tmp_path, read).runs[0] is run
    path = tmp_path / "0" / pattern.replace("*", "new")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("\n")
    assert (read_runs(tmp_path, read).runs[0] is run) == (pattern == DIGEST)


def test_an_analysis_of_the_folder_renews_the_report(tmp_path, capsys, monkeypatch, without_figures):
    write_run(tmp_path / "0", "uniform", 0, steps=250)
    looks = iter([False, True, False, None])

    def sleep(every):
        if (look := next(looks)) is None:
            raise KeyboardInterrupt
        if look:
            place = tmp_path / "analyses" / "landscape"
            place.mkdir(parents=True)
            (place / "figure.svg").write_text("<svg/>")
            (place / "facts.json").write_text('{"sentence": "It is flat.", "protocol": {}}')

    monkeypatch.setattr(report_watch, "time", SimpleNamespace(sleep=sleep))
    page = tmp_path / "p.html"
    assert main([str(tmp_path), "--watch", "--out", str(page)]) == 130
    assert len(re.findall(r"^\d\d:\d\d:\d\d  1 done", capsys.readouterr().out, re.MULTILINE)) == 2
    assert "It is flat." in page.read_text()


@pytest.mark.parametrize("on_terminal", [False, True])
def test_the_report_is_renewed_when_a_run_changes_until_it_is_interrupted(
    tmp_path, capsys, monkeypatch, without_figures, on_terminal
):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal)
    write_run(tmp_path / "a", "uniform", 0, steps=250)
    seconds = []

    def sleep(every):
        seconds.append(every)
        if len(seconds) == 2:
            write_run(tmp_path / "b", "uniform", 1, steps=250)
        if len(seconds) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(report_watch, "time", SimpleNamespace(sleep=sleep))
    page = tmp_path / "p.html"
    assert main([str(tmp_path), "--watch", "--every", "3", "--out", str(page)]) == 130
    shown = capsys.readouterr()
    assert shown.err == "stopped by signal 2\n" and seconds == [3, 3, 3, 3]
    cleared = shown.out.count("\x1b[2J")
    renewed = re.findall(r"^\d\d:\d\d:\d\d  (\d done)  .+", shown.out, re.MULTILINE)
    if on_terminal:  # the whole report each time, in place of the last one
        assert (cleared, shown.out.count("page: "), shown.out.count("until Ctrl-C"), renewed) == (2, 2, 2, [])
    else:  # the whole report once, and a line each time
        assert (cleared, shown.out.count("page: "), renewed) == (0, 1, ["1 done", "2 done"])
    assert "n=2" in page.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--every", "0"], "every=0 must be 1 to 86400 seconds"),
        (["--wandb"], "watch with --wandb must not log each table"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path, capsys, words, says):
    write_run(tmp_path / "a", "uniform", 0, steps=250)
    assert main([str(tmp_path), "--watch", *words]) == 2
    assert says in capsys.readouterr().err
