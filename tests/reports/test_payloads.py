"""Folders of runs from anybody, through the commands that report them: none reads a file outside of the folder, writes
one, hangs, or ends the report of the other runs.

A payload changes one run of a folder. They are tried together, each with a run of its own, beside a good one.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from diffusion_lab.cli.main import main
from diffusion_lab.reports import read_runs, sections_of
from diffusion_lab.reports.comparison import sections
from diffusion_lab.reports.failing_runs import set_apart
from diffusion_lab.reports.pages import samples
from diffusion_lab.runs.run import Run, RunFolder
from tests.limited import limited
from tests.reports.synthetic import write_run

SECRET = "the private words"
TERA = 2**40
DAMAGED = "damaged"
BREAKS = "\nFORGED\r\x1b]52;c;x\x07\x85FORGED\u2028FORGED <b>|`"
Payload = Callable[[Path, Path], object]
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style:DeprecationWarning")  # of wandb-workspaces' import


def picture() -> bytes:
    """A PNG file that is not like another."""
    pixels = np.random.default_rng(3).integers(0, 256, (24, 24, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def link(name: str) -> Payload:
    """A link to a private file, which is a picture for the name of one."""
    return lambda run, mine: put(run / name).symlink_to(
        mine / ("picture" if name.endswith((".png", ".svg")) else "words")
    )


def put(path: Path) -> Path:
    """A free place for a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    return path


def fifo(name: str) -> Payload:
    return lambda run, mine: os.mkfifo(put(run / name))


def socket_at(name: str) -> Payload:
    def make(run: Path, mine: Path) -> None:
        put(run / name)
        with socket.socket(socket.AF_UNIX) as one:
            here = os.getcwd()
            os.chdir(run)  # a socket's path has at most 107 bytes
            one.bind(name)
            os.chdir(here)

    return make


def folder(name: str) -> Payload:
    return lambda run, mine: put(run / name).mkdir()


def circle(name: str) -> Payload:
    return lambda run, mine: put(run / name).symlink_to(run / name)


def zeros(name: str) -> Payload:
    """A link to a device without an end."""
    return lambda run, mine: put(run / name).symlink_to("/dev/zero")


def sparse(name: str) -> Payload:
    def make(run: Path, mine: Path) -> None:
        with open(put(run / name), "wb") as file:
            file.truncate(TERA)

    return make


