"""TensorBoard's event files, read back with its own reader."""

import importlib.util
import io

import pytest
from PIL import Image

from diffusion_lab.loggers import TensorBoardLogger, log_config, log_curve, log_image, log_values

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def read():
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def events(folder):
        found = accumulator.EventAccumulator(str(folder / "tensorboard"), {"images": 0, "scalars": 0, "tensors": 0})
        found.Reload()
        return found

    return events


def test_values_pictures_curves_and_configuration(trainer, tmp_path, read):
    Image.new("L", (6, 4), 200).save(tmp_path / "grid.png")
    logger = TensorBoardLogger(tmp_path)
    fake = trainer(logger)
    log_config(fake, {"seed": 3, "sampler": {"name": "uniform"}})
    log_values(fake, {"train/loss": 0.25, "sampler/p": [0.25, 0.75]})
    log_image(fake, "samples", tmp_path / "grid.png")
    log_curve(fake, "loss over timesteps", [0, 500, 999], {"train": [1.0, 2.0, 3.0], "val": [3.0, 2.0, 1.0]})
    logger.finalize("success")

    events = read(tmp_path)
    scalars = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert scalars == {
        "images": [(20, 160.0)],
        "train/loss": [(20, 0.25)],
        "sampler/p/00": [(20, 0.25)],
        "sampler/p/01": [(20, 0.75)],
    }
    assert set(events.Tags()["images"]) == {"samples", "loss over timesteps"}
    (picture,) = events.Images("samples")
    with Image.open(io.BytesIO(picture.encoded_image_string)) as image:
        assert (image.size, image.getpixel((0, 0)), picture.step) == ((6, 4), (200, 200, 200), 20)
    with Image.open(io.BytesIO(events.Images("loss over timesteps")[0].encoded_image_string)) as curve:
        assert curve.size == (600, 400) and len(curve.getcolors(10**6)) > 3
    (text,) = events.Tensors("config/text_summary")
    assert b'"name": "uniform"' in text.tensor_proto.string_val[0]


def test_cut_hides_what_a_killed_run_logged_later(tmp_path, read):
    killed = TensorBoardLogger(tmp_path)
    for step in range(1, 6):
        killed.log_metrics({"a": float(step)}, step)
    killed.finalize("failed")
    resumed = TensorBoardLogger(tmp_path)
    resumed.cut(3)
    resumed.log_metrics({"a": 40.0}, 4)
    resumed.finalize("success")
    assert [(e.step, e.value) for e in read(tmp_path).Scalars("a")] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0)]


def test_no_file_before_something_is_logged(tmp_path):
    TensorBoardLogger(tmp_path).finalize("success")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named_with_the_cure(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "diffusion_lab.loggers.tensorboard.find_spec", lambda name: None if name == "tensorboard" else find_spec(name)
    )
    with pytest.raises(ValueError, match=r"not installed; pip install 'diffusion-lab\[tensorboard\]'"):
        TensorBoardLogger(tmp_path)
