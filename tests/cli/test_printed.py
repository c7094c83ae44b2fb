"""What a terminal gets: no character of a folder, a file name or an argument controls it, whichever command prints it.

The payloads are put wherever a stranger can write into a run folder: names of folders, the method, metrics, protocols,
overrides, errors, logs, versions, the sweep's name and its commands; and into the words of each command line.
"""

from __future__ import annotations

import ast
import io
import json
import logging.config
import math
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from rich.table import Table

from diffusion_lab import progress as progress_module
from diffusion_lab.cli.commands.evaluate import _table
from diffusion_lab.cli.main import main
from diffusion_lab.metrics import MetricResult
from diffusion_lab.printable import Escaping, escaped_output, make_console, one_line, printable
from diffusion_lab.progress import progress, status
from hydra_plugins.diffusion_lab_launcher import _child
from tests.harness import Child
from tests.reports.synthetic import write_run

ROOT = Path(__file__).resolve().parents[2]
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
PAYLOADS = {
    "clipboard": "a\x1b]52;c;cm0gLXJmIH4=\x07b",
    "clipboard by C1": "a\x9d52;c;cm0gLXJmIH4=\x9cb",
    "title of the window": "a\x1b]2;owned\x1b\\b",
    "answer of the terminal": "a\x1b[6n\x1b[cb",
    "hidden text": "a\x1b[8mb\x1b[0m",
    "colour by C1": "a\x9b31mb",
    "erased screen": "a\x1b[2J\x1b[Hb",
    "alternate screen": "a\x1b[?1049hb",
    "overwritten line": "failed\rdone: all is well",
    "backspaces": "bad\x08\x08\x08good",
    "bell and shift": "a\x07\x0e\x0fb",
    "reversed text": "a\u202etxt.exe\u202cb",
    "isolated text": "a\u2066b\u2069\u200f",
    "link": "a\x1b]8;;http:evil.example\x1b\\b\x1b]8;;\x1b\\",
    "device control": "a\x1bPq#0\x1b\\b",
    "invisible tags": "a\U000e0041\U000e0042b\ufeff",
    "separators of lines": "a\u2028b\u2029c\x85d\x0b\x0c",
    "undecodable bytes": "a\udcffb",
    "markup of rich": "[bold red]a[link=http:evil.example]b[/]",
    "broken formula": r"$\frac{a$ and $\nothing$",
}
ALL = " ".join(PAYLOADS.values())
LONG_NAMES = pytest.mark.filterwarnings("ignore:constrained_layout:UserWarning")  # leave a figure no room
ENCODABLE = ALL.replace("\udcff", "")  # JSON files and patched streams are UTF-8


def assert_clean(*texts: str) -> None:
    for text in texts:
        found = CONTROLS.search(text)
        assert found is None, f"{text[max(0, found.start() - 80) : found.end() + 20]!r}"


def names(extra: str = "") -> list[str]:
    """Names of folders that have all payloads together; a name has at most 255 bytes, and no slash."""
    parts = [ENCODABLE[i : i + 60].replace("/", "") for i in range(0, len(ENCODABLE), 60)]
    return [f"{k} {extra}{part}" for k, part in enumerate(parts)]


def put_everywhere(run: Path, payload: str) -> None:
    """The payload in each text of a run folder."""
    record = json.loads((run / "run.json").read_text())
    record |= {"run_id": payload, "name": payload, "method": payload, "group_hash": payload, "git": f"{payload}+"}
    record["overrides"] += [f"name={payload}", payload]
    record["command"] += f" name='{payload}'"
    record["versions"] |= {payload: payload, "torch": f"{payload}{record['seed']}"}
    (run / "run.json").write_text(json.dumps(record))
    (run / "train.log").write_text(f"{payload}\n")
    for name in ("metrics.jsonl", "evaluations.jsonl", "result.json"):
        inner = json.dumps(payload)[1:-1]
        text = (run / name).read_text().replace("fd1k_digits", f"fd1k_{inner}")
        (run / name).write_text(text.replace("ddim-50-eta0", inner).replace('"digits"', f'"{inner}"'))


