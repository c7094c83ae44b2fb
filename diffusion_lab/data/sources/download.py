"""Download of a data set with torchvision."""

from __future__ import annotations

from pathlib import Path


def fetch(name: str, root: Path) -> None:
    """Download torchvision's data set `name` into `root`; torchvision checks the md5 of the files.

    Raises:
        FileNotFoundError: there is no network, or the server does not answer as expected.
    """
    from torchvision import datasets  # here, because the import takes two seconds and is needed once per machine

    try:
        getattr(datasets, name)(str(root), download=True)
    except (OSError, RuntimeError) as error:
        raise FileNotFoundError(
            f"root={root} must be filled, but {name} cannot be downloaded ({error}); fetch the files on a machine "
            "with network and put them there"
        ) from error
