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


def test_many_groups_have_a_panel_each_and_only_averaged_seeds_are_counted(tmp_path, drawn):
    """18 names stood in one legend, pairs of them in one colour; an unfinished seed that is behind was counted."""
    for k in range(8):
        network = {"_target_": "x.BigGAN", "_partial_": True, "base_channels": k}
        for seed in range(2):
            write_run(tmp_path / f"{k}{seed}", "uniform", seed, steps=50, result=None, network=network)
            for step in (60, 70) if seed == 0 else (60,):
                log(tmp_path / f"{k}{seed}", step, train__loss_generator=1.0, train__judged_real=0.5)
    figure = adversarial_losses(group_runs(read_runs(tmp_path).runs))
    assert figure is not None and "over seeds (1 seed each; none is finished yet)" in figure.caption
    shown = [axis for axis in drawn[0].axes if axis.get_visible()]
    assert len(shown) == 8 and all(len(axis.lines) == 2 for axis in shown)  # a share, and guessing


def test_other_runs_have_no_such_figure(sweep):
    assert adversarial_losses(group_runs(read_runs(sweep).runs)) is None
