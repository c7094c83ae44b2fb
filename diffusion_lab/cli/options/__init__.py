"""The options of every group of the configuration, read as text: yaml files and the docstrings of their classes.

Nothing is composed and nothing is imported, so that `diffusion-lab list` answers at once.
"""