def text(name: str, content: str | bytes) -> Payload:
    return lambda run, mine: put(run / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def record(edit: Callable[[dict], object], name: str = "run.json") -> Payload:
    def change(run: Path, mine: Path) -> None:
        content = json.loads((run / name).read_text())
        edit(content)
        (run / name).write_text(json.dumps(content))

    return change


def line(file: str, /, **row: object) -> Payload:
    def add(run: Path, mine: Path) -> None:
        with open(run / file, "a") as lines:
            lines.write(json.dumps({"step": 250} | row) + "\n")

    return add


def protocol(value: object) -> Payload:
    """Every metric of the run was measured like this."""

    def change(run: Path, mine: Path) -> None:
        path = run / "evaluations.jsonl"
        rows = [json.loads(row) | {"protocol": value} for row in path.read_text().splitlines()]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    return change


def analysis(content: Payload) -> Payload:
    """An analysis with a figure, of which one file is changed."""

    def make(run: Path, mine: Path) -> None:
        facts = {"sentence": "It is so.", "protocol": {"models": []}}
        put(run / "analyses" / "x" / "facts.json").write_text(json.dumps(facts))
        (run / "analyses" / "x" / "figure.svg").write_text("<svg/>")
        content(run, mine)

    return make


def outside(name: str) -> Payload:
    """A folder of the run that is a link to a folder elsewhere with what it should hold."""

    def make(run: Path, mine: Path) -> None:
        shutil.move(run / name, mine / f"{name}-of-{run.name}") if (run / name).exists() else None
        (mine / f"{name}-of-{run.name}").mkdir(exist_ok=True)
        shutil.copy(mine / "picture", mine / f"{name}-of-{run.name}" / "step-00000250.png")
        (run / name).symlink_to(mine / f"{name}-of-{run.name}")

    return make


def png(width: int, height: int, body: bytes = b"") -> bytes:
    """A PNG file of any claimed size, with a body that need not fit."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", body), (b"IEND", b"")]
    parts = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def nested(depth: int) -> object:
    node: object = 1
    for _ in range(depth):
        node = {"a": node}
    return node


GRID = "samples/step-00000250.png"
FILES: dict[str, Payload] = {
    **{f"link as {name}": link(name) for name in ("metrics.jsonl", "evaluations.jsonl", "timing.jsonl", GRID, ".lock")},
    "link as a figure": analysis(link("analyses/x/figure.svg")),
    "link as facts": analysis(link("analyses/x/facts.json")),
    "link as the samples": outside("samples"),
    "link as the analyses": outside("analyses"),
    **{f"FIFO as {name}": fifo(name) for name in ("metrics.jsonl", "evaluations.jsonl", "timing.jsonl", GRID, ".lock")},
    "FIFO as facts": analysis(fifo("analyses/x/facts.json")),
    "FIFO as a figure": analysis(fifo("analyses/x/figure.svg")),
    **{f"folder as {name}": folder(name) for name in ("metrics.jsonl", GRID, ".lock")},
    **{f"circle as {name}": circle(name) for name in ("metrics.jsonl", "samples", "analyses")},
    **{f"device as {name}": zeros(name) for name in ("metrics.jsonl", GRID, ".lock")},
    **{f"a terabyte as {name}": sparse(name) for name in ("metrics.jsonl", GRID)},
    "a figure of a terabyte": analysis(sparse("analyses/x/figure.svg")),
    "a large picture": text(GRID, png(30_000, 30_000, zlib.compress(b"\0" * 1000))),
    "a picture of nothing": text(GRID, png(0, 0)),
    "half a picture": text(GRID, picture()[:60]),
    "no picture": text(GRID, b"\x89PNG\r\n\x1a\n" + b"\xff" * 100),
    "a picture of another kind": text(GRID, b"GIF89a" + b"\xff" * 100),
    "brackets in a line": text("metrics.jsonl", "[" * 200_000 + "\n"),
    "a large number": line("metrics.jsonl", **{"val/loss": int("1" + "0" * 400)}),
    "a large step": line("metrics.jsonl", step=10**30, **{"val/loss": 1.0}),
    "a negative step": line("metrics.jsonl", step=-5, **{"val/loss": 1.0}),
    "many images": line("metrics.jsonl", images=1e308, **{"val/loss": 1.0}),
    "a deep line": line("metrics.jsonl", **{"val/loss": nested(900)}),
    "a list in a list": line("metrics.jsonl", **{"val/loss_t": [[[1.0]]]}),
    "a text as a reference": protocol({"reference": "a text"}),
    "lists as a protocol": protocol({"extractor": [[]], "seed": {"a": []}, "reference": [1]}),
    "a list as a protocol": protocol([1]),
    "a text as a value": line("evaluations.jsonl", name="fd1k_digits", value="x", protocol={}),
    "not a number": line("evaluations.jsonl", name="fd1k_digits", value=float("nan"), protocol={"NaN": float("nan")}),
    "lists as metrics": record(lambda result: result.update(metrics={"metrics/fd1k_digits": [1]}), "result.json"),
    "an infinite time": record(lambda result: result.update(seconds=1e308, step=1e308), "result.json"),
    "many steps": record(lambda run: run["config"].update(max_steps=10**400, batch_size=10**18)),
    "a large number in a text": text("run.json", '{"config": {"seed": 1' + "0" * 5000 + "}}"),
    "a list as a part": record(lambda run: run["config"].update(solver=[1], sampler=5, dataset=[[]])),
    "choices that are none": record(lambda run: run.update(choices={"sampler": ["x"], "5": {}})),
    "overrides that are none": record(lambda run: run.update(overrides=[[[]], {"a": 1}, None, 5])),
    "versions that are none": record(lambda run: run.update(versions={"torch": [1], "x": {"y": 2}})),
    "an unusual ln SNR": record(lambda run: run.update(log_snr=[["a"], 10**400])),
    "a socket as metrics.jsonl": socket_at("metrics.jsonl"),
    "a socket as .lock": socket_at(".lock"),
    "a folder of samples that is a file": text("samples", "none"),
    "an analysis that is a file": text("analyses/x", "none"),
    "facts that are none": analysis(text("analyses/x/facts.json", '{"sentence": [1], "protocol": 5}')),
    "facts with line breaks": analysis(
        text("analyses/x/facts.json", json.dumps({"sentence": f"a{BREAKS}", "protocol": {"models": [BREAKS]}}))
    ),
    "line breaks as a reference": protocol({"reference": f"digits{BREAKS}", "solver": BREAKS, "extractor": BREAKS}),
    "line breaks in names": record(lambda run: run.update(name=BREAKS, method=f"uniform{BREAKS}", git=BREAKS)),
    "line breaks in overrides": record(lambda run: run.update(overrides=[f"seed=1{BREAKS}"], command=BREAKS)),
    "line breaks in an error": record(
        lambda result: result.update(status="failed", error={"type": BREAKS, "message": BREAKS, "traceback": BREAKS}),
        "result.json",
    ),
    "an error that is a list": record(lambda result: result.update(status="failed", error=[1]), "result.json"),
    "a status of its own": record(lambda result: result.update(status="</script>"), "result.json"),
    "a status that is a number": record(lambda result: result.update(status=5), "result.json"),
    "a step that is a text": record(lambda result: result.update(step="x", seconds="y"), "result.json"),
    "a negative time": record(lambda result: result.update(seconds=-1.0, images_per_second=-5), "result.json"),
    "metrics that are infinite": line("metrics.jsonl", **{"val/loss": float("inf"), "val/loss_t": [float("nan")]}),
    "many names of metrics": text(
        "evaluations.jsonl",
        "".join(json.dumps({"step": 1, "name": f"m{i}", "value": 1.0, "protocol": {}}) + "\n" for i in range(300)),
    ),
    "names that are formulas": line("evaluations.jsonl", name="=cmd()", value=1.0, protocol={"samples": "=1+1"}),
    "a name that is a list": line("evaluations.jsonl", name=[1], value=1.0, protocol={}),
    "zero bytes": text("metrics.jsonl", b"\0" * 1000),
    "half a character": text("metrics.jsonl", b'{"step": 1, "val/loss": 1.0, "x": "\xf0\x9f'),
    "a surrogate": record(lambda run: run.update(method="\ud800", name="\udfff")),
    "a seed that is a list": record(lambda run: run["config"].update(seed=[1])),
    "no kind of model": record(lambda run: run["config"].update(model=[], max_steps="x", batch_size=None)),
    "classes that are none": record(lambda run: run.update(data={"classes": {"a": 1}, "train": 5, "name": []})),
    "labels that are none": record(lambda run: run.update(labels=[1], tags={"a": []})),
    "a hash that is a number": record(lambda run: run.update(config_hash=5)),
    "own parts that are none": record(lambda run: run.update(own_parts=[1], signature={"a": 1})),
    "an unusual data set": record(lambda run: run.update(dataset={"_target_": [5]}, global_batch=1e308)),
}
RECORDS: dict[str, Payload] = {  # of which nothing but a sentence is reported
    **{f"link as {name}": link(name) for name in ("run.json", "result.json")},
    **{f"FIFO as {name}": fifo(name) for name in ("run.json", "result.json")},
    **{f"folder as {name}": folder(name) for name in ("run.json", "result.json")},
    "circle as run.json": circle("run.json"),
    "device as run.json": zeros("run.json"),
    "a terabyte as run.json": sparse("run.json"),
    "brackets": text("run.json", "[" * 200_000),
    "a deep configuration": record(lambda run: run["config"].update(sampler=nested(900))),
    "another encoding": text("run.json", '{"config": {}}'.encode("utf-16")),
    "nothing": text("run.json", ""),
}
ALL = FILES | RECORDS


@pytest.fixture
def mine(in_folder: Path) -> Path:
    """Private files beside the folder of runs."""
    place = in_folder / "mine"
    place.mkdir()
    (place / "words").write_text(json.dumps({"step": 1, "sentence": SECRET, "config": {"x": SECRET}, "val/loss": 1.0}))
    (place / "picture").write_bytes(picture())
    return place


def check(mine: Path, capsys: pytest.CaptureFixture[str], before: dict[Path, bytes]) -> str:
    """Nothing private is on the page or printed, and nothing elsewhere has changed; returns what was printed."""
    printed = "".join(capsys.readouterr())
    shown = printed + "".join(path.read_text() for path in Path().glob("*.html"))
    shown += "".join(path.read_text() for path in Path().glob("runs/*.html"))
    assert SECRET not in shown and "Traceback" not in shown
    assert "\x1b" not in shown and not any(one.lstrip().startswith("FORGED") for one in printed.splitlines())
    for name in ("words", "picture"):
        assert base64.b64encode((mine / name).read_bytes()).decode()[:200] not in shown
    assert contents(mine) == before
    return printed


def contents(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file() and not path.is_symlink()}


@pytest.fixture
def every(mine: Path) -> Path:
    """A folder with one run per payload, and a good one of another method."""
    for seed, (name, payload) in enumerate(ALL.items()):
        run = Path("runs").resolve() / name.replace("/", "_").replace(" ", "_")
        write_run(run, "uniform", seed, steps=250)
        payload(run, mine)
    write_run(Path("runs/good"), "logit_normal", 30, steps=250)
    return mine


def test_no_payload_ends_the_report_of_the_others(every: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(every)
    with limited(30):
        assert main(["report", "runs"]) == 0
    printed = check(every, capsys, before)
    assert "logit_normal" in printed
    for name in RECORDS:
        assert f"{DAMAGED:<12}{name.replace('/', '_').replace(' ', '_')}" in printed, name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "runs:uniform", "runs:logit_normal"], "logit_normal compared with uniform"),
        (["dashboard", "runs", "--offline"], "panels: "),
    ],
)
def test_no_payload_ends_other_commands(
    words: list[str], says: str, every: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(every)
    if words[0] == "dashboard":  # whose sweeps would repeat what the run asks for
        for name in ("line_breaks_in_overrides", "overrides_that_are_none"):  # in this order
            assert main(words) == 2 and "an override must read key=value" in capsys.readouterr().err
            shutil.rmtree(f"runs/{name}")
    else:
        shutil.rmtree("runs/an_unusual_data_set")  # which is no data set to compare with
        shutil.rmtree("runs/classes_that_are_none")  # whose data are others than those of the rest
    with limited(30):
        assert main(words) == 0
    assert says in check(every, capsys, before)


@pytest.mark.usefixtures("without_figures")
def test_a_run_that_nobody_has_thought_of_is_set_apart(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with it is not found when it is read."""
    for seed in range(2):
        write_run(Path(f"runs/{seed}"), "uniform", seed, steps=250)
    real = samples.embed

    def broken(path: Path, *more: object) -> object:
        if path.parts[-3] == "1":
            raise KeyError("of a kind of its own")
        return real(path, *more)

    monkeypatch.setattr(samples, "embed", broken)
    assert main(["report", "runs"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "a report of it fails (KeyError: 'of a kind of its own'), which is a fault of diffusion-lab and not" in told
    assert "the traceback that the same command prints after DIFFUSION_LAB_TRACEBACK=1" in told
    assert "runs: 1 done, 1 unreported" in told
    monkeypatch.setenv("DIFFUSION_LAB_TRACEBACK", "1")
    assert main(["report", "runs"]) == 0
    assert "Traceback" in capsys.readouterr().err
    with pytest.raises(ValueError, match="metric=fid must"):  # an option is at fault, and no run
        set_apart(
            read_runs("runs"), lambda folder: sections_of(folder.runs, "fid"), lambda folder: sections_of(folder.runs)
        )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnidentifiedImageError("no picture"), "damaged"),
        (zlib.error("incomplete"), "damaged"),
        (EOFError("it ends early"), "damaged"),
        (TypeError("a fault"), "unreported"),
        (ValueError("x and y must have the same first dimension"), "unreported"),
    ],
)
def test_only_what_cannot_be_read_is_damage(error: Exception, status: str, in_folder: Path) -> None:
    write_run(Path("runs/0"), "uniform", 0, steps=250)

    def fails(folder: RunFolder) -> RunFolder:
        if folder.runs[0].info:
            raise error
        return folder

    (run,) = set_apart(read_runs("runs"), fails, fails).runs
    assert run.status == status and type(error).__name__ in run.cause


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_a_full_disk_is_no_fault_of_a_run(error: Exception, in_folder: Path) -> None:
    write_run(Path("runs/0"), "uniform", 0, steps=250)

    def fails(folder: RunFolder) -> None:
        raise error

    with pytest.raises(type(error)):
        set_apart(read_runs("runs"), fails, fails)


