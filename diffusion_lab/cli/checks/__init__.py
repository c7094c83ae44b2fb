"""The parts of `diffusion_lab.cli.validate`, from what needs no import to what builds the objects."""
