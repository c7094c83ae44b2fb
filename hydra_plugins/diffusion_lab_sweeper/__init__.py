"""Hydra's sweeper for jobs that are listed one by one."""
