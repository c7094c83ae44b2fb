"""A Lightning Trainer of one's own: epochs end, any loader's batches are read, and the losses are logged."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset, TensorDataset

from diffusion_lab import EMA, Denoiser, DiffusionModule, ImageDataModule, Streams, TimestepLog, TimestepSampling
from diffusion_lab.callbacks import Validation, WeightNormalization
from diffusion_lab.callbacks.base import last_step
from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.data import ArrayImages, ImageSource, to_float
from diffusion_lab.diffusion import MinSNR, V, cosine
from diffusion_lab.networks import UNet
from diffusion_lab.testing import same
from diffusion_lab.timesteps import LogitNormal, TimestepSampler, Uniform

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning, about its own features
T, IMAGES, BATCH = 20, 37, 8
STEPS = IMAGES // BATCH  # of an epoch
BYTES = torch.randint(0, 256, (IMAGES, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(IMAGES) % 3


class Squares(ImageSource):
    name, num_classes, channels, image_size = "squares", 3, 1, 8

    def train_size(self) -> int:
        return IMAGES

    def load(self, split: str) -> ArrayImages:
        return ArrayImages(BYTES.clone(), LABELS)


class NeedsShape(Uniform):
    """Has weights whose number depends on the images' shape, as `learned_beta` has."""

    def setup(self, image_shape: tuple[int, ...]) -> None:
        self.register_buffer("seen", torch.zeros(image_shape))

    def observe(self, record: Any, context: Any) -> None:
        self.seen += record.x0.sum(0)


def module(num_classes: int | None = None) -> DiffusionModule:
    torch.manual_seed(0)
    channels = {"base_channels": 4, "channel_multipliers": [1], "attention_resolutions": [], "num_res_blocks": 1}
    network = UNet(1, 1, image_size=8, num_classes=num_classes, **channels)
    denoiser = Denoiser(network, schedule=cosine(T), prediction=V())
    return DiffusionModule(denoiser, MinSNR(5.0), partial(SGD, lr=0.1), Streams(seed=0))


def trainer(*callbacks: Any, **arguments: Any) -> Trainer:
    quiet_libraries()
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    checkpoints = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    return Trainer(callbacks=list(callbacks), enable_checkpointing=checkpoints, **quiet | arguments)


def sampling(sampler: TimestepSampler | None = None) -> TimestepSampling:
    return TimestepSampling(sampler or LogitNormal(T))


def data(**arguments: Any) -> ImageDataModule:
    return ImageDataModule(Squares(), **{"batch_size": BATCH} | arguments)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_epoch_is_one_pass_and_the_same_steps_as_without_epochs(accumulate: int, workers: int) -> None:
    by_epochs, by_steps = module(), module()
    given = {"accumulate": accumulate, "num_workers": workers}
    one = trainer(sampling(), max_epochs=2, accumulate_grad_batches=accumulate)
    one.fit(by_epochs, data(**given))
    assert one.global_step == 2 * STEPS == last_step(one) and one.num_training_batches == STEPS * accumulate
    trainer(sampling(), max_steps=2 * STEPS, accumulate_grad_batches=accumulate).fit(by_steps, data(**given))
    assert same(by_epochs.state_dict(), by_steps.state_dict())


@pytest.mark.parametrize("sampler", [Uniform, NeedsShape])
def test_a_run_of_epochs_continues_in_the_middle_of_one(sampler: Any, tmp_path: Path) -> None:
    """Lightning's checkpoint has the averages and what the sampler has seen after its step, not before it."""

    def fit(epochs: int, *callbacks: Any, **given: Any) -> list[Any]:
        own, drawn, average = module(), sampling(sampler(T)), EMA([0.5])
        trainer(*callbacks, drawn, average, max_epochs=epochs).fit(own, data(), **given)
        return [own.state_dict(), drawn.state_dict(), average.state_dict()]

    saved = ModelCheckpoint(tmp_path, every_n_train_steps=STEPS + 1, save_top_k=-1)
    whole = fit(3)
    fit(2, saved)
    assert f"step={STEPS + 1}" in saved.best_model_path
    assert same(fit(3, ckpt_path=saved.best_model_path), whole)


