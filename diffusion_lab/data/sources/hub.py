"""Opens a data set with the `datasets` library, so that errors are one sentence and come within seconds.

Without network the library sends five requests to the hub before it raises an error, which takes 23 s. So one request
is sent here; if it fails, the library is set to offline mode and uses its own copy or raises an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
PATIENCE = 10.0  # seconds for the hub's first answer


class Unreadable(Exception):
    """The library's error for a data set that it cannot read, in one line."""


def open_local(files: list[str], path: str, subset: str | None, cache_dir: str | None) -> Any:
    """{split: table} of `files`: one folder, or parquet files, which make the split "train".

    Raises:
        FileNotFoundError: the library is not installed.
        ValueError: the files are not parquet files, or have no subsets.
        Unreadable: the library cannot read them.
    """
    datasets = _library(path)
    if len(files) == 1 and Path(files[0]).is_dir():
        saved = any((Path(files[0]) / name).is_file() for name in ("dataset_dict.json", "state.json"))
        if saved:
            _check_no_subset(path, subset)
        with _one_line():
            if not saved:
                return datasets.load_dataset(files[0], subset, cache_dir=cache_dir)
            tables = datasets.load_from_disk(files[0])
            return tables if isinstance(tables, dict) else {"train": tables}
    other = [name for name in files if not name.endswith(".parquet")]
    if other:
        raise ValueError(
            f"path={path} must be one folder or parquet files, not {', '.join(other[:8])}; give their folder"
        )
    _check_no_subset(path, subset)
    with _one_line():
        return datasets.load_dataset("parquet", data_files={"train": files}, cache_dir=cache_dir)


def _check_no_subset(path: str, subset: str | None) -> None:
    if subset is not None:
        raise ValueError(f"subset={subset} must be null, because {path} is one table here, without subsets")


def open_hub(name: str, subset: str | None, revision: str | None, cache_dir: str | None) -> Any:
    """{split: table} of the hub's data set `name`, downloaded by the library; without network, its local copy.

    Raises:
        FileNotFoundError: the library is not installed; there is no such data set; or the hub does not answer and
            there is no copy.
        Unreadable: the library cannot read it.
    """
    datasets = _library(name)
    silence = _ask(name, revision)
    if not silence:
        with _one_line():
            return datasets.load_dataset(name, subset, revision=revision, cache_dir=cache_dir)
    try:
        with _offline():
            tables = datasets.load_dataset(name, subset, cache_dir=cache_dir)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"path={name} must be a folder or parquet files, or a data set that the Hugging Face hub gives; nothing is "
            f"at {Path(name).absolute()}, the hub does not answer ({silence}), and the library has no copy "
            f"({_line(error)}); fetch it on a machine with network and give the folder of its parquet files"
        ) from error
    log.warning("%s: the hub does not answer (%s), so the library's newest copy here is used", name, silence)
    return tables


def copies(name: str, cache_dir: str | None) -> tuple[Path, ...]:
    """The folders in which the library keeps the files of the hub's data set `name`, once it is opened."""
    from datasets import config
    from huggingface_hub.constants import HF_HUB_CACHE

    downloaded = Path(cache_dir) / "downloads" if cache_dir else Path(config.DOWNLOADED_DATASETS_PATH)
    return downloaded, Path(HF_HUB_CACHE) / f"datasets--{name.replace('/', '--')}"


def _library(path: str) -> Any:
    try:
        import datasets  # here, because the import takes three seconds and is optional
    except ImportError as error:
        raise FileNotFoundError(
            f"path={path} must be read by the datasets library, which is not installed; run: python -m pip install "
            "'datasets>=5.2'"
        ) from error
    return datasets


def _ask(name: str, revision: str | None) -> str:
    """Why the hub does not answer; "" if it answers and has the data set.

    Raises:
        FileNotFoundError: the hub has no such data set or revision, or this user has no access.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().dataset_info(name, revision=revision, timeout=PATIENCE)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        wanted = name + (f" at revision {revision}" if revision else "")
        raise FileNotFoundError(
            f"path={name} must be a folder, parquet files, or a data set of the Hugging Face hub; nothing is at "
            f"{Path(name).absolute()}, and the hub does not give {wanted} ({_line(error)}); correct the name, or run: "
            "hf auth login"
        ) from error
    except Exception as error:  # the HTTP libraries raise many classes of errors without network
        return _line(error) or type(error).__name__
    return ""


@contextmanager
def _offline() -> Iterator[None]:
    """Set the library's offline switch, which it reads from the environment only at its import."""
    from datasets import config

    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # its own errors, pyarrow's and the file system's
        raise Unreadable(_line(error.__cause__ or error)) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
