"""The checks of `diffusion_lab.cli.validate`, from those without imports to those that build the objects."""