def hostile_sweep(folder: Path, payload: str) -> Path:
    """A sweep with the payload wherever there is a text; the last run has failed and another has not begun."""
    sweep, jobs = folder / names("sweep ")[0], []
    for seed, name in enumerate(names()):
        last = seed == len(names()) - 1
        error = {"type": f"Error{payload}", "message": payload, "traceback": payload} if last else None
        changed = {"name": payload, "note": [payload], payload: payload, "logger": {"wandb": {"project": payload}}}
        result = "failed" if last else "done"
        write_run(sweep / name, "uniform", seed, steps=250, result=result, error=error, **changed)
        put_everywhere(sweep / name, payload)
        jobs.append({"dir": name, "overrides": [f"sampler={payload}", f"seed={seed}"], "config_hash": name})
    jobs.append({"dir": f"waiting {names()[0]}", "overrides": [payload], "config_hash": "x"})
    content = {"name": payload, "commands": [f"diffusion-lab train -m name='{payload}' seed=0,1,2"], "jobs": jobs}
    (sweep / "sweep.json").write_text(json.dumps(content))
    return sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_sweep(tmp_path_factory.mktemp("theirs"), ENCODABLE)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_text_is_shown_without_its_controls(payload: str) -> None:
    shown = one_line(f"{payload}\n\t")
    assert_clean(shown)
    assert shown.endswith(r"\n\t") and printable("a\n\tb") == "a\n\tb"
    assert printable(printable(payload)) == printable(payload) == shown.removesuffix(r"\n\t")
    assert (printable(payload) == payload) == (CONTROLS.search(payload) is None)


def test_what_is_no_control_stays() -> None:
    plain = "loss ↓ 1.8 [1.7, 1.9] ━━╸ Größe 東京 שלום 👩\u200d🚀 \\x1b"
    assert one_line(plain) == plain
    assert printable("\x1b\r\x9b\u202e\U000e0041") == r"\x1b\r\x9b\u202e\U000e0041"


@LONG_NAMES
def test_a_report_of_a_hostile_sweep(sweep: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep), "--out", "page.html", "--table", "table.md"]) == 0
    told = capsys.readouterr()
    assert r"\x1b]52;c;" in told.out and "[bold red]a[link=http:evil.example]" in told.out
    assert_clean(told.out, told.err)
    for name in ("page.html", "table.md", "table.per_seed.csv"):
        assert_clean(Path(name).read_text())


@LONG_NAMES
def test_a_comparison_of_hostile_runs(sweep: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("mine"), "uniform", 0, steps=250)
    assert main(["compare", "mine", str(sweep / names()[0]), "--out", "page.html"]) == 0
    told = capsys.readouterr()
    assert r"\x1b]52;c;" in told.out
    assert_clean(told.out, told.err, Path("page.html").read_text())


