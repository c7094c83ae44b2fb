"""Checkpoint files: whole or not there, verified, harmless."""

import collections
import os
import pathlib
import pickle
import random
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch

from diffusion_lab.training.checkpoint_io import (
    DamagedCheckpoint,
    NewerCheckpoint,
    NoneIntact,
    VerifiedCheckpointIO,
    is_plain,
    load,
    newest_good,
    save,
)
from tests.harness import Child


def content(step: int = 1) -> dict:
    return {"global_step": step, "state_dict": {"w": torch.arange(1000.0)}, "notes": [1, "a", None]}


def test_round_trip_and_plain_torch_can_read_it(tmp_path):
    save(content(), tmp_path / "last.ckpt")
    path = tmp_path / "last.ckpt"
    for read in (load(path), load(path, "cpu", mapped=True), torch.load(path, weights_only=True)):
        assert torch.equal(read["state_dict"]["w"], torch.arange(1000.0))
        assert read["notes"] == [1, "a", None]
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_view_of_a_file_is_private_and_outlives_its_replacement(tmp_path):
    path = tmp_path / "last.ckpt"
    save(content(), path)
    weight, before = load(path, "cpu", mapped=True)["state_dict"]["w"], path.read_bytes()
    weight[0] = 7
    assert path.read_bytes() == before
    save(content() | {"state_dict": {"w": torch.zeros(1000)}}, path)
    assert weight.tolist() == [7, *range(1, 1000)]


def test_what_is_read_already_is_given_out_once_and_for_its_path_alone(tmp_path):
    save(content(1), tmp_path / "last.ckpt")
    save(content(2), tmp_path / "other.ckpt")
    files, held = VerifiedCheckpointIO(), {"global_step": 3}
    for name, steps in (("last.ckpt", [3, 1]), ("other.ckpt", [2, 2])):
        files.read = tmp_path / "last.ckpt", held
        assert [files.load_checkpoint(str(tmp_path / name))["global_step"] for _ in range(2)] == steps


PEAK = """
import hashlib, io, sys, torch
from pathlib import Path
from diffusion_lab.training.checkpoint_io import load_finite

def status(key):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])

def whole(path):
    data = path.read_bytes()
    body = memoryview(data)[:-40]
    hashlib.sha256(body).digest()
    return torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)

path, size = Path(sys.argv[1]), Path(sys.argv[1]).stat().st_size
for read in (load_finite, whole):  # what the first reading imports stays in memory
    read(Path(sys.argv[2]))
for read in (lambda: load_finite(path, mapped=True), lambda: load_finite(path), lambda: whole(path)):
    peaks = []
    for _ in range(3):  # the least: how many pages the kernel maps beside one that is read varies
        open("/proc/self/clear_refs", "w").write("5")
        before = status("VmRSS")
        content = read()
        peaks.append((status("VmHWM") - before) / size)
        del content
    print(min(peaks))
"""


