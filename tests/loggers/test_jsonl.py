"""metrics.jsonl: lines, exact numbers, and the cut at resume."""

import json
import math

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from diffusion_lab.loggers import JsonlLogger, log_curve, log_image, log_values


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_one_line_per_call_with_lists_as_they_are(trainer, tmp_path):
    logger = JsonlLogger(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    log_values(trainer(logger), {"train/loss": 0.1, "sampler/p": [0.25, 0.75]})
    log_values(trainer(logger), {"val/loss": 1e-30})
    log_image(trainer(logger), "samples", "missing.png")
    log_curve(trainer(logger), "loss", [0], {"run": [1.0]})
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == (
        '{"step": 20, "images": 160, "train/loss": 0.1, "sampler/p": [0.25, 0.75]}\n'
        '{"step": 20, "images": 160, "val/loss": 1e-30}\n'
    )


def test_numbers_come_back_exactly(tmp_path):
    values = {
        "third": 1 / 3,
        "tensor": torch.tensor(0.1),
        "numpy": np.float64(2 / 3),
        "row": torch.tensor([1.5, 2.5]),
        "whole": 7,
    }
    JsonlLogger(tmp_path).log_values(values, 3)
    assert lines(tmp_path) == [
        {"step": 3, "third": 1 / 3, "tensor": float(torch.tensor(0.1)), "numpy": 2 / 3, "row": [1.5, 2.5], "whole": 7}
    ]


def test_a_loss_that_is_not_finite_keeps_its_place(tmp_path):
    JsonlLogger(tmp_path).log_values({"train/loss": math.nan, "train/loss_t": [math.inf, 1.0]}, 1)
    (line,) = lines(tmp_path)
    assert line == {"step": 1, "train/loss": None, "train/loss_t": [None, 1.0]}


def test_a_new_logger_appends(tmp_path):
    for step in (1, 2):
        JsonlLogger(tmp_path).log_values({"a": 1.0}, step)
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]


def test_cut_drops_later_and_half_lines_byte_for_byte(tmp_path):
    logger = JsonlLogger(tmp_path)
    for step in range(1, 6):
        logger.log_values({"a": step / 3}, step)
        if step == 3:
            expected = (tmp_path / "metrics.jsonl").read_bytes()
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 2, "a"')
    logger.cut(3)
    assert (tmp_path / "metrics.jsonl").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    logger.log_values({"a": 0.0}, 4)
    assert lines(tmp_path)[-1] == {"step": 4, "a": 0.0}


def test_cut_without_a_file_does_nothing(tmp_path):
    JsonlLogger(tmp_path / "run").cut(3)
    assert list(tmp_path.iterdir()) == []


def test_cut_names_a_broken_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"stp": 2}\n{"step": 3}\n')
    with pytest.raises(ValueError, match="line 2 of metrics.jsonl"):
        JsonlLogger(tmp_path).cut(5)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


class Plain(LightningModule):
    """Logs with Lightning's own `self.log`."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.filterwarnings("ignore")
def test_lightnings_own_logging_reaches_it(tmp_path):
    fit = Trainer(
        logger=JsonlLogger(tmp_path),
        max_steps=2,
        log_every_n_steps=1,
        accelerator="cpu",
        default_root_dir=tmp_path,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    fit.fit(Plain(), DataLoader(torch.ones(8, 1), batch_size=4))
    assert [set(line) for line in lines(tmp_path)] == [{"step", "epoch", "train/loss"}] * 2
