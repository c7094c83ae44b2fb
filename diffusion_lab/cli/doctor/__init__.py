"""The checks of `diffusion-lab doctor`: what a machine has, and whether the project's claims hold on it.

check      a check and what it finds
checks/    the checks, a file per subject; a new one is a function there
workers    the processes in which checks run, which are limited in time and replaced when they end
report     the same lines without names, paths and keys
"""
