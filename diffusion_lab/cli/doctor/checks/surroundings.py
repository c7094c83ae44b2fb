"""What a run finds around it: data sets, weights of Inception, the key of W&B, caches, free disk space."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from diffusion_lab.cache_folder import VARIABLE, cache_folder
from diffusion_lab.cli.doctor.check import Finding, Place, check, differs, impossible, ok

DOWNLOADED = "downloaded with dataset.source.download=true"
LEAST_FREE = 1e9  # bytes: a run with the default network writes 10 MB, one with a network of a paper gigabytes


@check(limit=60)
def data_sets(place: Place) -> Finding:
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
            if there or _works(lambda node=node: instantiate(node, _convert_="all").check()):
                groups["here"].append(path.stem)
            else:
                groups[DOWNLOADED if "download" in node else "yours to bring"].append(path.stem)
    return ok("; ".join(f"{group}: {', '.join(names)}" for group, names in groups.items() if names))


@check(limit=60)
def inception_weights(place: Place) -> Finding:
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
def wandb_login(place: Place) -> Finding:
    """Whether there is a key; W&B is not asked whether it is valid."""
    import wandb

    wandb.setup(wandb.Settings(console="off", silent=True))
    if not wandb.login(prompt=False, verify=False):
        return impossible("there is no API key, so logger=wandb writes offline; `wandb login` stores one")
    return ok(f"wandb {wandb.__version__} has an API key")


@check(limit=60)
def caches(place: Place) -> Finding:
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
def free_disk_space(place: Place) -> Finding:
    """Of the working folder, where runs go, and of the folder of temporary files."""
    free = {"working folder": os.getcwd(), "temporary files": tempfile.gettempdir()}
    sizes = {name: shutil.disk_usage(folder).free for name, folder in free.items()}
    words = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items())
    return ok(words) if min(sizes.values()) >= LEAST_FREE else differs(f"{words}; runs need {LEAST_FREE / 1e9:.0f} GB")


def _works(act: object) -> bool:
    try:
        act()  # type: ignore[operator]
    except Exception:  # a package that a source needs may be missing as well as its images
        return False
    return True
