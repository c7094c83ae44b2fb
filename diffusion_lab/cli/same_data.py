"""Whether the data of a run that goes on are those that it was trained with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError, config_errors
from diffusion_lab.cli.processes import is_first
from diffusion_lab.failure import OtherData
from diffusion_lab.files import read_object
from diffusion_lab.runs.data_record import DataRecord
from diffusion_lab.runs.names import RECORD

if TYPE_CHECKING:
    from diffusion_lab.data import ImageDataModule


def recorded_data(record: dict[str, Any], named: str) -> DataRecord:
    """What the data of a run were, from its run.json, ConfigError if it does not say so; `named` is the setting and
    value that named the folder."""
    data = DataRecord.read(record.get("data"))
    if data is None:
        raise ConfigError(f"{named}: its {RECORD} must say under `data` what its data were; it is damaged")
    return data


def check_same_data(cfg: DictConfig, folder: Path, data: ImageDataModule) -> None:
    """Before a run goes on: check that its data have not changed, and number the classes as it did.

    Every process looks at its own copy of the data. Nothing is written.

    Raises:
        OtherData: names what has changed.
    """
    if changes := data_changes(folder, data):
        where = cfg.get("resume") or folder
        raise OtherData(
            f"dataset.source: the data of {where} must be those that it was trained with, and have changed since: "
            f"{changes}. Restore them; or train with the new ones, from step 0 by the run's own command with "
            f"anew=true, or from its weights in another folder by init_from={where}"
        )


def data_changes(folder: Path, data: ImageDataModule) -> str:
    """In what the data differ from those of the run in a folder, empty if they do not. Numbers the classes as there."""
    recorded = DataRecord.read((read_object(folder / RECORD) or {}).get("data"))
    if recorded is None:  # the file is lost or damaged, and the run goes on from its checkpoint
        return ""
    data.source.keep_order(recorded.classes)
    with config_errors("dataset"):
        try:
            if is_first():
                data.prepare_data()
            return "; ".join(recorded.changes(data.describe(), data.conditions.conditional))
        except FileNotFoundError:
            if is_first():
                raise
            return ""  # the first process may be downloading them