@pytest.mark.slow
def test_loading_takes_the_memory_of_the_file_and_views_of_it_that_of_the_weights(tmp_path):
    """The peaks over the size of the file, of which the optimizer's state is half; the old way took three times."""
    states = [{f"w{i}": torch.rand(200_000) for i in range(48)} for _ in range(4)]
    saved = {"state_dict": states[0], "callbacks": {"EMA": {"0.9": states[1]}}}
    saved["optimizer_states"] = [{"state": {"exp_avg": states[2], "exp_avg_sq": states[3]}, "param_groups": []}]
    save(saved, tmp_path / "last.ckpt")
    save(content(), tmp_path / "small.ckpt")
    files = [tmp_path / "last.ckpt", tmp_path / "small.ckpt"]
    done = subprocess.run([sys.executable, "-c", PEAK, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    views, read, whole = map(float, done.stdout.split())
    assert views < 0.6 and read < 1.1 and whole > 2.5


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "last.ckpt"
    save(content(), path)
    good = path.read_bytes()
    chance = random.Random(0)
    for _ in range(200):
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        for mapped in (False, True):
            with pytest.raises(DamagedCheckpoint):
                load(path, mapped=mapped)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "last.ckpt"
    save(content(), path)
    good = path.read_bytes()
    for length in [0, 1, 39, 40, 41, *random.Random(0).sample(range(len(good)), 45)]:
        path.write_bytes(good[:length])
        with pytest.raises(DamagedCheckpoint):
            load(path)


@pytest.mark.parametrize(
    ("damaged", "expected"), [((), 4), (("last",), 3), (("last", "previous"), 2), (("last", "previous", "step-2"), 1)]
)
def test_the_newest_intact_one_is_found(tmp_path, damaged, expected):
    for name, step in (("step-1", 1), ("step-2", 2), ("previous", 3), ("last", 4)):
        save(content(step), tmp_path / f"{name}.ckpt")
        if name in damaged:
            (tmp_path / f"{name}.ckpt").write_bytes(b"torn")
    lines = []
    found = newest_good(tmp_path, lines.append)
    assert found is not None and found[1]["global_step"] == expected
    assert len(lines) == (1 if damaged else 0)  # one line, whatever was passed over
    for line in lines:
        assert all(f"{name}.ckpt: truncated" in line for name in damaged)
        assert line.endswith(f"Using {found[0].name} of step {expected}") and "\n" not in line


def test_without_an_intact_one_all_are_named(tmp_path):
    for name in ("last", "previous"):
        (tmp_path / f"{name}.ckpt").write_bytes(b"torn")
    with pytest.raises(NoneIntact, match=r"last\.ckpt: truncated.*; .*previous\.ckpt: truncated"):
        newest_good(tmp_path)


@pytest.mark.parametrize("where", ["state_dict", "EMA"])
def test_one_that_is_not_finite_is_passed_over(tmp_path, where):
    poisoned = content(4) | {"callbacks": {"EMA": {"0.9": {"w": torch.ones(2)}}}}
    (poisoned["state_dict"] if where == "state_dict" else poisoned["callbacks"]["EMA"]["0.9"])["w"][1] = float("nan")
    save(content(3), tmp_path / "previous.ckpt")
    save(poisoned, tmp_path / "last.ckpt")
    lines = []
    found = newest_good(tmp_path, lines.append)
    assert found is not None and found[1]["global_step"] == 3
    assert lines and "w is not finite" in lines[0]


def test_the_format_is_written_and_a_newer_one_is_not_damage(tmp_path, monkeypatch):
    from diffusion_lab.training import checkpoint_io

    path = tmp_path / "last.ckpt"
    save(content(), path)
    assert load(path)["format"] == checkpoint_io.FORMAT == 1
    monkeypatch.setattr(checkpoint_io, "FORMAT", 2)
    save(content(), path)
    monkeypatch.undo()
    save(content(), tmp_path / "previous.ckpt")
    with pytest.raises(NewerCheckpoint, match="is of checkpoint format 2, and this version of diffusion-lab reads"):
        newest_good(tmp_path)


def test_no_checkpoint_is_none(tmp_path):
    assert newest_good(tmp_path) is None


@pytest.mark.parametrize("bad", [pathlib.PurePosixPath("x"), random.Random(0), lambda: 0, b"", 1 << 2040])
def test_what_could_not_be_loaded_is_not_written(tmp_path, bad):
    path = tmp_path / "last.ckpt"
    save(content(), path)
    with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
        save(content() | {"bad": bad}, path)
    assert load(path)["global_step"] == 1


def itself():
    holder = [torch.zeros(2)]
    holder.append(holder)
    return holder


class Named(dict):
    pass


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"a": [1, (2.0, None)], 3: OrderedDict(b=b"x")}, True),
        (torch.zeros(2, 3).to(torch.bfloat16)[:, 1:], True),
        ([[shared := [1, b"x"], shared], {"a": shared}], True),
        (2**63, True),
        (itself(), False),
        (b"", False),
        ({b"": 1}, False),
        (1 << 2040, False),
        (Named(a=1), False),
        (collections.defaultdict(int), False),
        (np.float32(1), False),
        ({1, 2}, False),
        (torch.nn.Parameter(torch.zeros(1)), False),
        (torch.eye(2).to_sparse(), False),
        (torch.float32, False),
    ],
)
def test_what_counts_as_plain_is_loaded_again(tmp_path, value, plain):
    """What does not is loaded before it is written, and may still be written."""
    assert is_plain({"state": value}) is plain
    if plain:
        save(content() | {"state": value}, tmp_path / "last.ckpt")
        assert repr(load(tmp_path / "last.ckpt")["state"]) == repr(value)


def test_a_state_dict_is_plain_with_its_metadata():
    state = torch.nn.Sequential(torch.nn.Linear(1, 1)).state_dict()
    assert is_plain(state)
    state._metadata["more"] = pathlib.PurePosixPath("x")
    assert not is_plain(state)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_not_plain():
    assert not is_plain(torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.strided))


def test_a_tensor_with_an_attribute_is_not_plain():
    tensor = torch.zeros(1)
    assert is_plain(tensor)
    tensor.source = pathlib.PurePosixPath("x")
    assert not is_plain(tensor)


class Marker:
    """Unpickling it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def test_malicious_files_execute_nothing(tmp_path):
    import hashlib
    import io

    marker = tmp_path / "executed"
    buffer = io.BytesIO()
    torch.save(content() | {"callbacks": Marker(str(marker))}, buffer)
    data = buffer.getvalue()
    path = tmp_path / "last.ckpt"
    bare = pickle.dumps(Marker(str(marker)), protocol=2)
    for mapped in (False, True):
        for content_of_file in (data, bare):
            path.write_bytes(content_of_file + b"DLABSHA2" + hashlib.sha256(content_of_file).digest())
            with pytest.raises(DamagedCheckpoint, match="more than tensors"):
                load(path, mapped=mapped)
    path.write_bytes(bare)
    with pytest.raises(DamagedCheckpoint):
        load(path)
    assert not marker.exists()


def test_addresses_are_refused():
    with pytest.raises(DamagedCheckpoint, match="local files only"):
        load("https://example.org/last.ckpt")


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "last.ckpt"
    save(content(1), path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(content(2), path)
    assert load(path)["global_step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.slow
def test_no_kill_during_save_leaves_a_torn_file(tmp_path):
    import time

    path = tmp_path / "last.ckpt"
    big = {"global_step": 0, "w": torch.zeros(500_000)}
    save(big, path)
    chance, torn = random.Random(0), 0

    def keep_saving():
        for step in range(1, 10_000):
            save(big | {"global_step": step}, path)

    for _ in range(20):
        child = Child(keep_saving, tmp_path / "log")
        time.sleep(0.01 + 0.05 * chance.random())
        child.kill()
        try:
            load(path)
        except DamagedCheckpoint:
            torn += 1
    assert torn == 0
    assert len(list(tmp_path.glob("*.partial"))) <= 1