def test_an_epoch_with_an_incomplete_update_is_continued_in_its_middle(tmp_path: Path) -> None:
    """Five batches in updates of two: the last update of an epoch has one, and the batches are not twice the steps. All
    batches are equal, since Lightning begins the loader again."""

    def fit(own: DiffusionModule, *callbacks: Any, **given: Any) -> list[tuple[int, int, int]]:
        seen: list[tuple[int, int, int]] = []

        class Watch(Callback):
            def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
                seen.append((trainer.current_epoch, arguments[-1], trainer.global_step))

        one = trainer(sampling(Uniform(T)), Watch(), *callbacks, max_epochs=2, accumulate_grad_batches=2)
        one.fit(own, DataLoader([BYTES[:BATCH]] * 5, None), **given)
        return seen

    whole, again = module(), module()
    saved = ModelCheckpoint(tmp_path, every_n_train_steps=4, save_top_k=-1)
    seen = fit(whole, saved)
    assert fit(again, ckpt_path=saved.best_model_path) == seen[-3:] == [(1, 2, 4), (1, 3, 5), (1, 4, 6)]
    assert same(again.state_dict(), whole.state_dict())


def test_weights_are_normalized_by_a_sampler_that_is_built_from_the_first_batch(tmp_path: Path) -> None:
    class Leans(NeedsShape):
        """Its distribution is known once it is built, and changes with what it has seen."""

        def probabilities(self, step: int) -> torch.Tensor:
            return torch.softmax(self.seen.abs().mean() * torch.arange(T, dtype=torch.float64) / T, 0)

        def quantile(self, u: torch.Tensor, step: int) -> torch.Tensor:
            return TimestepSampler.quantile(self, u, step)

    def fit(steps: int, *callbacks: Any, **given: Any) -> DiffusionModule:
        own = module()
        own.weighting = MinSNR(5.0, normalize="mean1_sampler")
        one = trainer(sampling(Leans(T)), WeightNormalization(every=2), *callbacks, max_steps=steps)
        one.fit(own, DataLoader([BYTES[:BATCH]] * STEPS, None), **given)
        return own

    saved = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)
    fit(2, saved)
    again, whole = fit(4, ckpt_path=saved.best_model_path), fit(4)
    assert same(again.state_dict(), whole.state_dict()) and whole.weighting.factor != fit(2).weighting.factor


def test_callbacks_of_ones_own_module_do_not_take_the_place_of_its_steps() -> None:
    class Own(DiffusionModule):
        def configure_callbacks(self) -> list[Callback]:
            return [EarlyStopping("train/loss")]

    own = module()
    own.__class__ = Own
    with pytest.raises(TypeError, match=r"Own.configure_callbacks must return super\(\).configure"):
        trainer(sampling(), max_epochs=1).fit(own, loaders()["bytes"]())


class Dicts(Dataset):
    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"name": f"{i}.png", "image": to_float(BYTES[i]), "label": LABELS[i]}


def loaders() -> dict[str, Callable[[], DataLoader[Any]]]:
    return {
        "bytes": lambda: DataLoader(BYTES, BATCH),
        "a tuple of one": lambda: DataLoader(TensorDataset(BYTES), BATCH),
        "pairs": lambda: DataLoader(TensorDataset(to_float(BYTES), LABELS), BATCH),
        "dicts": lambda: DataLoader(Dicts(), BATCH),
        "dicts of another name": lambda: DataLoader([{"pixels": part} for part in BYTES.split(BATCH)], None),
        "float64": lambda: DataLoader([(to_float(part).double(),) for part in BYTES.split(BATCH)], None),
    }


@pytest.mark.parametrize("name", loaders())
def test_an_own_loader_trains_and_validates_whatever_its_batches_look_like(name: str) -> None:
    own, loader = module(), loaders()[name]
    one = trainer(sampling(NeedsShape(T)), EMA([0.5]), TimestepLog(every=1), max_epochs=1)
    one.fit(own, loader(), loader())
    assert one.global_step == STEPS + 1  # the last batch is smaller
    reference = module()
    trainer(sampling(Uniform(T)), max_epochs=1).fit(reference, loaders()["bytes"]())
    assert same(own.state_dict(), reference.state_dict())
    value = one.callback_metrics["val/loss"]
    if loader().batch_size is None:  # then the number of images is not known, nor is which timestep each has in `data`
        assert torch.isfinite(value)
        return
    assert torch.equal(value, torch.tensor(one.validate(own, data(), verbose=False)[0]["val/loss"]))


def test_labels_reach_a_network_that_has_classes() -> None:
    own, seen = module(num_classes=3), []
    own.network.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["label"]), with_kwargs=True)
    trainer(sampling(), max_epochs=1).fit(own, loaders()["pairs"]())
    assert torch.equal(torch.cat(seen), LABELS)


@pytest.mark.parametrize("shape", [(8, 8, 8, 1), (8, 3, 8, 8), (8, 1, 9, 9)])
@pytest.mark.parametrize("validates", [False, True])
def test_images_of_another_shape_than_the_networks_are_named(shape: tuple[int, ...], validates: bool) -> None:
    own, loader = module(), DataLoader([torch.randn(shape)], None)
    own.denoiser.network = UNet(1, 1, 8, 4, [1, 2], 1, [])  # 9 pixels cannot be halved
    words = (
        rf"^batch has images of shape {re.escape(str(shape))}, which must be \(B,C,H,W\) with the channels and the size"
    )
    with pytest.raises(ValueError, match=words) as error:
        trainer(sampling(), max_epochs=1).fit(own, loaders()["bytes"]() if validates else loader, loader)
    assert "\n" not in str(error.value)


