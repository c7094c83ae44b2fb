"""The whole command on the CPU, as a person runs it: nothing differs, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from diffusion_lab.cli.commands import doctor as command
from diffusion_lab.cli.doctor.check import IMPOSSIBLE, OK, checks_of
from diffusion_lab.cli.main import main

# Each trains thirty steps more. tests/ddp, tests/cli/test_sweep.py and tests/training/test_speed_settings.py have what
# they are about, but for several threads, which are PyTorch's.
ELSEWHERE = {"two_processes", "sweep", "bfloat16", "channels_last", "several_threads"}


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [ELSEWHERE, pytest.param(set(), marks=pytest.mark.exhaustive)], ids=len)
def test_every_claim_holds_here(
    left_out: set[str],
    in_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("CXX", "no-such-compiler")  # torch.compile takes most of a minute
    checks = [check for module in (*command.OF_THE_MACHINE, *command.OF_A_DEVICE) for check in checks_of(module)]
    checks = [check for check in checks if check.function not in left_out]
    only = ["--only", ",".join(check.function for check in checks)] if left_out else []
    code = main(["doctor", "--device", "cpu", "--report", "report.md", *only])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, "\n".join(lines)
    assert [line[2:28].rstrip() for line in lines if line.startswith("  ")] == [check.name for check in checks]
    found = {line[2:28].rstrip(): line[28:] for line in lines if line.startswith("  ")}
    assert all(words.endswith(OK) or words.startswith(IMPOSSIBLE) for words in found.values())
    claims = {"float32", "sampling", "kill_and_resume", *ELSEWHERE}
    for claim in claims - left_out:
        assert found[claim.replace("_", " ")].endswith(f"  {OK}"), claim
    report = Path("report.md").read_text()
    assert "features of digits" in report and "<path>" not in report  # its own words need no slash
    assert [path.name for path in in_folder.iterdir()] == ["report.md"] and not list(temporary.iterdir())
