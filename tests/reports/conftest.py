"""One synthetic sweep, and its report, for all tests of this folder."""

import contextlib
import fcntl
import io

import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.reports import figures
from diffusion_lab.reports.figures import base
from diffusion_lab.reports.pair import page as pair_page
from tests.reports.synthetic import write_sweep


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    """Four methods x two seeds done; one failed, one running (its lock is held here), one lost, one pending."""
    folder = tmp_path_factory.mktemp("runs") / "sweep-digits"
    folder.mkdir()
    write_sweep(folder)
    with open(folder / "digits-stratified-s9-run" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def report(sweep, tmp_path_factory):
    """(what the command prints, where its page is) for the sweep."""
    out, printed = tmp_path_factory.mktemp("out") / "report.html", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([str(sweep), "--out", str(out)]) == 0
    return printed.getvalue(), out


@pytest.fixture(scope="session")
def text(report):
    """The page of the sweep."""
    return report[1].read_text(encoding="utf-8")


@pytest.fixture
def without_figures(monkeypatch):
    """Figures take most of the time of a report and of a comparison; tests of their words do without."""
    monkeypatch.setattr(figures, "of_section", lambda *of: [])
    monkeypatch.setattr(pair_page, "drawn", lambda pair: [])


@pytest.fixture
def drawn(monkeypatch):
    """Matplotlib's figures that are drawn from here on."""
    found = []
    monkeypatch.setattr(base, "data_uri", lambda figure: found.append(figure) or "data:")
    return found
