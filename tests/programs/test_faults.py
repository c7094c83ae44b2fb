"""`make faults`: its parts are found and its cases have names of their own, results are kept, and the table says what
was wrong. The campaign itself is no test."""

from __future__ import annotations

import ast
import importlib
import random
import time
from pathlib import Path

import pytest

import tests.faults.parts
from diffusion_lab.cli.config import compose_train
from tests.faults import __main__ as campaign
from tests.faults import table
from tests.faults.case import Case, Outcome, total
from tests.faults.kept import Kept
from tests.faults.mutate import mutation
from tests.faults.pool import run

FOLDER = Path(tests.faults.parts.__file__).parent


def test_every_file_is_a_part() -> None:
    assert campaign.names() == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", campaign.names())
def test_a_part_says_what_it_does_and_its_cases_have_names_and_folders_of_their_own(name: str) -> None:
    title = (ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or "").split("\n")[0]
    assert title.endswith(".") and len(title) <= 80
    module = importlib.import_module(f"tests.faults.parts.{name}")
    for quick in (True, False):
        cases = module.cases(quick)
        assert cases and len({case.folder for case in cases}) == len(cases)
    assert len(module.cases(True)) <= len(module.cases(False))


def test_the_issue_asks_for_that_many() -> None:
    count = {name: importlib.import_module(f"tests.faults.parts.{name}").cases(False) for name in campaign.names()}
    assert sum(case.name.startswith("mutation") for case in count["configurations"]) == 250
    assert sum(case.name.startswith("bit flips") for case in count["damage"]) == 200
    for number in ("SIGTERM", "SIGINT", "SIGHUP"):
        assert sum(case.name.startswith(number) for case in count["signals"]) == 30
    assert 3 * len(count["kills"]) >= 100


def fine(folder: Path) -> Outcome:
    return Outcome(counts={"runs": 1})


def different(folder: Path) -> Outcome:
    outcome = Outcome(counts={"runs": 1}, differences=["weights"])
    outcome.read("said\nTraceback (most recent call last):\n  File ...\nKeyError: 'momentum'\n")
    return outcome


def broken(folder: Path) -> Outcome:
    raise KeyError("nobody expected this")


def endless(folder: Path) -> Outcome:
    time.sleep(600)
    return Outcome()


def test_what_becomes_of_cases(tmp_path: Path) -> None:
    cases = [Case("fine", fine), Case("different", different), Case("broken", broken), Case("endless", endless, 0.5)]
    found: dict[str, Outcome] = {}
    run(cases, tmp_path, 2, lambda case, outcome: found.update({case.name: outcome}))
    assert found["fine"].wrong == [] and not (tmp_path / "fine").exists()
    assert found["different"].wrong == ["difference: weights", "traceback: KeyError: 'momentum'"]
    assert "nobody expected this" in found["broken"].wrong[0] and (tmp_path / "broken").is_dir()
    assert found["endless"].wrong == ["problem: took more than 0 s"]
    whole = total(found.values())
    assert whole.counts == {"runs": 2} and len(whole.wrong) == 4


def test_results_are_kept_for_one_state_of_the_code(tmp_path: Path) -> None:
    path, case = tmp_path / "kept.jsonl", Case("one", fine)
    Kept(path, "abc").add(case, different(tmp_path))
    assert Kept(path, "abc").outcomes == {"one": different(tmp_path)}
    path.write_text(path.read_text() + '{"code": "abc", "ca')  # killed while it wrote
    assert Kept(path, "abc").outcomes.keys() == {"one"}
    assert Kept(path, "abd").outcomes == {}


def test_the_table_has_a_row_for_each_part_and_the_page_is_kept(tmp_path: Path, monkeypatch) -> None:
    page = tmp_path / "faults.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    monkeypatch.setattr(table, "PAGE", page)
    table.write([table.Row("kills", "SIGKILL", Outcome({"kills": 1234}, ["a", "b"], ["c"], [], 90.0))])
    text = page.read_text()
    assert "| `kills` | SIGKILL | 1,234 kills | 2 | 1 | 0 | 1.5 min |" in text
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert table.BEGIN in table.PAGE.read_text()


def test_a_mutation_is_a_function_of_its_name(tmp_path: Path) -> None:
    cfg = compose_train([], tmp_path)
    words = [mutation(cfg, random.Random(name)).words for name in map(str, range(60))]
    assert words == [mutation(cfg, random.Random(name)).words for name in map(str, range(60))]
    assert len({word for (word,) in words}) > 50
    assert not any(word.lstrip("+~").startswith(("hydra", "paths")) for (word,) in words)
