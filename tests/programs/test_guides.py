"""Every command of the README and the guides is one that works, and every link leads somewhere.

A command of `train` is composed and checked as `train` itself does before step 1; that this machine lacks the images,
the weights or the devices is no error of a page. Other commands must accept their words. What a page runs in full is
tested in `test_readme.py` and `test_python_page.py`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from omegaconf import open_dict

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
MOST_WORDS = 900


def commands(page: Path) -> list[str]:
    """The indented commands of a page, with continued lines joined and comments left out."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^    (diffusion-lab .*)$", text, re.MULTILINE)
    return [" ".join(shlex.split(line, comments=True)) if "'" not in line else line.split("  #")[0] for line in lines]


def trainings() -> list[str]:
    """`train` commands without a place for the reader's own names; every option is composed by `tests/golden`, and a
    search with Optuna runs in `tests/cli/test_optuna.py`."""
    found = [command for page in PAGES if "options" not in page.parts for command in commands(page)]
    own = ("hydra/sweeper=optuna", "--config-dir", "init_from", "resume=", "-sc", "features.weights=FILE", "ckpt")
    return sorted({one for one in found if one.startswith("diffusion-lab train") and not any(w in one for w in own)})


@pytest.mark.pages
@pytest.mark.parametrize("command", trainings())
def test_a_training_of_a_page_composes_and_is_valid(command: str, in_folder: Path) -> None:
    from diffusion_lab.cli.config import compose_train
    from diffusion_lab.cli.errors import MissingHere
    from diffusion_lab.cli.validate import check

    words = [word for word in shlex.split(command)[2:] if word != "-m" and not word.startswith("-")]
    first = [word.partition(",")[0] if _swept(word) else word for word in words]  # the first job of a sweep
    dry = [] if re.search("gan", command) else ["dry_run=true"]  # which is for denoisers, and lets images be missing
    cfg = compose_train([*first, *dry], in_folder / "run")
    with open_dict(cfg):
        del cfg["hydra"]
    errors = [error for error in check(cfg, here=False) if not isinstance(error, MissingHere)]
    assert errors == []


def _swept(word: str) -> bool:
    """Whether a word has several values: a comma outside brackets and quotes."""
    return "," in word and not re.search(r"[\[\]{}'\"]", word.partition("=")[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_guide_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name}" not in text]
    linked = "".join(page.read_text() for page in PAGES[2:])
    assert [name for name in missing if f"({name}" not in linked] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


def test_negative_control_a_wrong_command_and_a_wrong_link_are_noticed(tmp_path: Path, in_folder: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n    diffusion-lab train sampler=unifrom\n\n[x](none.md)\n")
    with pytest.raises(AssertionError):
        test_the_links_of_a_page_lead_somewhere(page)
    with pytest.raises(Exception, match="unifrom"):
        test_a_training_of_a_page_composes_and_is_valid(commands(page)[0], in_folder)
