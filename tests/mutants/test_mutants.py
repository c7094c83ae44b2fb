"""Every mutation can still be applied. Whether it is noticed takes minutes: `make mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import __main__ as program
from tests.mutants.catalogue import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.number)
def test_the_text_of_a_mutation_stands_once(mutant: Mutant) -> None:
    assert program.fault(mutant) == ""
    source = (program.ROOT / mutant.file).read_text()
    compile(source.replace(mutant.old, mutant.new), mutant.file, "exec")  # it fails tests, not the compiler


def test_there_are_enough_and_none_twice() -> None:
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS) >= 20


def _tree(folder: Path) -> Mutant:
    (folder / "number.py").write_text("VALUE = 2 + 2\n")
    (folder / "test_number.py").write_text("from number import VALUE\n\ndef test():\n    assert VALUE == 4\n")
    return Mutant("a sum", "number.py", "2 + 2", "2 - 1", ("test_number.py",))


@pytest.mark.parametrize(
    ("codes", "word"),
    [
        ([1], "caught"),
        ([0, 1], "caught by the whole suite"),
        ([0, 0], "SURVIVED"),
        ([2], "BROKEN (pytest's exit code 2)"),
        ([0, 4], "BROKEN (pytest's exit code 4)"),
    ],
)
def test_what_is_said_of_a_mutation(
    codes: list[int], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant, ran = _tree(tmp_path), []

    def quick(tree: Path, tests: tuple[str, ...]) -> int:
        assert (tree / "number.py").read_text() == "VALUE = 2 - 1\n"
        ran.append(tests)
        return codes[len(ran) - 1]

    monkeypatch.setattr(program, "quick", quick)
    monkeypatch.setattr(program, "quick_warm", quick)
    assert program.verdict(tmp_path, mutant) == word
    assert ran == [("test_number.py",), ("tests",)][: len(codes)]
    assert (tmp_path / "number.py").read_text() == "VALUE = 2 + 2\n"


@pytest.mark.slow
def test_the_tests_run_in_the_copy(tmp_path: Path) -> None:
    mutant = _tree(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    for run in (program.quick, program.quick_warm):
        assert run(tmp_path, mutant.tests) == program.PASSED
        assert run(tmp_path, ("gone.py",)) not in (program.PASSED, program.FAILED)
        assert program.verdict(tmp_path, mutant) == "caught"


def test_what_cannot_be_applied_is_named(tmp_path: Path) -> None:
    mutant = _tree(tmp_path)
    assert program.fault(mutant, tmp_path) == ""
    assert "stands 2 times" in program.fault(mutant._replace(old="2"), tmp_path)
    assert "stands 0 times" in program.fault(mutant._replace(old="3"), tmp_path)
    assert "stands 0 times" in program.fault(mutant._replace(file="gone.py"), tmp_path)
    assert "one line" in program.fault(mutant._replace(new="2 + 2"), tmp_path)
    assert "no tests" in program.fault(mutant._replace(tests=("gone.py",)), tmp_path)