def test_batches_that_cannot_be_read_are_refused_in_one_sentence() -> None:
    for batch, words in (
        ({"index": torch.zeros(2)}, "batch with the keys index must have images"),
        (torch.zeros(2, 8, 8), r"shape \(2, 8, 8\), which must be \(B,C,H,W\)"),
        ((torch.zeros(2, 1, 8, 8), 1, 2), "batch of type list must be images"),
    ):
        with pytest.raises(ValueError, match=words):
            trainer(sampling(), max_epochs=1).fit(module(), DataLoader([batch], None))
    with pytest.warns(UserWarning, match=r"lie in 0\..*1, and the model's range is -1..1; give x \* 2 - 1"):
        trainer(sampling(), max_epochs=1).fit(module(), DataLoader([BYTES[:8] / 255.0], None))
    with pytest.warns(
        UserWarning, match=r"lie in 0\.\.255, and the model's range is -1..1; give x / 127.5 - 1, or bytes"
    ):
        trainer(sampling(), max_epochs=1).fit(module(), DataLoader([BYTES[:8].float()], None))
    with pytest.warns(UserWarning, match=r"all 8 images of the first batch are equal; check the files"):
        trainer(sampling(), max_epochs=1).fit(module(), DataLoader([torch.zeros_like(BYTES[:8])], None))
    with pytest.raises(ValueError, match=r"fit\(module, ...\) must be given an ImageDataModule for these callbacks"):
        trainer(sampling(), Validation(every=1), max_epochs=1).fit(module(), loaders()["bytes"]())


def test_lightnings_own_callbacks_follow_the_losses(tmp_path: Path) -> None:
    own = module()
    best, stop = ModelCheckpoint(tmp_path, monitor="val/loss"), EarlyStopping("train/loss", patience=1, min_delta=9.0)
    one = trainer(sampling(), EMA([0.5]), best, stop, max_epochs=9)
    one.fit(own, data())
    assert one.global_step == 2 * STEPS  # no epoch is better by 9
    assert {"train/loss", "val/loss"} <= one.callback_metrics.keys()
    assert best.best_model_score is not None and Path(best.best_model_path).exists()


def test_the_loss_is_that_of_our_own_validation_with_averaged_weights() -> None:
    values: list[float] = []

    class Kept(Validation):
        def measure(self, *given: Any) -> Any:
            loss = super().measure(*given)
            values.append(float(torch.nanmean(loss)))
            return loss

    own, average = module(), EMA([0.5])
    one = trainer(sampling(), average, Kept(every=STEPS), max_epochs=1)
    one.fit(own, data())
    logged = float(one.callback_metrics["val/loss"])
    assert len(values) == 1 and logged == pytest.approx(values[0], rel=1e-6)
    before = {key: value.clone() for key, value in own.state_dict().items()}
    assert one.validate(own, data(), verbose=False)[0]["val/loss"] == pytest.approx(logged, rel=1e-6)
    assert same(own.state_dict(), before)  # the averaged weights are put back
    raw = trainer(sampling()).validate(own, data(), verbose=False)[0]["val/loss"]
    assert raw != pytest.approx(logged, rel=1e-6)


def test_what_callbacks_log_can_be_followed() -> None:
    one = trainer(sampling(), TimestepLog(every=2), Validation(every=2), max_steps=4, limit_val_batches=0)
    one.fit(module(), data())
    assert {"train/loss", "val/loss", "optim/lr"} <= one.callback_metrics.keys()


def test_a_step_logs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    log = LightningModule.log
    monkeypatch.setattr(LightningModule, "log", lambda *args, **kwargs: calls.append(args[1]) or log(*args, **kwargs))
    trainer(sampling(), max_epochs=2, num_sanity_val_steps=0).fit(module(), data())
    assert calls == ["val/loss", "train/loss"] * 2


def test_a_trainer_without_a_timestep_sampler_says_that_timesteps_are_uniform(caplog: pytest.LogCaptureFixture) -> None:
    for callbacks in ([], [sampling()]):
        trainer(*callbacks, max_steps=1).fit(module(), DataLoader(TensorDataset(BYTES), batch_size=BATCH))
        said = [record.getMessage() for record in caplog.records if "TimestepSampling" in record.getMessage()]
        assert len(said) == (not callbacks) and all("uniform" in line for line in said)
        caplog.clear()