REFUSED = {
    "report": ["report", "{text}"],
    "report by a key": ["report", "{sweep}", "--by", "{text}x", "--metric", "{text}"],
    "report of a metric": ["report", "{sweep}", "--metric", "{text}"],
    "report into a file": ["report", "{sweep}", "--table", "{text}"],
    "report without a number": ["report", "{sweep}", "--margin", "{text}"],
    "compare": ["compare", "{text}", "{sweep}:{text}"],
    "dashboard": ["dashboard", "{sweep}", "--offline"],
    "dashboard of a paper": ["dashboard", "{text}", "x={text}"],
    "show a run": ["show", "{run}"],
    "show": ["show", "sampler={text}"],
    "verify": ["verify", "{run}", "{text}"],
    "sample": ["sample", "run={text}"],
    "analyze": ["analyze", "analysis=per_timestep", "run={text}"],
    "resume": ["train", "resume='{run}'"],
    "train": ["train", "{text}"],
    "train an option": ["train", "sampler={text}"],
    "train a number": ["train", "max_steps='a\x1b]52;c;x\x07\x9b\u202e'"],
    "list": ["list", "{text}"],
    "reproduce": ["reproduce", "{text}", "scale={text}"],
    "a command": ["{text}"],
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused_is_repeated_without_controls(
    command: str, sweep: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told_at = {"text": ENCODABLE[:110] + ENCODABLE[-60:], "sweep": sweep, "run": sweep / names()[0]}
    words = [re.sub(r"\{(text|sweep|run)\}", lambda m: str(told_at[m[1]]), word) for word in REFUSED[command]]
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.err
    assert_clean(told.out, told.err)


def other_references(sweep: Path, payload: str) -> None:
    """Runs that were measured against other images, which are parts of a report of their own."""
    for seed in range(2):
        run = sweep / f"other {seed}"
        write_run(run, "uniform", seed, steps=250)
        rows = [json.loads(row) for row in (run / "evaluations.jsonl").read_text().splitlines()]
        changed = [row | {"protocol": row["protocol"] | {"reference": payload}} for row in rows]
        (run / "evaluations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in changed))


@LONG_NAMES
def test_no_recorded_text_and_no_name_begins_a_line(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = "x\nFORGED\r\x0bFORGED\u2028FORGED"
    sweep = hostile_sweep(in_folder / "folder\nFORGED", payload)
    other_references(sweep, payload)
    write_run(Path("mine"), "uniform", 0, steps=250)
    told_at = {"text": payload, "sweep": sweep, "run": sweep / names()[0]}
    done = {
        "report of all": ["report", "{sweep}"],
        "comparison": ["compare", "mine", "{run}", "--out", "page.html"],
    }
    for command in (done | REFUSED).values():
        words = [re.sub(r"\{(text|sweep|run)\}", lambda m: str(told_at[m[1]]), word) for word in command]
        main(words)
        told = capsys.readouterr()
        lines = [line for line in (told.out + told.err).splitlines() if line.lstrip().startswith("FORGED")]
        assert not lines, (words, told)


def test_a_traceback_is_printed_without_controls(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library says: in a log line, on its own, in the sentence, a traceback of debug mode, and in train.log."""

    def fail(*_: object) -> None:
        logging.getLogger("library").warning(ENCODABLE)
        sys.stderr.write(f"{ENCODABLE}\n")  # as a warning is
        raise RuntimeError(ENCODABLE)

    monkeypatch.setattr("diffusion_lab.cli.commands.train.run", fail)
    monkeypatch.setenv("DIFFUSION_LAB_TRACEBACK", "1")

    def work() -> None:
        sys.exit(main(["train", "scale=smoke", "trainer.accelerator=cpu", "hydra.run.dir=run"]))

    assert Child(work, Path("told")).wait() == 1
    told, log = Path("told").read_text(), Path("run/train.log").read_text()
    assert "Traceback" in told and "failed: RuntimeError" in told
    assert told.count(r"\x1b]52") >= 4 and log.count(r"\x1b]52") >= 2
    assert_clean(told, log)


def test_log_files_of_hydra_have_no_controls(tmp_path: Path) -> None:
    hydra = yaml.safe_load((ROOT / "conf" / "train.yaml").read_text())["hydra"]["job_logging"]
    handler = {"class": "logging.FileHandler", "formatter": "simple", "filename": str(tmp_path / "log")}
    content = {"version": 1, "disable_existing_loggers": False, "formatters": hydra["formatters"]}
    logger = logging.getLogger("tests.printed")
    logging.config.dictConfig(
        {**content, "handlers": {"file": handler}, "loggers": {logger.name: {"handlers": ["file"], "level": "INFO"}}}
    )
    logger.info("%s: %d images", ENCODABLE, 3)
    assert re.match(r"\d\d:\d\d:\d\d a\\x1b\]52", text := (tmp_path / "log").read_text())
    assert_clean(text)


def test_the_output_of_a_job_has_no_controls(tmp_path: Path) -> None:
    """A sweep's jobs write to train.log, by streams of their own."""

    class Job:
        folder = tmp_path

    def work() -> None:
        _child.write_to_log(Job())  # type: ignore[arg-type]
        print(ALL)
        sys.stderr.writelines([ALL, "\n"])

    Child(work, tmp_path / "ours").succeed()
    text = (tmp_path / "train.log").read_text()
    assert text.count(r"\x1b]52") == text.count(r"\udcff") == 2
    assert_clean(text)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output and standard error on a terminal of 2,000 columns."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((2000, 40)))
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "2000", "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    return made


OURS = re.compile(r"\x1b\[[\d;]*m|\x1b\[\d*[A-K]|\x1b\[\?25[lh]|\r")  # colours, cursor, erased line


def test_on_a_terminal_only_our_own_codes_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with escaped_output():
        status(ENCODABLE)
        with progress(ENCODABLE, 10, ENCODABLE) as task:
            print(ENCODABLE)
            sys.stderr.write(f"{ENCODABLE}\n")
            task.at(5, ENCODABLE)
        table = Table("metric", ENCODABLE, title=ENCODABLE)
        table.add_row(ENCODABLE, "[red]1[/red]")
        make_console(width=10_000).print(table, ENCODABLE, style="bold")
    shown = screen.getvalue()
    assert "\x1b[1m" in shown and "\x1b[?25l" in shown  # the codes of rich
    assert shown.count(r"\x1b]52") >= 6 and "[red]1[/red]" in shown
    for payload in PAYLOADS.values():
        if CONTROLS.search(payload) and "\udcff" not in payload:
            assert payload not in shown
    without = OURS.sub("", shown)
    assert_clean(without)
    assert "\x1b[8m" not in shown and "\x1b[2J" not in shown  # a payload that looks like one of ours


def test_streams_are_restored_and_not_wrapped_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with escaped_output(), escaped_output():
        assert isinstance(sys.stdout, Escaping) and sys.stdout.stream is out
        print("\x1b", end="")
    assert (sys.stdout, sys.stderr, out.getvalue()) == (out, err, r"\x1b")
    with pytest.raises(KeyError), escaped_output():
        raise KeyError
    assert isinstance(sys.stderr, Escaping)  # Python prints the traceback there


def test_the_best_of_a_table_is_a_number() -> None:
    rows = [[MetricResult("mine", value, {}, "lower", "")] for value in (math.nan, 2.0, 1.0)]
    console, file = make_console(width=200), io.StringIO()
    console.file = file
    console.print(_table(dict(zip("abc", rows, strict=True)), []))
    assert "1 *" in file.getvalue() and "nan *" not in file.getvalue()


def test_the_table_of_metrics_shows_names_as_they_are() -> None:
    result = MetricResult("[/red]fd\x1b]52;c;x\x07", 1.0, {}, "lower", "")
    console, file = make_console(width=200), io.StringIO()
    console.file = file
    console.print(_table({"a": [result], "[b]\x9b2J": [result]}, []))
    assert r"[/red]fd\x1b]52;c;x\x07" in file.getvalue() and "[b]" in file.getvalue()
    assert_clean(file.getvalue())


ALONE = {
    "rich.console.Console": "diffusion_lab.printable.make_console()",
    "rich.print": "print",
    "rich.get_console": "diffusion_lab.printable.make_console()",
    "sys.__stdout__": "sys.stdout",
    "sys.__stderr__": "sys.stderr",
    "os.write": "print",
}


def test_nothing_prints_around_the_one_place() -> None:
    """`print` and sys.stdout are escaped by `main`; these ways are not, and belong to printable.py alone."""
    allowed = {("os.write", "_child.py")}  # a pipe to the launcher
    files = [*(ROOT / "diffusion_lab").rglob("*.py"), *(ROOT / "hydra_plugins").rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {used}, use {ALONE[used]}"
        for path in files
        if path.name != "printable.py"
        for used in ways(ast.parse(path.read_text()))
        if (used, path.name) not in allowed
    ]
    assert not found
    assert set(ways(ast.parse("from rich.console import Console\nrich.print('a')\nConsole()\nos.write(1, b'')"))) == {
        "rich.console.Console",
        "rich.print",
        "os.write",
    }


def ways(tree: ast.AST) -> list[str]:
    """The names of `ALONE` that a file calls or reads; an import for annotations alone calls nothing."""
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    imported = [
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if (name.asname or name.name) in called
    ]
    read = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    rich = any(isinstance(node, ast.ImportFrom) and str(node.module).startswith("rich") for node in ast.walk(tree))
    live = ["rich.get_console" for node in ast.walk(tree) if rich and _without_a_console(node)]
    return [*(one for one in [*imported, *read] if one in ALONE), *live]


def _without_a_console(node: ast.AST) -> bool:
    """A display of rich that makes a console of its own."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ("Live", "Bars"):
        return False
    return "console" not in {keyword.arg for keyword in node.keywords}


@pytest.mark.slow
def test_names_of_files_and_classes_of_images(in_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A real run on a folder whose classes and images have hostile names, through the commands that read it back."""
    from PIL import Image

    hostile = [name.replace("\udcff", "") for name in names("c")]
    for k, name in enumerate(hostile[:2]):
        for i in range(24):
            place = Path("data", name, f"{hostile[-1]}{i}.png")
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (10 * i, 100 * k, 50)).save(place)
    Path("data", hostile[0], f"{hostile[1]}.png").write_bytes(b"none")
    small = ["scale=smoke", "max_steps=2", "network.base_channels=8", "trainer.accelerator=cpu", "metrics=none"]
    data = ["dataset=image_folder", "dataset.source.image_size=16", "dataset.conditional=true"]
    root = "dataset.source.root=data"
    skip = "dataset.source.on_bad=skip"
    log = Path("log")

    def told(*words: str) -> str:
        Child(lambda: sys.exit(main(list(words))), log).wait()
        return log.read_text()

    told("train", *small, *data, root, skip, "hydra.run.dir=run")
    told("sample", "run=run", "seeds=0-1")
    told("export", "run=run")
    text = told("verify", "run", root)
    assert "equal to the bit" in text and "grid.png in" in text and "its README.md says" in text, text
    assert_clean(text, *(path.read_text() for path in [*Path("run").glob("*.log"), *Path("run").rglob("README.md")]))


def test_the_module_of_progress_writes_codes_only_to_the_stream_below(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with escaped_output():
        progress_module._clear()
    assert screen.getvalue() == "\x1b[2K"
