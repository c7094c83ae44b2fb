"""The plain file of T numbers: written and read to the bit, and its faults in one sentence."""

import numpy as np
import pytest
import torch

from diffusion_lab.distribution_file import numbers_or_fault, read_distribution, write_distribution
from diffusion_lab.timesteps import LogitNormal
from diffusion_lab.timesteps.static import FromFile


def test_a_written_distribution_is_read_to_the_bit_and_draws_the_same(tmp_path):
    ours, path = LogitNormal(997, mean=0.7), tmp_path / "p.txt"
    write_distribution(path, ours.probabilities(0).tolist(), "two\nlines")
    theirs = FromFile(997, str(path), read_distribution(path))
    u = torch.rand(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours.probabilities(0), theirs.probabilities(0))
    assert torch.equal(ours.quantile(u, 0), theirs.quantile(u, 0))
    assert np.array_equal(np.loadtxt(path), ours.probabilities(0).numpy())  # what another trainer reads


def test_counts_are_divided_by_their_sum(tmp_path):
    (tmp_path / "p.txt").write_text("# counts\n1\n\n 2\n1\n")
    sampler = FromFile(3, "p.txt", read_distribution(tmp_path / "p.txt"))
    assert sampler.probabilities(0).tolist() == [0.25, 0.5, 0.25]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1\nsecret\n", "has no number in line 2"),
        ("1\n-1\n", "has -1.0 in line 2, which is not a finite number >= 0"),
        ("nan\n", "has nan in line 1, which is not a finite number >= 0"),
        ("inf\n", "has inf in line 1, which is not a finite number >= 0"),
        ("0\n0\n", "has no positive number"),
        ("", "has no positive number"),
        (b"\xff\xfe\x00", "is not a text file"),
    ],
)
def test_a_fault_names_the_line_and_quotes_nothing(tmp_path, text, fault):
    path = tmp_path / "p.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert numbers_or_fault(str(path)) == fault
    with pytest.raises(ValueError, match="path=p.txt must be a file of T numbers, and it "):
        FromFile(2, "p.txt", fault)


def test_a_folder_a_missing_file_and_a_wrong_length(tmp_path):
    assert numbers_or_fault(str(tmp_path)) == "is a folder"
    assert numbers_or_fault(str(tmp_path / "none")) == "does not exist"
    assert numbers_or_fault(None) == "is not given"
    with pytest.raises(ValueError, match="path=p.txt must hold T=3 numbers, one per line, and it holds 2; write one"):
        FromFile(3, "p.txt", [0.5, 0.5])
