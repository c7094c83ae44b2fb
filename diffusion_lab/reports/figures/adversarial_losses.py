"""Figure of the training of GANs: both losses, and how often the discriminator is right."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.plotting import data_uri, images_axis, line_style, panels, style
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import Figure, over_seeds, seeds_text

# logged key -> its name in the legend, and the dashes of its line
LOSSES = {"train/loss_generator": ("generator", "-"), "train/loss_discriminator": ("discriminator", ":")}
JUDGED = {"train/judged_real": ("real images", "-"), "train/judged_fake": ("generated images", ":")}


def adversarial_losses(groups: Sequence[Group]) -> Figure | None:
    """Losses, and shares that the discriminator judges right, against images seen; None without a GAN."""
    present = [group for group in groups if group.comparable(next(iter(LOSSES)))]
    if not present:
        return None
    with style():
        figure, axes = panels(2, height=3.6)
        for axis, lines, title in zip(axes, (LOSSES, JUDGED), ("losses", "share judged right"), strict=True):
            for group in present:
                _draw(axis, group, lines, line_style(groups.index(group)).color, len(present) > 1)
            axis.set_title(title)
            axis.set_xlabel("images seen")
            images_axis(axis, 2)
            axis.legend(fontsize=8)
        axes[1].set_ylim(0, 1.02)
        axes[1].axhline(0.5, color="#999999", linewidth=0.8)
        image = data_uri(figure)
    caption = (
        "Means since the log before. Right: share of the real images that the discriminator takes for real and of the "
        "generated ones that it takes for generated; the grey line is guessing. A generator's loss does not measure "
        f"its images, and losses of different kinds have no common scale. Mean over seeds ({seeds_text(present)})."
    )
    return Figure("Losses of the GAN", caption, image)


def _draw(axis, group: Group, lines: dict[str, tuple[str, str]], color: str, named: bool) -> None:
    for key, (name, dashes) in lines.items():
        mean = over_seeds([run.curve(key) for run in group.comparable(key)])
        if mean is not None:
            label = f"{group.label}: {name}" if named else name
            axis.plot(mean.images, mean.mean, color=color, linestyle=dashes, label=label)
