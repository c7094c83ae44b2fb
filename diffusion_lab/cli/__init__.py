"""The `diffusion-lab` command: the only package that knows Hydra.

`main`, `config`, `errors` and `help` import no torch, so that `--help` and tab completion answer at once.
"""
