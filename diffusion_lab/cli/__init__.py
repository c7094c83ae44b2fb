"""The `diffusion-lab` command: the only package that knows Hydra.

`main`, `config`, `errors` and `help` do not import torch, so that `--help` and tab completion are fast.
"""
