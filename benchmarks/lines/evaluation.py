"""What validation, sample grids and metrics take of a training run.

CPU time in the callbacks `validation` and `generation` over that of the whole run, of trainings as `diffusion-lab train` runs
them. Trained are a few steps, with a grid and a validation at the first step and metrics at the last; a run of N steps is
made up of them: steps, snapshots and measurements times what each takes. Settings: the defaults (digits, unet_tiny, 2,000
steps of 64 images, a grid of 64 and 360 validation images every 500, DDIM-50, metrics on 1,000 samples at the end); and
CIFAR-10's size (uniform noise as 3 x 32 x 32 images, 10,000 of them for validation, unet_small, scale=small: 20,000
steps of 128 images, snapshots and metrics on 5,000 samples every 4,000). No goal is set for the metrics: they are as many
samples as the user asks for. CPU time of one thread, one training of each.
"""
