"""docs/runs.md explains every file and folder of a run, and every key of its records."""

import re
from pathlib import Path

import pytest

from diffusion_lab.runs import analyses, names, record

PAGE = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
SUFFIXES = ("CHECKPOINT", "TENSORS")  # no names, but their ends
NAMES = [value for module in (names, analyses) for key, value in vars(module).items()
         if key.isupper() and isinstance(value, str) and key not in SUFFIXES]  # fmt: skip


def section(heading: str) -> str:
    """The text below a heading, to the next one."""
    return re.split(r"^#+ .*\n", PAGE.split(f"# {heading}\n", 1)[1], flags=re.M)[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_every_file_and_folder(name: str) -> None:
    assert f"`{name}" in section("Every file of a run")


def test_the_table_has_what_can_be_deleted_in_every_row() -> None:
    rows = re.findall(r"^\| `.*\|$", section("Every file of a run"), flags=re.M)
    assert len(rows) > 25 and all(len(row.strip("|").split(" | ")) == 4 for row in rows)


@pytest.mark.parametrize(
    ("file", "keys"),
    [(names.RECORD, [*record.RECORD_KINDS]), (names.RESULT, [*record._Result._fields])],
    ids=[names.RECORD, names.RESULT],
)
def test_the_keys_of_a_record_are_explained(file: str, keys: list[str]) -> None:
    assert [key for key in keys if f"`{key}`" not in section(file)] == []
