"""`python -m benchmarks`: it finds every file, keeps the README around the table, and says what failed."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

import benchmarks.lines
from benchmarks import __main__ as command
from benchmarks import measured, table
from benchmarks.measured import Benchmark, measure, names
from benchmarks.paired import Ratio, interleaved, ratio
from benchmarks.table import Line, at_least, at_most
from tests.harness import Child

FOLDER = Path(benchmarks.lines.__file__).parent
ONE = Ratio(1.0, 0.9, 1.1, 3)
FAILS = '"""What cannot be measured."""\n\ndef lines():\n    yield\n    raise ValueError("no | luck")\n'


def test_every_file_is_found() -> None:
    assert names() == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    assert {"data", "growth", "startup", "sweep", "timestep_log"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_a_file_says_what_it_measures_and_how(name: str) -> None:
    """Read, not imported: some import peers that only the benchmarks need."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    said = ast.get_docstring(tree) or ""
    title = said.split("\n")[0]
    assert title.endswith(".") and len(title) <= 120
    assert len(said) > len(title) + 100  # the protocol
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "lines"] == ["lines"]


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (at_least(1.15), 1.15, True),
        (at_least(1.15), 1.145001, True),  # it is printed as 1.15
        (at_least(1.15), 1.144, False),
        (at_most(0.7), 0.7, True),
        (at_most(0.7), 0.704, True),
        (at_most(0.7), 0.706, False),
    ],
)
def test_a_goal_is_met_at_its_bound(goal, value: float, met: bool) -> None:
    assert goal.met(value) is met
    assert Line("x", Ratio(value, value, value, 1), goal).cells()[3] == ("yes" if met else "no")


def test_versions_leave_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table.versions()
    monkeypatch.setattr(table, "LIBRARIES", ("torch", "no-such-library", *table.LIBRARIES[1:]))
    assert table.versions() == whole and ", torch " in whole


def test_a_line_without_a_goal_and_one_with_a_note() -> None:
    assert Line("x", ONE, unit="us").cells() == ("x", "1.00 [0.90, 1.10] us", "", "")
    assert Line("x", Ratio.of([2.0])).cells()[1] == "2.00 [n=1]"
    assert Line("x", ONE, at_least(2), note="no bfloat16").cells()[2:] == (">= 2", "no: no bfloat16")


def test_the_table_stands_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "README.md"
    before, after = f"# Before\n\n{table.BEGIN}", f"{table.END}\n\n# After\n"
    copy.write_text(f"{before}\nold\n{after}")
    monkeypatch.setattr(table, "README", copy)
    for text in ("first", "second"):
        table.write(text)
        assert copy.read_text() == f"{before}\n\n{text}\n\n{after}"


def test_one_part_of_the_table_is_replaced_on_the_same_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(f"# Before\n\n{table.BEGIN}\n{table.END}\n")
    monkeypatch.setattr(table, "README", copy)
    first, second = (Benchmark(name, name, [Line("a", ONE)], 1.0) for name in ("first", "second"))
    table.write("\n\n".join([table.heading(1.0), table.section(first), table.section(second)]))
    before = copy.read_text()
    assert table.update(second) and copy.read_text() == before
    assert table.update(second._replace(lines=[Line("b", ONE)]))
    assert copy.read_text().count("| a |") == copy.read_text().count("| b |") == 1
    assert copy.read_text().index("| a |") < copy.read_text().index("| b |")
    now = copy.read_text()
    assert table.update(Benchmark("new", "new", [Line("c", ONE)], 1.0))  # of a file that is newer than the table
    assert copy.read_text().replace(table.section(Benchmark("new", "new", [Line("c", ONE)], 1.0)) + "\n\n", "") == now
    assert copy.read_text().index("| a |") < copy.read_text().index("| c |") < copy.read_text().index("| b |")
    now = copy.read_text()
    monkeypatch.setattr(table, "place", lambda: "another machine.")
    assert not table.update(second) and copy.read_text() == now


def test_the_readme_has_its_marks() -> None:
    text = table.README.read_text()
    assert text.count(table.BEGIN) == text.count(table.END) == 1
    assert text.index(table.BEGIN) < text.index(table.END)


def test_a_section_shows_lines_and_what_failed() -> None:
    text = table.section(Benchmark("x", "Title", [Line("a", ONE, at_most(1))], 3.0, "ValueError: a | b\nmore"))
    assert "### Title: `make bench ONLY=x` (" in text and ", 3 s)" in text
    assert "| a | 1.00 [0.90, 1.10] | <= 1 | yes |" in text
    assert "| failed |  |  | ValueError: a / b |" in text


@pytest.mark.parametrize(("error", "code"), [("", 0), ("ValueError: no luck", 1)])
def test_the_exit_code_says_whether_all_was_measured(
    error: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    written, replaced = [], []
    monkeypatch.setattr(command, "names", lambda: ["good", "other"])
    monkeypatch.setattr(
        command, "measure", lambda name: Benchmark(name, name, [Line("a", ONE)], 1.0, error if name == "other" else "")
    )
    monkeypatch.setattr(command, "heading", lambda minutes: "heading")
    monkeypatch.setattr(command, "write", written.append)
    monkeypatch.setattr(command, "update", lambda result: replaced.append(result.name) or True)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "good"])
    assert command.main() == 0 and written == [] and replaced == ["good"]
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    assert command.main() == code
    assert len(written) == 1 and ("| failed |" in written[0]) is bool(error)
    assert capsys.readouterr().out.count("### good") == 2
    monkeypatch.setattr(sys, "argv", ["benchmarks", "nothing"])
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 2


def test_a_benchmark_that_raises_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    sent = []

    class Out:
        send = sent.append

    (tmp_path / "fails.py").write_text(FAILS)
    monkeypatch.setattr(benchmarks.lines, "__path__", [str(tmp_path)])
    assert names() == ["fails"]
    measured._lines("fails", Out())
    sys.modules.pop("benchmarks.lines.fails")
    assert sent == [("title", "What cannot be measured"), ("line", None), ("error", "ValueError: no | luck")]
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow
def test_a_benchmark_in_a_process_of_its_own(capsys: pytest.CaptureFixture) -> None:
    result = measure("no_such_benchmark")
    assert result.lines == [] and "ModuleNotFoundError" in result.error


@pytest.mark.slow
def test_every_benchmark_can_be_imported(tmp_path: Path) -> None:
    Child(lambda: [importlib.import_module(f"benchmarks.lines.{name}") for name in names()], tmp_path / "log").succeed()


def test_turns_are_divided_round_by_round() -> None:
    assert ratio([2.0, 9.0, 8.0], [1.0, 3.0, 2.0]) == Ratio(3.0, 2.0, 4.0, 3)
    ticks = iter(range(100))
    seconds = interleaved({"a": list, "b": list}, rounds=2, warmup=1, clock=lambda: next(ticks))
    assert seconds == {"a": [1, 1], "b": [1, 1]} and next(ticks) == 12
