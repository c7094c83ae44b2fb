"""The loader inside Lightning: what the model sees before and after an interruption."""

from __future__ import annotations

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.data import ImageDataModule
from tests.data.fakes import Memory, numbered

pytestmark = [  # Lightning's own: a deprecated call of torch, and advice to use workers, which lose here
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]


class Record(LightningModule):
    """Keeps every batch that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[torch.Tensor] = []

    def training_step(self, batch, batch_idx):
        self.seen.append(batch["image"].clone())
        return self.weight * batch["image"].mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder, max_steps: int, num_workers: int, checkpoint=None) -> tuple[Trainer, torch.Tensor]:
    data = ImageDataModule(Memory(numbered()), 12, accumulate=2, flip=True, num_workers=num_workers)
    model = Record()
    trainer = Trainer(
        accelerator="cpu",
        max_steps=max_steps,
        max_epochs=-1,
        accumulate_grad_batches=2,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        default_root_dir=folder,
    )
    trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    assert trainer.global_step == max_steps
    return trainer, torch.stack(model.seen)


@pytest.mark.filterwarnings("ignore:You passed in a .val_dataloader.")  # the model of this test only trains
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_interrupted_run_sees_the_same_batches(tmp_path, num_workers):
    whole = fit(tmp_path, 9, num_workers)[1]
    trainer, before = fit(tmp_path, 4, num_workers)  # step 4 lies inside an epoch: 40 images, 12 a step
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    after = fit(tmp_path, 9, num_workers, tmp_path / "last.ckpt")[1]
    assert len(whole) == 18
    assert torch.equal(torch.cat([before, after]), whole)
