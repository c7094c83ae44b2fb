"""What `make docs` gives to mkdocs: every page, with its links, and every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from experiments import site
from tests.programs.test_guides import anchors


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build") / "site"
    site.write(folder)
    return folder


def test_the_menu_has_every_guide_and_leads_to_pages_that_are_there(written: Path) -> None:
    menu = yaml.safe_load((written / "mkdocs.yml").read_text())["nav"]
    named = re.findall(r"'([^']+\.md)'", str(menu))
    assert all((written / "pages" / page).is_file() for page in named)
    guides = {f"docs/{path.name}" for path in (site.ROOT / "docs").glob("*.md")}
    assert guides <= set(named)


def test_cells_of_tables_may_have_several_lines(written: Path) -> None:
    """The theme keeps them on one, so that all but the beginning of a key's meaning is out of sight."""
    (css,) = yaml.safe_load((written / "mkdocs.yml").read_text())["extra_css"]
    assert (
        ".wy-table-responsive table td, .wy-table-responsive table th { white-space: normal;"
        in (written / "pages" / css).read_text()
    )


def test_links_between_pages_hold_in_the_site(written: Path) -> None:
    pages = written / "pages"
    for page in [pages / "README.md", *(pages / "docs").glob("*.md"), *(pages / "experiments").glob("*/README.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if re.match(r"[a-z]+:", target) or there.suffix != ".md":
                continue
            assert there.is_file(), (page.name, target)
            assert not anchor or anchor in anchors(there), (page.name, target)


def test_every_public_name_is_in_the_reference(written: Path) -> None:
    for name in site.NAMES.read_text().split():
        page = written / "pages" / "api" / f"{name.rpartition('.')[0]}.md"
        assert f"::: {name}\n" in page.read_text()
