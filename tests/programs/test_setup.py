"""`make setup` with an environment whose Python, pip and uv write down how they were called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# `python -m venv FOLDER` makes an environment of this very script; `pip install uv` puts a uv beside it.
PYTHON = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
-c*) ;;
"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$here/uv" "$3/bin"; mv "$3/bin/uv" "$3/bin/_uv"; cp "$0" "$3/bin/python" ;;
*" uv") echo "pip: uv" >>log; [ -z "$NO_UV" ] && mv "$here/_uv" "$here/uv" ;;
*) echo "pip: $*" >>log; case "$*" in *"$UNREACHABLE"*) exit 1 ;; esac ;;
esac
"""
UV = """#!/bin/sh
echo "uv: $*" >>log
case "$*" in *"$UNREACHABLE"*) exit 1 ;; esac
"""
EVERYTHING = "-e .[dev]"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "tools").mkdir()
    for name, text in {"python": PYTHON, "uv": UV}.items():
        (tmp_path / "tools" / name).write_text(text)
        (tmp_path / "tools" / name).chmod(0o755)
    return tmp_path


def setup(checkout: Path, *words: str, path: str = "/usr/bin:/bin", **environment: str) -> tuple[int, str, list[str]]:
    """The exit code of `make setup`, what it says, and who was called to install what."""
    command = ["make", "setup", f"PYTHON={checkout}/tools/python", *words]
    env = {"PATH": path, "UNREACHABLE": "nothing at all"} | environment
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
    calls = (checkout / "log").read_text().splitlines() if (checkout / "log").exists() else []
    assert (checkout / ".venv" / ".done").exists() == (done.returncode == 0)
    return done.returncode, done.stdout + done.stderr, calls


def installs(call: str, tool: str, what: str) -> bool:
    return call.startswith(f"{tool}: ") and "-c constraints.txt" in call and call.endswith(what)


def test_uv_is_brought_into_the_environment(checkout: Path) -> None:
    code, said, (brought, call) = setup(checkout)
    assert code == 0 and "6.1 GB" in said
    assert brought == "pip: uv" and installs(call, "uv", EVERYTHING)


def test_the_uv_of_the_machine_is_used(checkout: Path) -> None:
    code, _, (call,) = setup(checkout, path=f"{checkout}/tools:{os.defpath}")
    assert code == 0 and installs(call, "uv", EVERYTHING)


@pytest.mark.parametrize("why", [{"NO_UV": "1"}, {"UNREACHABLE": "--python .venv/bin/python -c"}])
def test_pip_does_it_where_uv_cannot(checkout: Path, why: dict[str, str]) -> None:
    code, _, calls = setup(checkout, **why)
    assert code == 0 and installs(calls[-1], "pip", EVERYTHING)


def test_the_build_for_cpus_comes_from_its_index_alone(checkout: Path) -> None:
    code, said, (_, first, second) = setup(checkout, "CPU=1", "CPU_INDEX=file:///mirror")
    assert code == 0 and "1.7 GB" in said and "6.1 GB" not in said
    assert installs(first, "uv", "--no-deps --index-url file:///mirror torch torchvision")
    assert installs(second, "uv", EVERYTHING)


def test_without_the_index_of_builds_for_cpus_nothing_is_installed(checkout: Path) -> None:
    code, said, calls = setup(checkout, "CPU=1", UNREACHABLE="--index-url")
    assert code != 0 and "CPU_INDEX=URL" in said
    assert not any(EVERYTHING in call for call in calls)