@pytest.mark.usefixtures("without_figures")
def test_a_comparison_leaves_out_the_run_that_would_end_it(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for sampler in ("uniform", "logit_normal"):
        for seed in range(2):
            write_run(Path(f"runs/{sampler}-{seed}"), sampler, seed, steps=250)
    real = samples.embed

    def broken(path: Path, *more: object) -> object:
        if path.parts[-3] == "logit_normal-0":
            raise KeyError("of a kind of its own")
        return real(path, *more)

    monkeypatch.setattr(samples, "embed", broken)
    assert main(["compare", "runs:uniform", "runs:logit_normal"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "unreported logit_normal-0 its files can be read, and a report of it fails (KeyError" in told
    assert Path("compare.html").is_file()
    shutil.rmtree("runs/logit_normal-1")
    assert main(["compare", "runs/uniform-0", "runs/logit_normal-0"]) == 2
    assert "B=runs/logit_normal-0 must have a run that has begun to train and can be read; its files can be read" in (
        capsys.readouterr().err
    )


@pytest.mark.usefixtures("without_figures")
def test_a_run_that_is_wrong_beside_others_alone_is_set_apart(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither half of the runs fails, and the report of all does."""
    for seed in range(4):
        write_run(Path(f"runs/{seed}"), "uniform", seed, steps=250)
    real = sections.collect

    def clashing(runs: Sequence[Run], *more: object) -> object:
        if {"1", "2"} <= {run.folder.name for run in runs if run.status == "done"}:
            raise ValueError("all arrays must have the same shape")
        return real(runs, *more)

    monkeypatch.setattr("diffusion_lab.reports.comparison.sections.collect", clashing)
    assert main(["report", "runs"]) == 0
    assert "runs: 3 done, 1 unreported" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["metrics that are infinite", "an unusual data set"])
def test_one_seed_of_two_groups_is_wrong(name: str, mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(2):
        write_run(Path(f"runs/a{seed}"), "uniform", seed, steps=250)
        write_run(Path(f"runs/b{seed}"), "logit_normal", seed, steps=250)
    FILES[name](Path("runs/a0").resolve(), mine)
    before = contents(mine)
    assert main(["report", "runs"]) == 0
    assert "runs: 4 done" in check(mine, capsys, before)


SWEEPS: dict[str, Callable[[Path], object]] = {
    "a job above": lambda sweep: job(sweep, "../../theirs"),
    "a job anywhere": lambda sweep: job(sweep, str(Path("theirs").resolve())),
    "a job behind a link": lambda sweep: (job(sweep, "link"), (sweep / "link").symlink_to(Path("theirs").resolve())),
    "a job below a link": lambda sweep: (job(sweep, "up/theirs"), (sweep / "up").symlink_to(Path().resolve())),
    "a job in a circle": lambda sweep: (job(sweep, "circle"), (sweep / "circle").symlink_to("circle")),
    "a job without a name": lambda sweep: job(sweep, "/"),
    "jobs that are none": lambda sweep: (sweep / "sweep.json").write_text(
        '{"commands": ["x"], "jobs": [5, {"dir": [1]}]}'
    ),
    "a FIFO": lambda sweep: os.mkfifo(sweep / "sweep.json"),
    "a device": lambda sweep: (sweep / "sweep.json").symlink_to("/dev/zero"),
    "brackets": lambda sweep: (sweep / "sweep.json").write_text("[" * 200_000),
    "a folder that leads back": lambda sweep: (sweep / "back").symlink_to(sweep.resolve()),
}


def job(sweep: Path, name: str) -> None:
    jobs = [{"dir": name, "overrides": []}, {"dir": "pending", "overrides": []}]
    (sweep / "sweep.json").write_text(json.dumps({"commands": ["x"], "jobs": jobs}))


def test_a_sweep_leads_nowhere_else(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("runs/good"), "logit_normal", 0, steps=250)
    write_run(Path("theirs"), "uniform", 0, steps=250)
    record(lambda run: run.update(method=SECRET, command=SECRET))(Path("theirs"), in_folder)
    for number, make in enumerate(SWEEPS.values()):
        Path(f"runs/{number}").mkdir()
        make(Path(f"runs/{number}"))
    with limited(20):
        assert main(["report", "runs"]) == 0
    printed = " ".join(capsys.readouterr().out.split())  # in lines that fit the terminal
    assert "logit_normal" in printed and SECRET not in printed + Path("runs/report.html").read_text()
    assert "leads outside of the folder" in printed and "circle is a link, which may lead outside" in printed


def test_a_dashboard_is_not_written_elsewhere(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("runs/good"), "logit_normal", 0, steps=250)
    Path("elsewhere").mkdir()
    Path("runs/dashboard").symlink_to(Path("elsewhere").resolve())
    assert main(["dashboard", "runs", "--offline"]) == 2
    assert "outside of the folder" in capsys.readouterr().err and not list(Path("elsewhere").iterdir())
    Path("runs/dashboard").unlink()
    Path("runs/dashboard").mkdir()
    os.mkfifo("runs/dashboard/sweep-2.yaml")
    with limited(5):
        assert main(["dashboard", "runs", "--offline"]) == 2
    assert "sweep-2.yaml is neither a file nor a folder" in capsys.readouterr().err


@pytest.mark.parametrize("make", ["link", "FIFO", "folder"])
def test_a_prepared_temporary_file_is_not_written_through(make: str, mine: Path) -> None:
    """The names that a report of this process would have used, if they could be known."""
    write_run(Path("runs/good"), "logit_normal", 0, steps=250)
    place = Path(f"runs/.report.html.{os.getpid()}")
    {"link": lambda: place.symlink_to(mine / "words"), "FIFO": lambda: os.mkfifo(place), "folder": place.mkdir}[make]()
    before = contents(mine)
    with limited(5):
        assert main(["report", "runs"]) == 0
    assert contents(mine) == before and Path("runs/report.html").stat().st_size > 1000


def test_zip_bombs_are_no_arrays(tmp_path: Path) -> None:
    from diffusion_lab.npz import MOST, unpack

    def archive(header: bytes, body: bytes = b"") -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a.npy", header + body)
        return buffer.getvalue()

    def header(shape: str, kind: str = "<f8") -> bytes:
        words = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(words) + 1) + words + b"\n"

    assert unpack(archive(header("(2,)"), np.arange(2.0).tobytes()))["a"].tolist() == [0.0, 1.0]
    bombs = {
        "7 TiB": header("(962072674304,)"),
        "a product that overflows": header("(4294967296, 4294967296, 4294967296)"),
        "negative": header("(-5, -5)"),
        "objects": header("(1,)", "|O"),
        "no kind": header("(1,)", "nothing"),
        "brackets": header("(" * 5000),
        "no header": b"abc",
    }
    for name, content in bombs.items():
        with limited(5), pytest.raises(ValueError):
            unpack(archive(content)), name
    with limited(5), pytest.raises(ValueError, match="more memory"):
        unpack(archive(header(f"({MOST // 8},)"), bytes(MOST)))
    for content in (b"", b"PK", b"\x93NUMPY"):
        with pytest.raises(ValueError):
            unpack(content)


@pytest.mark.parametrize("kind", ["settings", "FIFO"])
def test_the_working_folder_has_no_say_in_the_figures(kind: str, in_folder: Path) -> None:
    """A `matplotlibrc` may name a backend, which is a module; the user's own is read."""
    os.mkfifo("matplotlibrc") if kind == "FIFO" else Path("matplotlibrc").write_text("figure.dpi: 50\n")
    Path("own").mkdir()
    Path("own/matplotlibrc").write_text("savefig.dpi: 60\n")
    code = (
        "from diffusion_lab.cli.main import main; main(['--version']); import matplotlib, os; "
        "print(matplotlib.rcParams['figure.dpi'], matplotlib.rcParams['savefig.dpi'], os.getcwd())"
    )
    environment = os.environ | {"MPLCONFIGDIR": str(in_folder / "own")}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert told.stdout.splitlines()[1:] == [f"100.0 60.0 {in_folder}"], told.stderr
