"""The pages of options are what their yaml files, docstrings and committed values say now."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest
from hydra import compose
from omegaconf import open_dict

from diffusion_lab.cli.checks.nodes import KINDS
from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.errors import MissingHere
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.recorded_words import words_for_train
from diffusion_lab.cli.validate import check
from experiments import crossed, crossed_page, option_figures, option_measured, option_pages

PLACEHOLDER = re.compile(r"=(PLACE|DIR\b|RUN|p\.txt)")


def test_no_page_is_stale() -> None:
    stale = [str(page.relative_to(option_pages.FOLDER)) for page in option_pages.stale()]
    assert stale == [], "`make test-quick` writes them when it fails, and so does `make pages`; read and commit them"


@pytest.mark.pages
@pytest.mark.parametrize("group", sorted(option_pages.groups()))
def test_the_commands_of_a_page_can_be_run(group: str) -> None:
    """Of 18 pages they could not: a GAN's network beside a denoiser's parts, a network of 64 pixels on digits of 8."""
    register_resolvers()
    for path in sorted((option_pages.FOLDER / group).glob("*.md")):
        tried = path.read_text().partition("## Try it")[2].partition("\n## ")[0]
        for command in re.findall(r"^    diffusion-lab train (.*)$", tried, re.M):
            words = shlex.split(command)
            if "-m" in words:
                continue
            with initialized(conf_dir()):
                cfg = compose("train", overrides=words_for_train(words))
            with open_dict(cfg):
                cfg.paths.run_dir = "run"
            # A page may name a place of the reader's, and a data set that is not on this machine.
            wrong = [error for error in check(cfg) if not isinstance(error, MissingHere)]
            assert not [str(error) for error in wrong if not PLACEHOLDER.search(str(error))], command


def test_every_part_of_a_run_has_a_page_and_every_picture_is_shown() -> None:
    written = {path: path.read_text() for path in option_pages.FOLDER.glob("*/**/*.md")}
    with_pages = {path.parent.relative_to(option_pages.FOLDER).as_posix() for path in written}
    of_parts = {key.removesuffix(".*") for key in KINDS} - {"dataset.features"}
    assert len(written) > 200 and with_pages >= {*of_parts, "method", "sampler/distribution"}
    assert not with_pages & {"experiment", "table", "scale"}
    links = {
        (path.parent / name).resolve() for path in written for name in re.findall(r"`\]\(([\w/.]+)\)", written[path])
    }
    assert links and links <= written.keys()
    pictures = {path.relative_to(option_pages.FOLDER) for path in option_pages.FOLDER.glob("**/*.svg")}
    shown = {
        (path.parent / name).relative_to(option_pages.FOLDER)
        for path, text in written.items()
        for name in re.findall(r"\]\((\w+\.svg)\)", text)
    }
    assert pictures == shown and len(pictures) > 25


def test_negative_control_another_docstring_or_value_makes_a_page_stale(tmp_path: Path, monkeypatch) -> None:
    page = option_pages.FOLDER / "sampler" / "mode.md"
    text = page.read_text()
    assert "0.73 [" in text and "equation 20" in text
    rows = list(csv.reader((crossed.FOLDER / "digits.values.csv").read_text().splitlines()))
    column = rows[0].index("value")
    for row in rows[1:]:
        row[column] = str(float(row[column]) * (1.1 if row[:3] == ["cosine", "v", "mode"] else 1.0))
    with open(tmp_path / "digits.values.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    monkeypatch.setattr(crossed_page, "FOLDER", tmp_path)
    option_measured.gains_of_the_study.cache_clear()
    try:
        assert page in option_pages.stale()
    finally:
        option_measured.gains_of_the_study.cache_clear()


def test_pictures_are_alike_in_what_they_show() -> None:
    """The names of clip paths have digits, which differ between processors where the last bit of a limit does."""
    path = b'<g clip-path="url(#p7bee132ee2)"><path id="m4a7bc132e0" d="M 1.5 2"/>'
    one = path + b'<use xlink:href="#m4a7bc132e0" fill="#e6e6e6"/><use xlink:href="#DejaVuSans-31"/></g>'
    assert option_figures.alike(one, one.replace(b"p7bee132ee2", b"pa1b2c3d4e5").replace(b"4a7bc132e0", b"0123456789"))
    assert option_figures.alike(one, one.replace(b"1.5", b"1.51"))
    assert not option_figures.alike(one, one.replace(b"1.5", b"2.5"))
    assert not option_figures.alike(one, one.replace(b"e6e6e6", b"e6e5e6"))
    assert not option_figures.alike(one, one.replace(b"e6e6e6", b"f6e6e6"))
    assert not option_figures.alike(one, one.replace(b"Sans-31", b"Sans-32"))


@pytest.mark.pages
def test_the_figures_are_the_same_again(tmp_path: Path, monkeypatch) -> None:
    pages = option_pages.FOLDER
    committed = {path.relative_to(pages): path.read_bytes() for path in pages.glob("**/*.svg")}
    for group in option_pages.DRAWN:
        (tmp_path / group).mkdir()
    monkeypatch.setattr(option_figures, "PAGES", tmp_path)
    option_figures.main()
    again = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.glob("**/*.svg")}
    assert again.keys() == committed.keys()
    differ = [str(path) for path in again if not option_figures.alike(again[path], committed[path])]
    assert differ == [], "`make test-pages` writes them when it fails, and so does `make pages`; look and commit them"
