"""Hydra launcher: one process per job of a sweep."""
