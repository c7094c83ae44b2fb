"""Heavy imports: what they make is left out of later collections, once."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from diffusion_lab.cli import imports
from tests.harness import Child


def test_what_an_import_makes_is_not_traversed_again_and_freed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "HEAVY", {"torch": "PyTorch", "a_module": "a module"})
    at_exit = []
    monkeypatch.setattr("atexit.register", at_exit.append)

    def work() -> None:
        gc.unfreeze()
        with imports.importing():
            made = [{"number": k} for k in range(1000)]
            assert not gc.isenabled()
        assert gc.isenabled() and gc.get_freeze_count() > len(made) and at_exit == [gc.unfreeze]
        monkeypatch.setattr(imports, "HEAVY", {"torch": "PyTorch"})  # nothing is new
        gc.unfreeze()
        with imports.importing():
            pass
        assert not gc.get_freeze_count() and len(at_exit) == 1

    Child(work, tmp_path / "log").succeed()
