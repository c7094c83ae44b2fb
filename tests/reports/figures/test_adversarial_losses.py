"""The figure of a GAN's training."""

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.figures import adversarial_losses
from tests.reports.synthetic import log, write_run


def test_it_shows_both_losses_and_both_shares(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=50)
    for step, rise in ((60, 0.0), (70, 0.5)):
        values = {"loss_generator": 1 + rise, "loss_discriminator": 2, "judged_real": 0.5 + rise, "judged_fake": 0.25}
        log(tmp_path / "a", step, **{f"train__{name}": value for name, value in values.items()})
    figure = adversarial_losses(group_runs(read_runs(tmp_path).runs))
    assert figure is not None and figure.title == "Losses of the GAN" and "1 seed each" in figure.caption
    drawing = figure.svg.decode()
    for text in ("generator", "discriminator", "real images", "generated images", "share judged right", "images seen"):
        assert text in drawing


def test_other_runs_have_no_such_figure(sweep):
    assert adversarial_losses(group_runs(read_runs(sweep).runs)) is None
