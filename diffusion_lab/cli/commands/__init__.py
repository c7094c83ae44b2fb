"""The commands of `diffusion-lab`, a file for each, by its name.

Those of `main.HYDRA_COMMANDS` have `run(cfg)`, the others `main(words)`, which returns the exit code.
"""
