"""Versions and builds, processors, memory, accelerators; and what a run finds around it: data sets, the weights of
Inception, the key of W&B, caches, free disk space."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from diffusion_lab.cache_folder import VARIABLE, cache_folder
from diffusion_lab.cli.doctor.check import CheckPlace, Finding, check, differs, impossible, ok
from diffusion_lab.versions import versions
from diffusion_lab.workers import cores

BESIDE = ("lightning", "torchmetrics", "hydra-core", "omegaconf", "numpy")  # torch has a line of its own
# Of /proc/cpuinfo: what PyTorch's kernels for a CPU choose by, and what bfloat16 is fast with.
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
CPUINFO, MEMORY = Path("/proc/cpuinfo"), Path("/proc/meminfo")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
DRIVER = Path("/proc/driver/nvidia/version")
DEVICES = "devices.json"  # the accelerators, for the command
DOWNLOADED = "downloaded with dataset.source.download=true"
LEAST_FREE = 1e9  # bytes: a run with the default network writes 10 MB, one with a network of a paper gigabytes


@check(limit=30)
def python(place: CheckPlace) -> Finding:
    """Version and system."""
    libc = " ".join(platform.libc_ver())
    system = f"{platform.system()} {platform.machine()}" + (f", {libc}" if libc.strip() else "")
    return ok(f"{platform.python_version()} on {system}")


@check(limit=30)
def package(place: CheckPlace) -> Finding:
    """Version, and revision of a checkout; `+` for one that is modified."""
    from diffusion_lab import __version__
    from diffusion_lab.cli.commands.train import git_revision

    commit = git_revision()
    revision = "" if commit is None else f", revision {commit[:12]}{'+' if commit.endswith('+') else ''}"
    return ok(f"{__version__}{revision}")


@check(limit=300)  # the first to import torch, which takes minutes on a slow network file system
def libraries(place: CheckPlace) -> Finding:
    """Whether each has a version that the package accepts, and whether Lightning can be imported.

    It cannot beside a torchvision of another build than torch's.
    """
    import lightning.pytorch  # noqa: F401
    from packaging.requirements import Requirement

    try:
        needed = [Requirement(text) for text in metadata.requires("diffusion-lab") or []]
    except metadata.PackageNotFoundError:
        return impossible("diffusion-lab is not installed, which says what it needs")
    wrong = []
    for one in needed:
        if one.marker is None:
            version = versions(one.name).get(one.name)
            if version is None or not one.specifier.contains(version.partition("+")[0], prereleases=True):
                wrong.append(f"{one.name} {version or 'is missing'}, needed is {one.specifier}")
    if wrong:
        return differs("; ".join(wrong))
    return ok(", ".join(f"{name} {version}" for name, version in versions(*BESIDE).items()))


@check(limit=60)
def pytorch(place: CheckPlace) -> Finding:
    """Version and build, and whether a build for GPUs is there where a driver is."""
    import torch

    cuda, hip = torch.version.cuda, getattr(torch.version, "hip", None)
    build = f"built for CUDA {cuda}" if cuda else f"built for ROCm {hip}" if hip else "built for CPUs alone"
    if cuda and (cudnn := torch.backends.cudnn.version()):
        build += f", cuDNN {cudnn}"
    words = f"{torch.__version__}, {build}, kernels for {torch.backends.cpu.get_cpu_capability()}"
    if DRIVER.exists() and not cuda:
        return differs(f"{words}, but this machine has an NVIDIA driver: install PyTorch's default build")
    return ok(words)


@check(limit=30)
def processor(place: CheckPlace) -> Finding:
    """Model, cores that this process may use, threads of PyTorch, and the instructions that matter."""
    import torch

    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.+)$", text, re.MULTILINE)
    has = [name for name in INSTRUCTIONS if flags is not None and name in flags[1].split()]
    words = [model[1] if model else platform.processor() or platform.machine()]
    threads = torch.get_num_threads()
    words += [f"{cores()} of {os.cpu_count()} cores", f"{threads} thread{'s' * (threads != 1)}", *has]
    return ok(", ".join(words))


@check(limit=30)
def memory(place: CheckPlace) -> Finding:
    """Of the machine or of the container that this process is in."""
    numbers = (
        dict(re.findall(r"^(\w+):\s+(\d+) kB", MEMORY.read_text(encoding="utf-8"), re.MULTILINE))
        if MEMORY.exists()
        else {}
    )
    if "MemTotal" not in numbers:
        return impossible(f"{sys.platform} does not say")
    total, free = (int(numbers.get(name, 0)) * 1024 for name in ("MemTotal", "MemAvailable"))
    limits = [
        int(path.read_text(encoding="utf-8"))
        for path in LIMITS
        if path.exists() and path.read_text(encoding="utf-8").strip().isdigit()
    ]
    limited = [f"at most {limit / 1e9:.1f} GB in this container" for limit in limits if limit < total]
    return ok(", ".join([f"{total / 1e9:.1f} GB, {free / 1e9:.1f} GB of them free", *limited]))


@check(limit=120)
def accelerators(place: CheckPlace) -> Finding:
    """The GPUs with their memory and driver; the checks of each follow those of the CPU."""
    import torch

    found: dict[str, str] = {}
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            found[f"cuda:{number}"] = f"{gpu.name}, {gpu.total_memory / 1e9:.1f} GB, capability {gpu.major}.{gpu.minor}"
    if torch.backends.mps.is_available():
        found["mps"] = "Apple's GPU"
    place.work.joinpath(DEVICES).write_text(json.dumps(found), encoding="utf-8")
    driver = re.search(r"\s(\d+\.[\d.]+)\s", DRIVER.read_text(encoding="utf-8")) if DRIVER.exists() else None
    with_driver = f"NVIDIA driver {driver[1]}" if driver else ""
    if found:
        return ok("; ".join([*(f"{name} {words}" for name, words in found.items()), *filter(None, [with_driver])]))
    if with_driver:
        return differs(f"{with_driver}, but PyTorch finds no GPU")
    return impossible("PyTorch finds no GPU")


@check(limit=60)
def data_sets(place: CheckPlace) -> Finding:
    """Which options of `dataset=` have their images here, and which a download would bring."""
    from hydra import compose
    from hydra.utils import instantiate

    from diffusion_lab.cli.conf_folder import conf_dir
    from diffusion_lab.cli.config import register_resolvers
    from diffusion_lab.cli.hydra_version import initialized

    register_resolvers()
    groups: dict[str, list[str]] = {"here": [], DOWNLOADED: [], "yours to bring": []}
    with initialized():
        for path in sorted((conf_dir() / "dataset").glob("*.yaml")):
            node = compose(f"dataset/{path.stem}").dataset.source
            root = next((node[key] for key in ("root", "path") if key in node), None)
            # Images that are there are not all opened, which could take minutes.
            there = root is not None and Path(str(root)).expanduser().exists()
            with suppress(Exception):  # a package that a source needs may be missing as well as its images
                if not there:
                    instantiate(node, _convert_="all").check()
                    there = True
            group = "here" if there else DOWNLOADED if "download" in node else "yours to bring"
            groups[group].append(path.stem)
    return ok("; ".join(f"{group}: {', '.join(names)}" for group, names in groups.items() if names))


@check(limit=60)
def inception_weights(place: CheckPlace) -> Finding:
    """Whether the file is there and whole, which FID needs."""
    from diffusion_lab.metrics.inception import FILE, InceptionFeatures

    try:
        InceptionFeatures().check()
    except FileNotFoundError:
        return impossible(f"{FILE} is not in torch hub's checkpoint folder")
    except ValueError as error:
        return differs(str(error))
    return ok(FILE)


@check(limit=60)
def wandb_login(place: CheckPlace) -> Finding:
    """Whether there is a key; W&B is not asked whether it is valid."""
    import wandb

    wandb.setup(wandb.Settings(console="off", silent=True))
    if not wandb.login(prompt=False, verify=False):
        return impossible("there is no API key, so logger=wandb writes offline; `wandb login` stores one")
    return ok(f"wandb {wandb.__version__} has an API key")


@check(limit=60)
def caches(place: CheckPlace) -> Finding:
    """Whether results of long work can be kept for the next run."""
    folder = cache_folder()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return differs(f"the folder of the caches, {folder}, cannot be written to: {error.strerror}; set {VARIABLE}")
    return ok(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")


@check(limit=30)
def free_disk_space(place: CheckPlace) -> Finding:
    """Of the working folder, where runs go, and of the folder of temporary files."""
    free = {"working folder": os.getcwd(), "temporary files": tempfile.gettempdir()}
    sizes = {name: shutil.disk_usage(folder).free for name, folder in free.items()}
    words = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items())
    return ok(words) if min(sizes.values()) >= LEAST_FREE else differs(f"{words}; runs need {LEAST_FREE / 1e9:.0f} GB")


def devices(work: Path) -> dict[str, str]:
    """The accelerators that the check has found, by name; empty if it failed."""
    path = work / DEVICES
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
