"""Measurements of speed: ratios between trainings that take turns in one run, never a test."""
