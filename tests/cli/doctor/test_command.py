"""The command with checks of a moment: its lines, exit codes, time limits and report; whatever a check does."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from diffusion_lab.cli.commands import doctor as command
from diffusion_lab.cli.doctor.check import checks_of
from diffusion_lab.cli.doctor.report import without_names
from diffusion_lab.cli.main import main
from tests.cli.doctor import tiny

Doctor = Callable[..., tuple[int, dict[str, str]]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], in_folder: Path) -> Doctor:
    """doctor(words): exit code, and what stands behind the name of each check."""
    monkeypatch.setattr(command, "OF_THE_MACHINE", (tiny,))
    monkeypatch.setattr(command, "OF_A_DEVICE", ())
    monkeypatch.setenv("PYTHONPATH", str(Path(tiny.__file__).parents[3]))

    def run(*words: str) -> tuple[int, dict[str, str]]:
        code = main(["doctor", *words])
        lines = capsys.readouterr().out.splitlines()
        return code, dict(re.split(r" {2,}", line[2:], maxsplit=1) for line in lines if line.startswith("  "))

    return run


def test_each_line_ends_in_its_result(doctor: Doctor) -> None:
    fine = {"fine": "all of it  ok"}
    assert doctor("--only", "fine,absent") == (0, fine | {"absent": "not possible here (there is none)"})
    assert doctor("--only", "fine,wrong") == (1, fine | {"wrong": "differs (by 3e-2, at most 1e-2)"})


def test_a_check_that_raises_hangs_or_dies_differs_and_the_others_go_on(doctor: Doctor) -> None:
    start = time.monotonic()
    code, found = doctor("--only", "raising,hanging,dying,fine")
    assert code == 1 and time.monotonic() - start < 20
    assert found == {
        "fine": "all of it  ok",
        "raising": "differs (ValueError: no luck \\x1b]52;c;aGk=\\x07)",
        "hanging": "differs (no answer within 0.6 s)",
        "dying": "differs (its process ended with signal 9: cudaErrorIllegalAddress)",
    }


def test_a_check_that_needs_a_fresh_process_has_one(doctor: Doctor) -> None:
    _, found = doctor("--only", "fine,process,process_again")
    assert found["process"] == found["process again"] and str(os.getpid()) not in found["process"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "fien"], r"--only=fien must be a check \(did you mean 'fine'\?\)"),
        (["--device", "cuda:7", "--only", "fine"], "--device=cuda:7 must be one of cpu"),
        (["--report", "no/where/\0"], "--report="),
        (["--report", "."], "--report=. must be a file that can be written to"),
        (["--reprot", "x"], r"--reprot must be an option of this command \(did you mean '--report'\?\)"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_exit_code_2(
    words: list[str], said: str, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error) and "Traceback" not in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_checks_and_removes_their_folder(
    number: int, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupt(self: object, check: object, seconds: float) -> None:
        assert list(tmp_path.glob("doctor-*"))
        os.kill(os.getpid(), number)
        time.sleep(1)

    monkeypatch.setattr(command.Output, "waiting", interrupt)
    assert doctor("--only", "hanging")[0] == 128 + number
    assert not list(tmp_path.glob("doctor-*"))


PLANTED = {
    "HOME": "/home/annemarie",
    "USER": "annemarie",
    "HOSTNAME": "cluster7.lab.example",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "OTHER_TOKEN": "s3cret-w0rd",
}


def test_a_report_has_no_name_path_address_or_key(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: "node13")
    code, shown = doctor("--only", "fine,telling", "--report", "report.md")
    assert code == 1
    assert all(value in shown["telling"] for value in PLANTED.values())  # negative control: on the screen it stands
    text = Path("report.md").read_text()
    assert "fine" in text and "all of it  ok" in text and "differs (RuntimeError:" in text
    inside = text.split("```")[1].lower()
    for planted in (*PLANTED.values(), "annemarie", "cluster7", "node13", "my data", "b c.png", "192.168", "doctor-"):
        assert planted.lower() not in inside, planted
    assert "/" not in inside and "\\" not in inside


def test_a_short_name_is_taken_out_where_it_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "al")
    assert without_names("al has total 3, AL_1") == "<user> has total 3, <user>_1"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("bind [2001:db8:85a3::8a2e:370:7334]:29500", "bind [<address>]:29500"),
        ("at fe80::1ff:fe23:4567:890a%eth0 now", "at <address> now"),
        ("2001:0db8:0000:0000:0000:8a2e:0370:7334", "<address>"),
        ("token sk-proj-AbC-dEf1234567890abcdef", "token <key>"),
        ("hf_abcdefGH12345", "<key>"),
        ("GPU-5f1c2a3b-1234-5678-9abc-0123456789ab", "GPU-<key>"),
    ],
)
def test_addresses_and_keys_of_other_forms_are_taken_out(line: str, shown: str) -> None:
    assert without_names(line) == shown


def test_the_lines_of_the_package_keep_their_figures_in_a_report() -> None:
    line = "  bfloat16    losses differ by 4.0e-03, at most 2e-02; 1222 images per second  ok"
    assert without_names(line) == line
    for line in (
        "NVIDIA A100-SXM4-80GB, 85.1 GB, capability 8.0",
        "Intel(R) Xeon(R) CPU @ 2.60GHz, torch 2.15.0+cu132",
        "c10::Error at::native std::bad_alloc after 12:34:56, cp311-cp311-manylinux_2_28_x86_64",
        "hf_hub_download and hf-transfer-extra failed in a::b::c",
    ):
        assert without_names(line) == line


def test_the_output_of_a_pipe_names_the_check_before_it_is_done(
    doctor: Doctor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, seen = command.Output.waiting, list[str]()

    def look(self: command.Output, check: object, seconds: float) -> None:
        waiting(self, check, seconds)  # type: ignore[arg-type]
        seen.append(capsys.readouterr().out)

    monkeypatch.setattr(command.Output, "waiting", look)
    main(["doctor", "--only", "fine"])
    assert "  fine" in seen[0]


def test_every_check_has_a_claim_and_a_limit() -> None:
    checks = [one for module in (*command.OF_THE_MACHINE, *command.OF_A_DEVICE) for one in checks_of(module)]
    assert len({check.function for check in checks}) == len(checks) > 20
    assert all(check.claim and 0 < check.limit <= 600 for check in checks)
